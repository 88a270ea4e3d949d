"""What /proc tells of real sockets, locks and processes."""

import os
import socket
from pathlib import Path

import pytest

from daemon.processes import proc
from daemon.state.sqlite import hold
from tests.unit.checks.scenes import as_somebody_else, listening, process

GONE = 4_194_304 + 1
"""No process has this number: it is over the largest that Linux gives (proc(5), pid_max)."""


def test_a_socket_listens_while_somebody_listens(sockets: Path) -> None:
    path = sockets / "s"
    assert proc.listens(path) is False
    with listening(path):
        assert proc.listens(path) is True
    assert path.exists()
    assert proc.listens(path) is False


def test_a_socket_that_is_only_bound_does_not_listen(sockets: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(sockets / "s"))
        assert proc.listens(sockets / "s") is False


def test_a_lock_has_a_holder_while_it_is_held(sockets: Path) -> None:
    state = sockets / "state.db"
    lock = sockets / "state.db.lock"
    assert proc.lock_holder(lock) is None
    with hold(state):
        assert proc.lock_holder(lock) == os.getpid()
    assert lock.read_text() == f"{os.getpid()}\n"
    assert proc.lock_holder(lock) is None


def test_looking_at_a_lock_does_not_take_it(sockets: Path) -> None:
    (sockets / "state.db.lock").write_text(f"{os.getpid()}\n")
    assert proc.lock_holder(sockets / "state.db.lock") is None
    os.mkfifo(sockets / "pipe")
    assert proc.lock_holder(sockets / "pipe") is None
    with hold(sockets / "state.db"):
        pass


@pytest.mark.parametrize("content", ["", "x\n", "12 34\n"])
def test_a_lock_without_a_number_has_no_holder_that_is_known(sockets: Path, content: str) -> None:
    with hold(sockets / "state.db"):
        (sockets / "state.db.lock").write_text(content)
        assert proc.lock_holder(sockets / "state.db.lock") is None


@pytest.mark.process
def test_a_process_is_known_by_its_environment_directory_words_and_user(sockets: Path) -> None:
    with process(sockets, A="1=2", B="") as pid:
        assert proc.environment(pid) == {"A": "1=2", "B": ""}
        assert proc.directory(pid) == sockets
        assert proc.command_line(pid)[3:5] == ["mcpd", "run"]
        assert proc.user(pid) == os.geteuid()


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    found = (proc.environment(GONE), proc.directory(GONE), proc.user(GONE), proc.open_files(GONE))
    assert found == (None, None, None, None)
    assert proc.command_line(GONE) == [""]


def test_the_limit_of_open_files_is_read() -> None:
    soft, hard = proc.open_files() or (0, 0)
    assert 0 < soft <= hard
    assert proc.open_files(os.getpid()) == (soft, hard)


def test_what_one_may_do_is_what_the_kernel_would_allow(sockets: Path) -> None:
    closed = sockets / "closed"
    closed.mkdir(mode=0o755)
    sockets.chmod(0o755)
    closed.chmod(0o555)
    with as_somebody_else():
        assert not proc.may(closed, os.W_OK)
        assert proc.may(closed, os.R_OK | os.X_OK)
    closed.chmod(0o755)
    assert proc.may(closed, os.W_OK)
