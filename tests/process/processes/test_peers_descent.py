"""Whether a process stems from us."""

from __future__ import annotations

import os

import pytest

from daemon.processes import peers
from tests.process.processes.test_proc_table import NOBODY
from tests.unit.processes.scripts import told_by

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
    assert "stands more than 64 processes deep" in told_by(DEEP + script)


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


@pytest.mark.parametrize(
    ("armed", "limit", "found"),
    [
        (True, "marks.HIGHEST", "is hidden, and it may stem from us"),
        (True, "0", "is hidden, and it may stem from us"),
        (True, "-1", None),
        (False, "-1", "is hidden, and it may stem from us"),
    ],
)
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
