"""What the kernel tells of processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.processes import table
from tests.unit.processes.scripts import told_by

if TYPE_CHECKING:
    import pytest

NOBODY = 1 << 22
"""Above the largest number that a process can have (proc(5), pid_max)."""


def test_a_process_is_known_by_its_parent_state_and_start() -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        found, own = table.read(child.pid), table.read(os.getpid())
        assert found is not None
        assert own is not None
        assert (found.pid, found.parent, own.parent) == (child.pid, os.getpid(), os.getppid())
        assert found.started >= own.started > 0
        assert not found.is_dead
        assert child.pid in table.own_children()
        assert child.pid in table.numbers()
    finally:
        child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    zombie = table.read(child.pid)
    assert zombie is not None
    assert zombie.is_dead
    child.wait()


def test_a_name_like_the_rest_of_the_line_misleads_nobody() -> None:
    script = """
open("/proc/self/comm", "w").write("a) Z 1 (b")
tell([table.read(os.getpid()).parent == os.getppid(), table.read(os.getpid()).state])
"""
    assert told_by(script) == [True, "R"]


def test_what_is_not_there() -> None:
    assert table.read(NOBODY) is None
    assert table.limit(NOBODY) is None
    assert not table.exists(NOBODY)
    assert table.resident(NOBODY) == 0


def test_of_a_child_that_is_hidden_wait_says_whether_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "read", lambda _pid: None)
    with subprocess.Popen(["sleep", "600"]) as child:
        alive = table.read_child(child.pid)
        assert alive == (child.pid, os.getpid(), "?", 0, 0)
        assert not alive.is_dead
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        dead = table.read_child(child.pid)
        assert dead is not None
        assert dead.is_dead
    assert table.read_child(child.pid) is None


def test_whom_a_signal_may_be_sent_to() -> None:
    assert table.may_signal(os.getpid())
    assert table.may_signal(1) is (os.getuid() in {0, Path("/proc/1").stat().st_uid})
    assert not table.may_signal(NOBODY)


def test_what_is_there() -> None:
    assert table.exists(1)
    assert table.exists(os.getpid())
    assert table.resident(os.getpid()) > table.PAGE
    assert os.getpid() not in table.numbers()
