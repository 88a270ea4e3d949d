"""The table of findings: each row is used, each check names a row, and gives it all that its words ask for."""

import ast
import json
import os
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from daemon import checks
from daemon.checks.examination import examine
from daemon.checks.findings import TABLE, FindingText
from daemon.cli.table import implementation
from daemon.safety.redact import HIDDEN, Redactor
from tests.e2e.harness import Daemon, scripted
from tests.unit.checks.scenes import House, as_somebody_else
from tests.unit.cli.daemons import down
from tests.waiting import eventually

SOURCES = [*Path(checks.__path__[0]).glob("*.py")]


@cache
def calls() -> list[tuple[set[str], set[str]]]:
    """Of each call of `found`: the rows that it may name, and the data that it gives."""
    nodes = (node for source in SOURCES for node in ast.walk(ast.parse(source.read_text())))
    return [
        (named(node.args[0]), {str(each.arg) for each in node.keywords})
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "found"
    ]


def named(cause: ast.expr) -> set[str]:
    """The rows that an expression may name: all its texts, but for the condition that chooses among them."""
    if isinstance(cause, ast.IfExp):
        return named(cause.body) | named(cause.orelse)
    if isinstance(cause, ast.JoinedStr):
        return {row for row in TABLE if row.startswith(ast.literal_eval(cause.values[0]))}
    return {ast.literal_eval(cause)}


def asked(row: FindingText) -> set[str]:
    """The names in the words of a row."""
    return {name for text in (row.what, row.why, row.do) for _, name, _, _ in Formatter().parse(text) if name}


def test_every_call_names_a_row_and_gives_it_what_its_words_ask_for_and_no_words_look_secret() -> None:
    assert set().union(*(rows for rows, _ in calls())) == TABLE.keys()
    for rows, data in calls():
        assert {name for cause in rows for name in asked(TABLE[cause])} <= data, rows
    for row in TABLE.values():
        assert row.what
        assert [Redactor(())(text) for text in (row.what, row.why, row.do)] == [row.what, row.why, row.do]


# --- `mcpd doctor`: a whole look around, with and without a daemon; 1 if there is a fault --------------------


SECRET = "hunter2-hunter2"


@pytest.fixture
def house(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    house = House(sockets)
    for name in [*os.environ]:
        if name.startswith(("MCPD_", "XDG_", "RUNTIME_", "STATE_")):
            monkeypatch.delenv(name)
    for name, value in house.environ.items():
        monkeypatch.setenv(name, value)
    house.program("tool")
    return house


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def everything(root: Path) -> dict[str, tuple[float, int]]:
    """All files with their times and modes."""
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_mode) for path in sorted(root.rglob("*"))}


def test_a_house_in_order_is_zero_and_stays_as_it_is(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    house.servers(git={"command": "tool"})
    before = everything(house.root)
    assert implementation("doctor").main([]) == 0
    assert everything(house.root) == before
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0].startswith("note ")
    assert shown.out.endswith("0 faults, 0 warnings, 3 notes.\n")
    assert "\x1b" not in shown.out
    assert not shown.err


def test_the_worst_is_first_and_what_several_servers_have_in_common_is_told_once(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    house.program("uvx")
    one, two = ({"command": "uvx", "args": [each]} for each in ("mcp-one", "mcp-two"))
    memory = {"command": "/bin/sh", "args": ["-c", "exec mcp-server-memory"]}
    house.servers(one=one, two=two, gone={"command": "no-such-program"}, m=memory, n=memory)
    assert implementation("doctor").main(["--json"]) == 1
    findings = told(capsys)["findings"]
    levels = [each["level"] for each in findings]
    assert levels == sorted(levels, key=["fault", "warning", "note", "ok"].index)
    assert levels[:2] == ["fault", "warning"]
    [loose] = [each for each in findings if each["cause"] == "package-loose"]
    assert loose["what"].startswith("one, two: the package has no exact version: ")
    assert loose["do"] == "`mcpd pin one two` writes the newest version."
    # A key is set for one server at a time.
    limits = [each["do"] for each in findings if each["cause"] == "server-limit-too-high"]
    assert limits == [f"`mcpd set {name} limits.inFlight=1` sets it." for name in ("m", "n")]


def test_json_has_every_finding_with_its_check_also_beside_a_faulty_configuration(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    house.write({"mcpServers": {"git": {"comand": "x"}, "web": {"command": "no-such-program"}}})
    assert implementation("doctor").main(["--json"]) == 1
    answer = told(capsys)
    assert (answer["ok"], answer["counts"]["fault"]) == (False, 2)
    assert list(answer["counts"]) == ["ok", "note", "warning", "fault"]
    assert all(set(each) == {"check", "level", "cause", "what", "why", "do"} for each in answer["findings"])
    assert {each["check"] for each in answer["findings"]} >= {"configuration", "sockets", "state", "systemd"}
    faults = {each["check"]: each for each in answer["findings"] if each["level"] == "fault"}
    assert faults["servers"]["cause"] == "program-not-on-path-of-shell"
    assert "no-such-program" in faults["servers"]["what"]


@pytest.mark.process
def test_no_secret_is_printed(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    house.servers(
        a={"command": f"/no/{SECRET}", "env": {"KEY": SECRET}, "cwd": f"/no/{SECRET}"},
        b={"command": "tool", "args": ["--token", SECRET], "env": {"PATH": SECRET}},
        c={"url": f"http://me:{SECRET}@127.0.0.1:1/{SECRET}?key={SECRET}", "headers": {"X-Key": SECRET}},
    )
    with house.daemon({"b": down(reason=f"cannot start {SECRET}: x", stderr=[f"{SECRET}: not found"])}):
        assert implementation("doctor").main([]) == 1
        assert implementation("doctor").main(["--json"]) == 1
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err
    assert HIDDEN in shown.out


def test_a_check_that_may_not_look_does_not_end_the_others(house: House) -> None:
    house.servers(git={"command": "tool"})
    house.root.chmod(0o755)
    house.config.chmod(0o644)
    house.run.chmod(0o755)
    scene = house.look()
    house.state.chmod(0)
    (house.root / "run").chmod(0)
    with as_somebody_else():
        report = examine(scene)
    (house.root / "run").chmod(0o755)
    assert report["servers"]
    assert any("cannot be looked at" in each.what for each in report["sockets"])


@pytest.mark.process
def test_a_running_daemon_is_found_with_all_that_it_uses(
    house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real one, with a server that runs and one that cannot, whose last words are in the log."""
    words = "echo 'Error: BAD_KEY is not set' >&2; exit 78"
    config = {"mcpServers": {"good": scripted(tools=["t"]), "bad": {"command": "sh", "args": ["-c", words]}}}
    daemon = Daemon(house.root, config, {"PATH": os.defpath})
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(house.root))
    daemon.start()
    try:
        daemon.ready("good")
        eventually(lambda: daemon.ask("status")["servers"]["bad"]["state"] == "failed", daemon.said)
        assert implementation("doctor").main(["--json"]) == 1
        findings = told(capsys)["findings"]
        lines = daemon.run("logs", "bad", "--no-events").splitlines()
        status = daemon.status()["servers"]["bad"]
    finally:
        assert daemon.stop() == 0
    assert daemon.process is not None
    said = [each["what"] for each in findings]
    assert any(f"is running, pid {daemon.process.pid}" in what for what in said)
    assert any(str(daemon.state) in what for what in said)
    fault = next(each for each in findings if each["level"] == "fault")
    assert fault["what"].startswith("bad: failed: exited with status 78")
    assert (fault["why"], fault["do"]) == (status["happened"], status["helps"])
    assert lines[-1].endswith("Error: BAD_KEY is not set")


def test_a_wrong_command_line_is_two() -> None:
    for words in (["x"], ["--config"], ["--control", "x"]):
        with pytest.raises(SystemExit, match="2"):
            implementation("doctor").main(words)
