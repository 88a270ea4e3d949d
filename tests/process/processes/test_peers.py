"""Who may come in: by user, by descent, and as long as there is room."""

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from loguru import logger

from daemon.processes import marks, peers, proc
from daemon.processes.peers import PEERCRED, SAY_SECONDS, PeerCredentials, Peers, Shares, own_and, shares
from tests.process.processes.test_own import NOBODY
from tests.unit.cases import cases
from tests.unit.processes.scripts import told_by

US = os.getuid()
STRANGER = 4711


class Connection:
    """Somebody at the other end, as the kernel tells; nobody whom it knows of."""

    def __init__(self, pid: int, uid: int = US) -> None:
        self._cred = PEERCRED.pack(pid, uid, uid)

    def getsockopt(self, level: int, option: int, size: int = 0) -> bytes:
        assert (level, option, size) == (socket.SOL_SOCKET, socket.SO_PEERCRED, PEERCRED.size)
        return self._cred


class Door(Peers):
    """A door of a few places, with a clock of the test's; those who come stand outside of the pid namespace."""

    def __init__(self, places: Shares) -> None:
        self.now = 0.0
        super().__init__("clients", places, uids={US, 0, STRANGER}, clock=lambda: self.now)

    def knock(self, uid: int = US) -> PeerCredentials | None:
        return self.admit(Connection(0, uid))  # type: ignore[arg-type]


@pytest.fixture
def log() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lines.append, format="{level} {message}")
    yield lines
    logger.remove(sink)


@contextmanager
def connected(script: str, place: Path) -> Iterator[tuple[int, socket.socket]]:
    """A script in a process of its own that connects `link`; its pid and our end."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "s"))
        listener.listen()
        begin = "import os, socket, sys, time\nlink = socket.socket(socket.AF_UNIX)\n"
        words = [sys.executable, "-c", begin + script, str(place / "s")]
        with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
            ours, _ = listener.accept()
            with ours:
                yield process.pid, ours
            process.communicate()


CONNECT = "link.connect(sys.argv[1])\nsys.stdin.read()"
BELOW = "if os.fork() == 0:\n    link.connect(sys.argv[1])\n    link.recv(1)\n    os._exit(0)\nos.wait()"
GONE = "if os.fork() == 0:\n    link.connect(sys.argv[1])\n    os._exit(0)\nos.wait()"


def test_who_may_connect_is_us_root_and_who_the_configuration_names() -> None:
    assert own_and(()) == {os.getuid(), 0}
    assert own_and((4711,)) == {os.getuid(), 0, 4711}


@pytest.mark.parametrize("script", [CONNECT, BELOW], ids=["a server", "what it started"])
def test_a_servers_process_is_refused_unless_it_is_named(script: str, tmp_path: Path, log: list[str]) -> None:
    with connected(script, tmp_path) as (pid, link):
        mark, other = marks.new(), marks.new()
        try:
            door = Peers("operators", shares(32), uids=own_and(()))
            # Until its pid is known, nobody can say whether it is named.
            resource.prlimit(pid, proc.RLIMIT_LOCKS, (mark, resource.RLIM_INFINITY))
            with pytest.raises(BlockingIOError):
                door.admit(link)
            marks.started(mark, pid)
            # Once it is known, a mark that it chose itself lets nobody wait for it.
            resource.prlimit(pid, proc.RLIMIT_LOCKS, (other, resource.RLIM_INFINITY))
            assert door.admit(link) is None
            assert door.report()["refused"] == {"server": 1}
            assert door.open == 0
            assert f"it descends from pid {pid}" in log[0]
            assert Peers("clients", shares(32), uids=own_and(()), servers=lambda: {pid}).admit(link)
        finally:
            for each in (mark, other):
                marks.forget(each)


def test_a_child_of_ours_that_is_no_server_may_come_in(tmp_path: Path) -> None:
    """As `agent & exec mcpd run`: it was there before us."""
    with connected(CONNECT, tmp_path) as (pid, link):
        assert Peers("clients", shares(32), uids=own_and(())).admit(link) == PeerCredentials(pid, US)


def test_whoever_is_gone_cannot_be_vouched_for(tmp_path: Path) -> None:
    with connected(GONE, tmp_path) as (_, link):
        assert link.recv(1) == b""
        door = Peers("clients", shares(32), uids=own_and(()))
        # It is reaped a moment after it has hung up.
        while door.admit(link) is not None:
            pass
        assert door.report()["refused"] == {"gone": 1}


def test_who_has_a_place_gets_none_of_the_last_ones(tmp_path: Path) -> None:
    door = Door(Shares(5, 5, 2))
    assert [door.knock() for _ in range(4)] == [PeerCredentials(0, US)] * 3 + [None]
    with connected(CONNECT, tmp_path) as (pid, link):
        assert door.admit(link) == PeerCredentials(pid, US)
        assert door.admit(link) is None, "it has one now"
    assert door.report() == {"open": 4, "places": 5, "refused": {"kept_places": 2}}
    for _ in range(2):
        door.leave(PeerCredentials(0, US))
    assert door.knock() == PeerCredentials(0, US)


def test_another_user_has_his_share_and_none_of_the_last_places() -> None:
    door = Door(Shares(20, 6, 2))
    assert [door.knock(STRANGER) is not None for _ in range(6)] == [True] * 4 + [False] * 2
    assert door.report()["refused"] == {"user_places": 2}
    assert all(door.knock() for _ in range(14))
    assert door.knock() is None


def test_the_same_refusal_is_told_once_a_minute_with_the_number_of_the_others(log: list[str]) -> None:
    door = Door(Shares(10, 10, 0))
    for _ in range(5):
        door.knock(STRANGER + 1)
    assert len(log) == 1
    door.now += SAY_SECONDS
    door.knock(STRANGER + 1)
    assert len(log) == 2
    assert "(and 4 times since this was last logged)" in log[1]
    door.log_full()
    assert "all 10 connections are taken" in log[2]


@pytest.mark.parametrize(
    ("places", "found"), [(1024, (1024, 512, 16)), (32, (32, 16, 8)), (2, (2, 1, 0)), (1, (1, 1, 0))]
)
def test_places_are_shared_out(places: int, found: tuple[int, int, int]) -> None:
    assert shares(places) == Shares(*found)


# --- whether a process stems from us -------------------------------------------------------------------------


DEEP = """
from daemon.processes import peers
def deep(generations):
    # A line of so many processes below us; the pid of the last one.
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        os.setpgid(0, 0)
        for _ in range(generations - 1):
            if os.fork():
                time.sleep(600)
        os.write(writing, b"%d" % os.getpid())
        time.sleep(600)
    return first, int(os.read(reading, 16))
"""


def test_neither_we_nor_those_above_us_stem_from_us() -> None:
    assert [peers.child_above(pid) for pid in (os.getpid(), os.getppid(), 1)] == [None] * 3


def test_what_stands_below_a_child_stems_from_it() -> None:
    script = """
first, last = deep(peers.GENERATIONS)
tell(peers.child_above(last) == first)
os.killpg(first, signal.SIGKILL)
"""
    assert told_by(DEEP + script)


def test_the_way_up_has_a_bound() -> None:
    script = """
first, last = deep(peers.GENERATIONS + 1)
try:
    peers.child_above(last)
except peers.Untraceable as error:
    tell(str(error))
os.killpg(first, signal.SIGKILL)
"""
    assert "has more than 64 ancestors" in told_by(DEEP + script)


def test_of_who_is_gone_nobody_can_say() -> None:
    with pytest.raises(peers.Untraceable, match="is gone"):
        peers.child_above(NOBODY)


HIDE = """
from daemon.processes import peers
read, gone = proc.read, set()
proc.read = lambda pid: None if pid in gone else read(pid)
def above(pid):
    try:
        return peers.child_above(pid)
    except peers.Untraceable as error:
        return str(error)
"""
"""Some processes are as under hidepid; limits tell who stems from somebody else."""


@cases("armed", "limit", "found")
def test_below_one_that_is_hidden_what_is_inherited_decides(armed: bool, limit: str, found: str | None) -> None:
    script = f"""
if {armed}:
    marks.sweep_strays(others=False)
first, last = deep(3)
gone.add(read(last).parent)
resource.prlimit(last, proc.RLIMIT_LOCKS, ({limit}, {limit}))
tell(above(last))
os.killpg(first, signal.SIGKILL)
"""
    told = told_by(DEEP + HIDE + script)
    assert told is found is None or found in told


def test_a_child_that_is_hidden_is_known_all_the_same() -> None:
    script = """
first, last = deep(2)
gone.add(first)
tell([above(last) == first, above(first) == first])
os.killpg(first, signal.SIGKILL)
"""
    assert told_by(DEEP + HIDE + script) == [True, True]
