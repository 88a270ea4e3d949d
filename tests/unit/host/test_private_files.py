"""Private files, and the locks of a daemon's life, whose holder may be gone."""

import os
import stat
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
from daemon.host.private_files import locked, own_file, replace, safely
from daemon.host.sockets import bind
from daemon.state.sqlite import hold
from tests.waiting import WAIT


def place(path: Path, kind: str) -> None:
    """Put something that is no file where one is looked for."""
    if kind == "link":
        path.symlink_to(path.with_name("else"))
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY | os.O_APPEND])
def test_a_file_of_ours_is_a_file_and_nothing_else(tmp_path: Path, kind: str, flags: int) -> None:
    place(tmp_path / "file", kind)
    with pytest.raises(OSError, match="file is not a regular file: remove it"):
        own_file(tmp_path / "file", flags)
    assert not (tmp_path / "else").exists()


def test_a_file_is_replaced_as_a_whole_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o644)
    replace(path, b"after")
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - with what is hidden


def test_a_rest_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("somebody's")
    (tmp_path / ".file.new").symlink_to(tmp_path / "other")
    replace(tmp_path / "file", b"ours")
    assert [(tmp_path / each).read_text() for each in ("other", "file")] == ["somebody's", "ours"]


def test_a_lock_is_held_by_one_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with locked(path, 0.0), pytest.raises(TimeoutError), locked(path, 0.0):
        pass
    with locked(path, 0.0):
        assert not path.exists()


def test_links_and_pipes_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="symbolic links"):
        open(tmp_path / "link", "rb", opener=safely)  # noqa: SIM115 - it fails
    with open(tmp_path / "pipe", "rb", buffering=0, opener=safely) as pipe:
        assert pipe.read() == b""


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
        os.pwrite(first, b"the pid of an earlier one\n", 0)
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
