"""Locks of a daemon's life: a holder that is gone is waited for, one that lives is named at once."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemon.errors import DaemonRunning
from daemon.host import private_files
from daemon.host.sockets import bind
from daemon.state.sqlite import hold
from tests.waiting import WAIT

ROOT = Path(__file__).parent.parent.parent.parent

FORKED = """
import contextlib, os, signal, sys
from pathlib import Path
from daemon.host.sockets import bind
from daemon.state.sqlite import hold
what = contextlib.ExitStack()
if sys.argv[1] == "socket":
    bind(Path(sys.argv[2]))
else:
    what.enter_context(hold(Path(sys.argv[2])))
if os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
os.close(1)
sys.stdin.read()
os._exit(0)
"""
"""Holds a lock, forks, and is killed; the child has everything open until its stdin ends, as before exec."""


@contextmanager
def killed_while_forking(what: str, path: Path) -> Iterator[Callable[[], None]]:
    """A daemon that was killed as it started a child; yields what lets that begin its program."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED, what, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.read() == b""
        process.wait(WAIT)
        yield process.stdin.close


def keep_state(path: Path) -> None:
    with hold(path):
        pass


def serve(path: Path) -> None:
    bind(path).close()


@pytest.mark.process
@pytest.mark.parametrize(("what", "begin"), [("socket", serve), ("state", keep_state)])
def test_a_child_that_a_killed_daemon_was_starting_is_waited_for(
    what: str, begin: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run" / "mcpd"
    with killed_while_forking(what, path) as exec_child:
        looked = threading.Event()
        is_gone = private_files.is_gone
        # The child begins its program once the newcomer has found the lock taken.

        def look(pid: str) -> bool:
            looked.set()
            return is_gone(pid)

        monkeypatch.setattr(private_files, "is_gone", look)
        child = threading.Thread(target=lambda: looked.wait(WAIT) and exec_child())
        child.start()
        begin(path)
        child.join(WAIT)
    assert looked.is_set()


@pytest.mark.process
def test_a_child_that_never_begins_its_program_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_files, "FORK_SECONDS", 0.0)
    path = tmp_path / "run" / "mcpd"
    with killed_while_forking("socket", path) as exec_child:
        try:
            with pytest.raises(DaemonRunning, match=r"already running: pid [0-9]+ serves"):
                bind(path)
        finally:
            exec_child()


def test_a_holder_that_lives_or_that_nobody_knows_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: pytest.fail("waits for a holder that lives"))
    path = tmp_path / "lock"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    try:
        assert private_files.take(first) is None
        assert private_files.take(second) == str(os.getpid())
        os.ftruncate(first, 0)
        assert private_files.take(second) == "unknown"
    finally:
        os.close(first)
        os.close(second)


@pytest.mark.process
def test_a_process_that_was_not_waited_for_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert private_files.is_gone(str(process.pid))
    assert private_files.is_gone(str(process.pid))
    assert not private_files.is_gone(str(os.getpid()))
