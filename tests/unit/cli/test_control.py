"""One question, one answer, and every way in which that fails."""

import argparse
import io
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from daemon import version
from daemon.cli import control as client
from daemon.cli import implementation
from daemon.cli.command import agreed, browse, has_terminal
from daemon.cli.completing import parser_of
from daemon.cli.control import DaemonUnreachable, RemoteFault, ask
from daemon.cli.following import AWAY_SECONDS, GATHER_SECONDS, WAIT_SECONDS, follow, news
from daemon.cli.options import CommandParser
from daemon.cli.table import EX_CONFIG, help_table, purposes
from daemon.cli.taking_effect import TOOL_LINES, WIDTH, Effect, in_lines
from daemon.cli.terminal import Screen, draw, paragraph
from tests.printing import err_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured, Controls
from tests.unit.cli.daemons import SILENCE, fake_control, listen, server
from tests.unit.cli.users import Terminal
from tests.waiting import PATIENCE

COMMANDS: dict[str, tuple[list[str], str]] = {
    "call": (["git/log"], "call"), "calls": ([], "calls"), "restart": (["git"], "restart"),
    "search": (["log"], "search"), "tools": ([], "tools"),
}  # fmt: skip
"""Commands that ask the daemon: arguments, and the method that each asks."""


def question(path: Path, answer: Any, timeout: float = PATIENCE) -> dict[str, Any]:
    with fake_control(path / "c", {"status": answer}) as daemon:
        try:
            return ask("status", {"a": 1}, path=str(path / "c"), timeout=timeout)
        finally:
            assert daemon.asked == [("status", {"a": 1})]


@pytest.mark.parametrize("browser", [" ", "firefox '%s"])
def test_a_browser_whose_name_cannot_be_read_opens_nothing(
    monkeypatch: pytest.MonkeyPatch, browser: str
) -> None:
    monkeypatch.setenv("BROWSER", browser)
    # What was found before, for another name.
    monkeypatch.setattr(webbrowser, "_tryorder", None)
    monkeypatch.setattr(webbrowser, "_browsers", {})
    assert not browse("https://mcp.example")


def test_an_answer_may_be_larger_than_one_read(sockets: Path) -> None:
    large = {"text": "x" * 3_000_000}
    assert question(sockets, large) == large


@cases("error", "said")
def test_an_error_is_raised_with_all_it_says_and_one_of_another_version_with_what_helps(
    sockets: Path, error: dict[str, Any], said: str
) -> None:
    with pytest.raises(RemoteFault, match=said) as raised:
        question(sockets, {"error": error})
    assert (raised.value.code, raised.value.data) == (error["code"], error.get("data"))


def test_an_answer_that_does_not_come_or_does_not_end_is_given_up(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DaemonUnreachable, match=r"did not answer `status` within 0\.1 s"):
        question(sockets, SILENCE, timeout=0.1)
    monkeypatch.setattr(client, "MAX_ANSWER", 1024 * 1024)
    with pytest.raises(DaemonUnreachable, match="larger than 1 MiB"):
        question(sockets, b"x" * 3_000_000)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", r"closed the connection without an answer: .*listen\.servers"),
        (b'{"jsonrpc":"2.0","id":1,"resu', "closed the connection without an answer"),
        (b"220 smtp ready\n", "not mcpd's control socket"),
        (b"[]\n", "not mcpd's control socket"),
        (b'{"id":1,"result":3}\n', "not mcpd's control socket"),
        (b"[" * 100_000 + b"\n", "nested too deeply"),
        (b"\xff\xfe\xfd\n", "not mcpd's control socket"),
    ],
)
def test_what_does_not_speak_our_protocol_is_no_daemon(sockets: Path, answer: bytes, text: str) -> None:
    with pytest.raises(DaemonUnreachable, match=text):
        question(sockets, answer)


@pytest.mark.parametrize("running", [{"version": "0.0.9"}, {"version": version(), "replaced": True}])
def test_faults_that_only_a_daemon_of_another_version_finds_are_told_as_its(
    running: dict[str, Any], control: Controls, capsys: Captured
) -> None:
    fault = {"error": {"code": -32078, "message": "/f: 1 fault", "data": {"faults": []}}}
    daemon = control({"reload": fault, "status": {"daemon": running}})
    assert implementation("reload").main([]) == EX_CONFIG
    said = "The daemon finds these faults: daemon and `mcpd` differ in version. `mcpd start --restart`"
    assert said in capsys.readouterr().err
    daemon.answers["status"] = {"daemon": {"version": version()}}
    assert "--restart" not in err_of(capsys, implementation("reload").main([]), EX_CONFIG)


def test_nobody_there_is_explained(sockets: Path) -> None:
    with pytest.raises(DaemonUnreachable, match="ENOENT"):
        ask("status", {}, path=str(sockets / "none"), timeout=1)
    listen(sockets / "left").close()
    with pytest.raises(DaemonUnreachable, match="ECONNREFUSED"):
        ask("status", {}, path=str(sockets / "left"), timeout=1)
    with pytest.raises(DaemonUnreachable, match="too long"):
        ask("status", {}, path=str(sockets / ("x" * 200)), timeout=1)


def run(command: str, *more: str) -> int:
    code: int = implementation(command).main([*COMMANDS[command][0], *more])
    return code


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_daemon_a_command_ends_with_three_and_says_what_to_do(
    command: str, sockets: Path, capsys: Captured
) -> None:
    assert run(command, "--control", str(sockets / "none")) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert "cannot reach the daemon" in told.err
    assert "mcpd run" in told.err


@pytest.mark.parametrize("command", COMMANDS)
def test_what_the_daemon_refuses_ends_with_one_and_the_daemons_words(
    command: str, control: Controls, capsys: Captured
) -> None:
    text = "no server 'gti\x1b[2J': did you mean 'git'?"
    control({COMMANDS[command][1]: {"error": {"code": -32602, "message": text}}})
    assert run(command) == 1
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"mcpd: {text}\n".replace("\x1b", "\\x1b"))


# --- what all command lines have in common -------------------------------------------------------------------


def test_help_ends_with_examples_and_exit_statuses() -> None:
    asks, asks_nobody = (CommandParser("version", asks=asks).format_help() for asks in (True, False))
    examples = "examples:\n  mcpd version\n  mcpd version --json\n\nexit status:\n  0   printed\n  2   usage\n"
    assert asks_nobody.endswith(examples)
    assert asks.endswith(f"{examples}  3   the daemon cannot be reached\n")


def test_each_section_of_words_is_of_a_command_and_each_word_of_an_argument() -> None:
    table, taken = help_table(), dict[str, set[str]]()
    commands = purposes(table).keys()
    assert table.keys() - {"shared", "groups", "aliases", "synonyms"} == commands
    for command in commands:
        actions = parser_of(command)._actions
        taken[command] = {name for each in actions for name in (*each.option_strings, each.dest)}
        assert all(each.help or isinstance(each.choices, dict) for each in actions), command
        assert table[command].get("arguments", {}).keys() <= taken[command], command
    assert table["shared"]["arguments"].keys() <= set[str]().union(*taken.values())


# --- following what the daemon tells -------------------------------------------------------------------------


def test_each_answer_is_shown_and_a_daemon_that_is_away_is_told_once(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("daemon.cli.following.time.sleep", waits.append)
    monkeypatch.setattr("daemon.cli.following.end_without_reader", lambda: None)
    gone = DaemonUnreachable("nobody listens\x1b[2J")
    coming: list[dict[str, Any] | BaseException] = [{"next": 1}, gone, gone, {"next": 2}, KeyboardInterrupt()]
    asked, shown = list[dict[str, Any]](), list[dict[str, Any]]()

    def after(seen: dict[str, Any]) -> dict[str, Any]:
        asked.append(seen)
        came = coming.pop(0)
        if isinstance(came, BaseException):
            raise came
        return came

    assert follow({"next": 0}, after, shown.append) == 0
    assert shown == [{"next": 0}, {"next": 1}, {"next": 2}]
    assert [each["next"] for each in asked] == [0, 1, 1, 1, 2]
    assert waits == [GATHER_SECONDS, GATHER_SECONDS, AWAY_SECONDS, AWAY_SECONDS, GATHER_SECONDS]
    told = ["mcpd: nobody listens\\x1b[2J. Waiting for it.", "mcpd: the daemon is back."]
    assert capsys.readouterr().err.splitlines() == told


def test_the_daemon_is_asked_to_wait_and_given_the_time(control: Controls) -> None:
    daemon = control({"events": {"events": []}})
    options = argparse.Namespace(control=None, socket=None, timeout=0.001)
    assert news(options, "events", {"after": 3}) == {"events": []}
    assert daemon.asked == [("events", {"after": 3, "wait": WAIT_SECONDS})]


# --- how wide, in colour or not, and how numbers read --------------------------------------------------------


def test_colour_is_for_terminals_that_want_it_and_columns_is_the_width_of_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for environ, colour in (
        ({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)
    ):  # fmt: skip
        assert Screen.of(Terminal(), environ).colour is colour
        assert not Screen.of(io.StringIO(), environ).colour
    monkeypatch.setenv("COLUMNS", "72")
    assert Screen.of(io.StringIO(), {}).width == 72


def test_a_word_longer_than_the_screen_is_broken_and_not_cut() -> None:
    text = draw([paragraph("x" * 50, indent=2)], Screen(20, colour=False))
    assert text.count("x") == 50


# --- asking before something is changed, and saying why nothing was ------------------------------------------


@pytest.mark.parametrize(
    ("typed", "agrees"),
    [("\n", True), ("Y\n", True), ("yes\n", True), ("n\n", False), ("what\n", False), ("", False)],
)
def test_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch, typed: str, agrees: bool) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert has_terminal()
    assert agreed("Really?", yes=False) is agrees
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert agreed("Really?", yes=False, default=False) is (agrees and typed != "\n")


@pytest.mark.parametrize("stdin", [None, io.StringIO("y\n")])
def test_without_a_terminal_nobody_agrees_unless_the_command_line_does(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, stdin: io.StringIO | None
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    assert not agreed("Really?", yes=False)
    assert "--yes to agree" in capsys.readouterr().err
    assert agreed("Really?", yes=True)
    assert capsys.readouterr() == ("", "")


# --- what became of a changed configuration, in words --------------------------------------------------------


def test_a_server_that_is_well_is_told_in_three_lines_however_many_tools_it_has() -> None:
    names = tuple(f"a_tool_with_a_name_{number}" for number in range(100))
    told = in_lines("x", Effect(asked=True, problem="", seen=server(tools=100), tools=names)).split("\n")
    assert told[0] == "x is ready: 100 tools"
    assert len(told) == 1 + TOOL_LINES
    assert all(len(line) <= WIDTH + 2 for line in told)
    shown = sum(line.count("a_tool") for line in told)
    assert told[-1].endswith(f", and {100 - shown} more")
    asleep = Effect(asked=True, problem="", seen=server(state="dormant", tools=1), tools=("t\x1b[2J",))
    assert asleep.is_well
    assert in_lines("x", asleep) == "x is dormant, and is started when it is needed: 1 tool\n  t\\x1b[2J"
