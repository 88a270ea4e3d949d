"""The console script: dispatch, exit statuses, and that a command pays only for what it uses."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.cli import main
from daemon.cli.table import COMMANDS, help_table, purposes
from tests.printing import err_of, out_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured
from tests.unit.cli.daemons import ROOT, SILENCE, down, environment, fake_control, mcpd, server, status_of
from tests.waiting import PATIENCE, run_to_end

HEAVY = {
    *["trio", "mcp", "mcp_types", "rich", "attrs", "attr", "msgspec", "pydantic", "loguru", "asyncio", "typer"]
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
    ran = run_to_end([sys.executable, "-c", REPORT, *words], env=environment(**more), stdin=subprocess.DEVNULL)
    return set(ran.stderr.splitlines()[-1].split())


def exit_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["mcpd", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_help_shows_every_command_with_an_example(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    shown = out_of(capsys, exit_of(monkeypatch))
    assert out_of(capsys, exit_of(monkeypatch, "help")) == shown
    told = purposes(help_table())
    assert {*told} == {*COMMANDS}
    for command, (purpose, example) in told.items():
        for each in (f"  {command}", purpose, f"$ {example}"):
            assert each in shown
        assert example.startswith(f"mcpd {command}")


@cases("word", "hint")
def test_an_unknown_command_is_answered_with_the_closest(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, word: str, hint: str
) -> None:
    assert hint in err_of(capsys, exit_of(monkeypatch, word), 2)


def test_help_of_a_command_is_the_same_in_both_orders() -> None:
    assert mcpd("help", "status").stdout == mcpd("status", "--help").stdout != ""
    assert mcpd("help", "zzz").returncode == 2


def test_a_reader_that_leaves_ends_a_command_quietly() -> None:
    ran = run_to_end(
        ["/bin/sh", "-c", f"{{ {sys.executable} -m daemon schema; echo $? >&2; }} | true"], env=environment()
    )
    # The reader may also leave after the whole text fitted into the pipe.
    assert ran.stderr.strip() in {"141", "0"}


ASKING_NOBODY = {"check", "clients", "completions", "purge", "schema", "secret", "uninstall", "version"}
"""Commands that concern no daemon."""


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
    ran = run_to_end([sys.executable, "-c", "import sys; print(*sys.modules)"], check=True, env=environment())
    return set(ran.stdout.split())


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
    assert f"daemon.{COMMANDS[words[0]].partition(':')[0]}" in ours
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
    ran = run_to_end([sys.executable, "-c", script], check=True, cwd=ROOT)
    assert ran.stderr.split() == [str(collects)]


def test_a_terminal_without_unicode_gets_escapes_and_no_traceback(sockets: Path) -> None:
    path = sockets / "control.sock"
    answer = {"content": [{"type": "text", "text": "größer \ud800"}]}
    with fake_control(path, {"call": answer}):
        plain = mcpd("call", "a/b", MCPD_CONTROL=str(path), PYTHONIOENCODING="ascii")
        data = mcpd("call", "a/b", "--json", MCPD_CONTROL=str(path), PYTHONIOENCODING="ascii")
    assert plain.stdout == "gr\\xf6\\xdfer \\ud800\n"
    assert json.loads(data.stdout) == answer


@cases("words", "redirection", "code")
def test_a_stdout_that_takes_nothing_is_no_traceback(
    sockets: Path, redirection: str, code: int, words: tuple[str, ...]
) -> None:
    with fake_control(sockets / "control.sock", {"status": status_of({"git": server()})}):
        script = f'exec "$0" -m daemon "$@" {redirection}'
        ran = run_to_end(
            ["/bin/sh", "-c", script, sys.executable, *words],
            env=environment(MCPD_CONTROL=str(sockets / "control.sock")),
            cwd=ROOT,
        )
    assert ran.returncode == code
    assert "Traceback" not in ran.stderr
    assert ran.stderr == ("mcpd: cannot write the output: No space left on device\n" if code else "")


def test_every_command_takes_the_clients_socket_and_has_narrow_help_with_an_example_and_exit_statuses(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    for command in COMMANDS:
        helped = out_of(capsys, exit_of(monkeypatch, command, "--socket", "/x/mcpd.sock", "--help"))
        usage, examples = helped.split("\nexamples:\n  ")
        assert "\n\nexit status:" in examples, command
        assert max(map(len, usage.splitlines())) <= 72, command
        # Those that ask no daemon only accept it.
        assert ("--socket P" in helped) is (command not in ASKING_NOBODY), command


def test_operators_are_answered_beside_the_clients_socket(sockets: Path) -> None:
    front = str(sockets / "mcpd.sock")
    for words, more in ((["--socket", front], {}), ([], {"MCPD_SOCKET": front})):
        with fake_control(sockets / "control.sock", {"sessions": {"sessions": []}}) as daemon:
            ran = mcpd("sessions", *words, **more)
        assert [method for method, _ in daemon.asked] == ["sessions"], ran.stderr
