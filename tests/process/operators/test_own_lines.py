"""The daemon's own command line as its child: what it may be told, and how it ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from daemon.operators import own_lines
from daemon.operators.base import OperatorContext, OwnLines, Refused
from daemon.operators.own_lines import run_line
from daemon.processes.children import Children
from tests.fakes_upstream import Stage
from tests.faults.stage import is_alive, leaving_nothing
from tests.unit.cli.daemons import fake_control, server, status_of
from tests.unit.operators.stage import FACTS, operator_context
from tests.waiting import PATIENCE, eventually, until

GIT = {"command": "true", "env": {"LEVEL": "one"}}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcpd.json"
    path.write_text(json.dumps({"mcpServers": {"git": GIT}}))
    path.chmod(0o600)
    return path


def context_of(config: Path, **changed: Any) -> OperatorContext:
    """No daemon is there to be reached."""
    nowhere = str(config.with_name("mcpd.sock"))
    given = {"config": str(config), "socket": nowhere, "control_socket": nowhere, "environ": dict(os.environ)}
    facts = attrs.evolve(FACTS, **{**given, **changed})
    return operator_context(Stage(), facts=facts, lines=OwnLines(Children()))


async def test_a_line_does_what_it_does_in_a_terminal(config: Path) -> None:
    async with leaving_nothing():
        ran = await run_line(context_of(config), ("set", "git", "env.LEVEL=two"), options=("--no-reload",))
    assert ran.status == 0, ran.text
    assert '"LEVEL": "two"' in await trio.Path(config).read_text()


async def test_what_is_printed_is_in_order_and_without_secrets(config: Path) -> None:
    context = context_of(config)
    context.redact.hide(["7fK2mQ9xVb4Z"])
    ran = await run_line(context, ("remove", "7fK2mQ9xVb4Z"))
    assert "there is no server" in ran.text
    assert "7fK2mQ9xVb4Z" not in ran.text
    ran = await run_line(context, ("remove", "nothing"))
    assert ran.status != 0
    assert ran.text.startswith("mcpd: ")


async def test_a_cut_leaves_no_rest_of_a_secret(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "print('7fK2mQ9x', end='Vb4Z\\n'); print(end='.' * (64 * 1024 - 5))"
    monkeypatch.setattr(own_lines, "_BEGIN", script)
    context = context_of(config)
    context.redact.hide(["7fK2mQ9xVb4Z"])
    ran = await run_line(context, ("remove", "git"))
    assert {*ran.text} == {"."}


@pytest.mark.parametrize("word", ["--config=/etc/x", "-o", "--", "", "a\nb", "a\0b", "a\u202eb"])
async def test_no_word_of_a_user_is_an_option(config: Path, word: str) -> None:
    with pytest.raises(Refused, match="begins with a dash"):
        await run_line(context_of(config), ("remove", word))


@pytest.mark.parametrize("command", ["edit", "stop", "token", "purge", "--version", "run"])
async def test_other_sub_commands_are_refused(config: Path, command: str) -> None:
    with pytest.raises(Refused, match="type it in a terminal"):
        await run_line(context_of(config), (command, "git"))


async def test_a_replaced_program_is_not_run(config: Path) -> None:
    with pytest.raises(Refused, match="mcpd start --restart"):
        await run_line(context_of(config, replaced=lambda: True), ("remove", "git"))


async def test_it_has_the_environment_of_other_children(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os; os.read(0, 1); print(*sorted(os.environ), os.environ['MCPD_CONFIG'], os.read(0, 9))"
    monkeypatch.setattr(own_lines, "_BEGIN", script)
    environ = {"NOTIFY_SOCKET": "/x", "LISTEN_FDS": "1", "WATCHDOG_USEC": "1", "MY_TOKEN": "y"}
    ran = await run_line(context_of(config, environ=environ), ("remove", "git"), "given")
    assert "MY_TOKEN" in ran.text
    assert not {"NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC"} & {*ran.text.split()}
    assert str(config) in ran.text
    assert "b'given'" in ran.text


@pytest.fixture
def hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a line that never ends writes its pid."""
    place = tmp_path / "pid"
    os.mkfifo(place)
    script = "import os, signal, sys; open(sys.argv[-1], 'w').write(str(os.getpid())); signal.pause()"
    monkeypatch.setattr(own_lines, "_BEGIN", script)
    return place


async def test_one_line_runs_at_a_time_and_outlasts_its_caller(config: Path, hangs: Path) -> None:
    context = context_of(config)
    lines = context.lines
    assert lines is not None
    told: list[str] = []

    async def change() -> None:
        with caller:
            told.append((await run_line(context, ("remove", str(hangs)))).text)

    with trio.fail_after(PATIENCE):
        async with leaving_nothing(), trio.open_nursery() as nursery:
            caller = trio.CancelScope()
            nursery.start_soon(change)
            pid = int(await trio.to_thread.run_sync(hangs.read_text))
            try:
                # It may write before its parent goes on.
                await until(lambda: lines.children.fellows == {pid})
                with pytest.raises(Refused, match="`mcpd remove` is under way"):
                    await run_line(context, ("pin", "git"))
                caller.cancel()
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert is_alive(pid), "a browser that leaves ends no change half way"
            finally:
                lines.scope.cancel()
    assert told == ["mcpd: the daemon is stopping: look at the result when it runs again"]
    assert not is_alive(pid)
    assert not lines.children.fellows
    with pytest.raises(Refused, match="`mcpd stop` is under way"):
        await run_line(context, ("pin", "git"))


async def test_a_change_that_the_daemons_stop_interrupts_is_taken_back(config: Path, sockets: Path) -> None:
    before, starts = await trio.Path(config).read_text(), server(state="starting", tools=0, attempt=0)
    status = status_of({"git": starts})
    answers = {"reload": {"config": str(config)}, "status": status, "tools": {"categories": {}}}
    with fake_control(sockets / "control.sock", answers) as daemon, trio.fail_after(PATIENCE):
        context = context_of(config, socket=str(sockets / "mcpd.sock"), control_socket=str(daemon.path))
        assert context.lines is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_line, context, ("set", "git", "env.LEVEL=two"))
            await trio.to_thread.run_sync(eventually, lambda: [each for each, _ in daemon.asked[3:]])
            assert '"LEVEL": "two"' in await trio.Path(config).read_text()
            context.lines.scope.cancel()
    assert await trio.Path(config).read_text() == before


async def test_a_line_without_end_is_ended(config: Path, hangs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_lines, "LINE_SECONDS", 0.5)
    async with leaving_nothing(), trio.open_nursery() as nursery:
        nursery.start_soon(trio.Path(hangs).read_text)
        ran = await run_line(context_of(config), ("remove", str(hangs)))
    assert ran.status == 1
    assert ran.text.endswith("the command took too long and was ended: check the result")


async def test_a_line_ends_with_a_daemon_that_is_killed(tmp_path: Path) -> None:
    """The real beginning of a line, below a parent that does not say goodbye."""
    script = (
        "import os, subprocess, sys; line = [sys.executable, '-c', sys.argv[1], str(os.getpid())];"
        " made = subprocess.Popen(line, stdin=0); print(made.pid, flush=True); sys.stdin.read()"
    )
    parent = await trio.lowlevel.open_process(
        [sys.executable, "-c", script, own_lines._BEGIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.receive_some())
    own = os.pidfd_open(pid)
    os.kill(parent.pid, signal.SIGKILL)
    await parent.wait()
    with trio.fail_after(PATIENCE):
        await trio.lowlevel.wait_readable(own)
    os.close(own)
