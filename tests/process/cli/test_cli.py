"""The console script: dispatch, exit statuses, and that a command pays only for what it uses."""

from __future__ import annotations

import importlib
import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from daemon import cli, version
from daemon.cli import EX_IOERR, implementation, main, overview
from daemon.cli.table import COMMANDS, GROUPS, MODULES, SYNONYMS
from tests.unit.cli.daemons import ROOT, SILENCE, down, environment, fake_control, mcpd, server, status_of
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = {
    "trio",
    "mcp",
    "mcp_types",
    "rich",
    "attrs",
    "attr",
    "msgspec",
    "pydantic",
    "loguru",
    "asyncio",
    "typer",
}

REPORT = """
import sys
from daemon.cli import main
try:
    main()
finally:
    print("", *sys.modules, file=sys.stderr)
"""


def modules_of(*words: str, **more: str) -> set[str]:
    """Every module that is loaded when `mcpd WORDS` ends."""
    ran = subprocess.run(
        [sys.executable, "-c", REPORT, *words],
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return set(ran.stderr.splitlines()[-1].split())


def exit_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["mcpd", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_help_shows_every_command_with_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert exit_of(monkeypatch, *words) == 0
    shown = capsys.readouterr().out
    for command, (purpose, example) in COMMANDS.items():
        assert f"  {command}" in shown
        assert purpose in shown
        assert f"$ {example}" in shown
        assert example.startswith(f"mcpd {command}")


def test_every_command_stands_under_one_heading_of_the_help() -> None:
    assert sorted(" ".join(GROUPS.values()).split()) == sorted(COMMANDS)
    assert "more:" not in overview()


def test_the_overview_fits_a_narrow_terminal() -> None:
    assert max(map(len, overview().splitlines())) <= 80


def test_the_version_is_the_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_of(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"mcpd {version()}\n"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("statsu", "did you mean `mcpd status`?"),
        ("setup", "did you mean `mcpd up`?"),
        ("top", "did you mean `mcpd status --watch`?"),
        ("stat", "did you mean `mcpd status`?"),
        ("open", "did you mean `mcpd ui`?"),
        ("clients", "did you mean `mcpd sessions`?"),
        ("stopp", "did you mean `mcpd stop`?"),
        # Nothing that ends something is proposed for a word that is hardly like it.
        ("stor", "did you mean `mcpd start`?"),
        ("zzz", "`mcpd help` lists the commands by their purpose"),
        ("--socket", "options follow one, as in `mcpd status --socket`"),
    ],
)
def test_an_unknown_command_is_answered_with_the_closest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], word: str, hint: str
) -> None:
    assert exit_of(monkeypatch, word) == 2
    assert hint in capsys.readouterr().err


def test_every_word_of_elsewhere_names_a_command() -> None:
    assert {command.split()[0] for command in SYNONYMS.values()} <= set(COMMANDS)
    assert not SYNONYMS.keys() & COMMANDS.keys()


def test_help_of_a_command_is_the_same_in_both_orders() -> None:
    assert mcpd("help", "status").stdout == mcpd("status", "--help").stdout != ""
    assert mcpd("help", "zzz").returncode == 2


@pytest.mark.parametrize("command", ["up", "events", "call", "logs"])
def test_help_is_wrapped_to_the_terminal(command: str) -> None:
    helped = mcpd(command, "--help", COLUMNS="72").stdout.split("\nexamples:")[0]
    assert max(map(len, helped.splitlines())) <= 72


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_and_its_exit_statuses(command: str) -> None:
    helped = mcpd(command, "--help")
    assert helped.returncode == 0
    assert "example" in helped.stdout
    assert "exit status" in helped.stdout
    assert not helped.stderr


def test_a_reader_that_leaves_ends_a_command_quietly() -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", f"{{ {sys.executable} -m daemon schema; echo $? >&2; }} | true"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    # The reader may also leave after the whole text fitted into the pipe.
    assert ran.stderr.strip() in {"141", "0"}


def test_a_broken_pipe_is_141(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[bool] = []

    def broken(argv: list[str]) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(cli, "_dispatch", broken)
    monkeypatch.setattr(cli, "_forget_stdout", lambda: forgotten.append(True))
    assert exit_of(monkeypatch, "schema") == 141
    assert forgotten == [True]


ASKING_NOBODY = {
    "check",
    "completions",
    "schema",
    "uninstall",
    "version",
}
"""Commands that concern no daemon."""


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_takes_the_clients_socket(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    main_of_command = implementation(command).main
    with pytest.raises(SystemExit) as ended:
        main_of_command(["--socket", "/x/mcpd.sock", "--help"])
    assert ended.value.code == 0
    # Those that ask no daemon only accept it.
    assert ("--socket P" in capsys.readouterr().out) is (command not in ASKING_NOBODY)


ASKING: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "status": ((), status_of({})),
    "sessions": ((), {"sessions": []}),
    "metrics": ((), {"text": ""}),
    "logs": ((), {"servers": {}}),
    "restart": (("x",), {"server": "x", "state": "ready"}),
}


@pytest.mark.parametrize("command", ASKING)
@pytest.mark.parametrize("way", ["option", "variable"])
def test_operators_are_answered_beside_the_clients_socket(sockets: Path, command: str, way: str) -> None:
    words, answer = ASKING[command]
    front = str(sockets / "mcpd.sock")
    named, more = (("--socket", front), {}) if way == "option" else ((), {"MCPD_SOCKET": front})
    with fake_control(sockets / "control.sock", {command: answer}) as daemon:
        ran = mcpd(command, *words, *named, **more)
    assert [method for method, _ in daemon.asked] == [command], ran.stderr


def test_ctrl_c_is_130_and_quiet(sockets: Path) -> None:
    with fake_control(sockets / "control.sock", {"status": status_of({})}):
        child = subprocess.Popen(
            [sys.executable, "-m", "daemon", "call", "a/b", "-"],
            env=environment(MCPD_CONTROL=str(sockets / "control.sock")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with child:
            assert child.stdin is not None
            # More than a pipe holds: when it is written, the command is reading.
            child.stdin.write(" " * 200_000)
            child.stdin.flush()
            child.send_signal(signal.SIGINT)
            said = child.communicate(timeout=PATIENCE)
    assert (child.returncode, *said) == (130, "", "")


def test_connect_imports_only_the_standard_library(sockets: Path) -> None:
    path = sockets / "mcpd.sock"
    with fake_control(path, {"mcpd/hello": SILENCE}):
        loaded = modules_of("connect", MCPD_SOCKET=str(path))
    foreign = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"daemon"}
    # What the interpreter's own start-up brings (site, .pth files) is in every Python of this environment.
    plain = {name.partition(".")[0] for name in modules_of_nothing()}
    assert foreign <= plain
    assert not loaded & {"socket", "argparse", "json", "subprocess", "asyncio"}
    ours = {name for name in loaded if name.startswith("daemon")}
    assert {name for name in ours if not name.startswith("daemon.bridge")} == {
        "daemon",
        "daemon.cli",
        "daemon.cli.connect",
        "daemon.cli.table",
        "daemon.host",
        "daemon.host.paths",
    }


def modules_of_nothing() -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return set(ran.stdout.split())


def test_status_as_json_imports_nothing_heavy(sockets: Path) -> None:
    path = sockets / "control.sock"
    with fake_control(path, {"status": status_of({"git": server()})}):
        loaded = modules_of("status", "--json", MCPD_CONTROL=str(path))
    assert "daemon.cli.status" in loaded
    assert not {name.partition(".")[0] for name in loaded} & HEAVY


MAY_LOAD = {"bridge", "cli", "host", "kit", "operators", "safety", "states"}
"""Rooms that hold words and ways to the daemon. All others know more than what is shown, and cost more."""


@pytest.mark.parametrize("words", [("status",), ("status", "git"), ("events",), ("logs", "git")])
def test_what_operators_look_at_is_drawn_without_the_daemons_model(
    sockets: Path, words: tuple[str, ...]
) -> None:
    path, ill = sockets / "control.sock", down(helps="look")
    whole = status_of({"git": ill}, lazy=True)
    whole["daemon"] |= {"lazy": True, "surfaces": {"default": "auto"}}
    status = whole if words == ("status",) else {"name": "git", "server": ill}
    page = {"server": "git", "type": "stdio", "lines": [], "events": [], "startedAt": 1.0}
    with fake_control(path, {"status": status, "events": {"events": []}, "logs": page}):
        loaded = modules_of(*words, MCPD_CONTROL=str(path))
    ours = {name for name in loaded if name.startswith("daemon.")}
    assert f"daemon.cli.{words[0]}" in ours
    assert {name.split(".")[1] for name in ours} <= MAY_LOAD
    assert len(ours) <= 25
    assert not {name.partition(".")[0] for name in loaded} & (HEAVY - {"rich"})


@pytest.mark.parametrize(("command", "collects"), [("run", False), ("check", True)])
def test_only_a_daemon_begins_without_looking_for_garbage(command: str, collects: bool) -> None:
    script = (
        "import atexit, gc, sys\n"
        "from daemon.cli import main\n"
        "atexit.register(lambda: print(gc.isenabled(), file=sys.stderr))\n"
        f"sys.argv[1:] = ['{command}', '--help']\n"
        "main()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert ran.stderr.split() == [str(collects)]


def test_the_package_runs_as_a_module(sockets: Path) -> None:
    path = sockets / "control.sock"
    with fake_control(path, {"status": status_of({"git": server()})}):
        ran = mcpd("status", "--json", MCPD_CONTROL=str(path))
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["servers"]["git"]["state"] == "ready"


def test_a_terminal_without_unicode_gets_escapes_and_no_traceback(sockets: Path) -> None:
    path = sockets / "control.sock"
    answer = {"content": [{"type": "text", "text": "größer \ud800"}]}
    with fake_control(path, {"call": answer}):
        plain = mcpd("call", "a/b", MCPD_CONTROL=str(path), PYTHONIOENCODING="ascii")
        data = mcpd("call", "a/b", "--json", MCPD_CONTROL=str(path), PYTHONIOENCODING="ascii")
    assert plain.stdout == "gr\\xf6\\xdfer \\ud800\n"
    assert json.loads(data.stdout) == answer


def test_every_command_is_found_in_the_module_that_the_table_names() -> None:
    assert sorted(" ".join(MODULES.values()).split()) == sorted(COMMANDS)
    for command in COMMANDS:
        found = implementation(command)
        assert getattr(found, "name", command) == command
        assert found.make_parser().prog == f"mcpd {command}"
        assert callable(found.main)


def test_every_view_that_a_command_names_is_there() -> None:
    """`drawn` names it by a string, so that what needs no table loads no rich."""
    sources = "".join(path.read_text() for path in (ROOT / "daemon" / "cli").glob("*.py"))
    named = re.findall(r'"(daemon\.[\w.]+):(\w+)"', sources)
    assert len(named) >= 7
    for module, view in named:
        assert callable(getattr(importlib.import_module(module), view))


@pytest.mark.parametrize("words", [("status", "--json"), ("status",), ("--version",)])
@pytest.mark.parametrize(("redirection", "code"), [(">/dev/full", EX_IOERR), (">&-", 0), (">&- 2>&- <&-", 0)])
def test_a_stdout_that_takes_nothing_is_no_traceback(
    sockets: Path, redirection: str, code: int, words: tuple[str, ...]
) -> None:
    with fake_control(sockets / "control.sock", {"status": status_of({"git": server()})}):
        script = f'exec "$0" -m daemon "$@" {redirection}'
        ran = subprocess.run(
            ["/bin/sh", "-c", script, sys.executable, *words],
            env=environment(MCPD_CONTROL=str(sockets / "control.sock")),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert ran.returncode == code
    assert "Traceback" not in ran.stderr
    assert ran.stderr == ("mcpd: cannot write the output: No space left on device\n" if code else "")
