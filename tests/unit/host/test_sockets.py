"""Binding: private, over a stale file, never over a living daemon."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemon.errors import DaemonRunning
from daemon.host.sockets import bind, unbind

ROOT = Path(__file__).parent.parent.parent

HOLDER = """
import sys
from pathlib import Path
from daemon.host.sockets import bind
listener = bind(Path(sys.argv[1]))
print("bound", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_daemon(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A second process that serves `path`."""
    command = [sys.executable, "-W", "ignore", "-c", HOLDER, str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "bound\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def path(sockets: Path) -> Path:
    return sockets / "run" / "mcpd.sock"


@contextmanager
def bound(path: Path) -> Iterator[socket.socket]:
    listener = bind(path)
    try:
        yield listener
    finally:
        unbind(listener, path)


def names_in(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir()]


def is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def test_socket_and_directory_are_ours_alone_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        with bound(path) as listener:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            assert stat.S_IMODE(path.with_name("mcpd.sock.lock").stat().st_mode) == 0o600
            assert not listener.getblocking()
            assert not listener.get_inheritable()
            assert is_served(path)
    finally:
        assert os.umask(before) == 0, "the umask is as it was"


def test_unbinding_removes_a_socket_that_is_there_and_leaves_the_lock(path: Path) -> None:
    with bound(path):
        pass
    assert names_in(path.parent) == ["mcpd.sock.lock"]
    assert not is_served(path)
    gone = path.with_name("gone.sock")
    with bound(gone):
        gone.unlink()


@pytest.mark.process
def test_the_socket_of_a_killed_daemon_is_taken_over(path: Path) -> None:
    with another_daemon(path) as daemon:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait(60)
        assert path.exists()
        with bound(path):
            assert is_served(path)


@pytest.mark.process
def test_a_living_daemon_is_named_with_its_pid_and_left_alone(path: Path) -> None:
    with another_daemon(path) as daemon:
        with pytest.raises(DaemonRunning, match=rf"already running: pid {daemon.pid} serves {path}"):
            bind(path)
        assert is_served(path)


@pytest.mark.parametrize("backlog", [0, 5])
def test_another_program_on_the_socket_is_left_alone_even_if_its_backlog_is_full(
    path: Path, backlog: int
) -> None:
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as first:
        other.bind(str(path))
        other.listen(backlog)
        first.connect(str(path))
        with pytest.raises(DaemonRunning, match="served by another program"):
            bind(path)
        assert path.exists()


def test_a_daemon_that_is_about_to_be_gone_is_waited_for(path: Path) -> None:
    """Its lock is free already, its socket not yet."""
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dying:
        dying.bind(str(path))
        dying.listen()

        def die() -> None:
            # Gone once the newcomer has seen it alive.
            dying.accept()[0].close()
            dying.close()

        end = threading.Thread(target=die)
        end.start()
        bind(path).close()
        end.join()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o720])
def test_a_directory_in_which_others_can_write_is_refused(path: Path, mode: int) -> None:
    path.parent.mkdir()
    path.parent.chmod(mode)
    with pytest.raises(PermissionError, match=f"writable by others: chmod 700 {path.parent}"):
        bind(path)
    assert names_in(path.parent) == []


@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_a_directory_of_ours_or_a_sticky_one_is_left_with_the_mode_it_has(path: Path, mode: int) -> None:
    path.parent.mkdir()
    path.parent.chmod(mode)
    with bound(path):
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)]
    assert modes == [mode, 0o600]


def test_a_directory_of_somebody_else_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.mkdir(mode=0o700)
    os.chown(path.parent, -1 if os.getuid() else 4711, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    with pytest.raises(PermissionError, match=r"belongs to uid \d+, not to this user"):
        bind(path)
    assert names_in(path.parent) == []


def test_a_path_that_is_too_long_is_refused_in_words(sockets: Path) -> None:
    """The kernel takes 107 bytes (unix(7)); deep home directories and test directories exceed them."""
    path = sockets / ("d" * 120) / "mcpd.sock"
    with pytest.raises(OSError, match="cannot bind") as refused:
        bind(path)
    assert "None" not in str(refused.value)
    assert "too long" in str(refused.value)


def test_a_file_in_the_way_of_the_directory_is_refused(path: Path) -> None:
    path.parent.write_text("")
    with pytest.raises(OSError, match=str(path.parent)):
        bind(path)
