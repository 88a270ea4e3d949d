"""What the kernel tells of processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.processes import proc
from tests.unit.processes.scripts import told_by

if TYPE_CHECKING:
    import pytest

NOBODY = 1 << 22
"""Above the largest number that a process can have (proc(5), pid_max)."""


def test_a_process_is_known_by_its_parent_state_and_start() -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        found, own = proc.read(child.pid), proc.read(os.getpid())
        assert found is not None
        assert own is not None
        assert (found.pid, found.parent, own.parent) == (child.pid, os.getpid(), os.getppid())
        assert found.started >= own.started > 0
        assert not found.is_dead
        assert child.pid in proc.own_children()
        assert child.pid in proc.numbers()
    finally:
        child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    zombie = proc.read(child.pid)
    assert zombie is not None
    assert zombie.is_dead
    child.wait()


def test_a_name_like_the_rest_of_the_line_misleads_nobody() -> None:
    script = """
open("/proc/self/comm", "w").write("a) Z 1 (b")
tell([proc.read(os.getpid()).parent == os.getppid(), proc.read(os.getpid()).state])
"""
    assert told_by(script) == [True, "R"]


def test_of_a_child_that_is_hidden_wait_says_whether_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "read", lambda _pid: None)
    with subprocess.Popen(["sleep", "600"]) as child:
        alive = proc.read_child(child.pid)
        assert alive == (child.pid, os.getpid(), "?", 0, 0)
        assert not alive.is_dead
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        dead = proc.read_child(child.pid)
        assert dead is not None
        assert dead.is_dead
    assert proc.read_child(child.pid) is None


def test_whom_a_signal_may_be_sent_to() -> None:
    assert proc.may_signal(os.getpid())
    assert proc.may_signal(1) is (os.getuid() in {0, Path("/proc/1").stat().st_uid})
    assert not proc.may_signal(NOBODY)
