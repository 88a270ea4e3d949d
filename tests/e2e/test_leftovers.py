"""`kill -9` of the daemon: what it leaves is ended by the next one, and nobody else's is touched."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemon.processes import proc
from tests.e2e import harness
from tests.e2e.harness import Daemon, scripted
from tests.waiting import WAIT

running = partial(harness.running, forked=False)
"""A daemon that is run as users run it."""


def deaf(record: Path) -> dict[str, Any]:
    """A server that ends of nothing but SIGKILL, with a grandchild in a session of its own."""
    spawned = [{"kind": "setsid", "ignore_term": True}]
    return scripted(ignore=["eof", "term"], spawn=spawned, record=str(record))


def pids(record: Path) -> list[int]:
    """The server and its grandchild, the newest of each."""
    told = [json.loads(line) for line in record.read_text().splitlines()]
    newest = {each["event"]: each["pid"] for each in told if each["event"] in {"start", "spawned"}}
    assert len(newest) == 2
    return list(newest.values())


def alive(numbers: list[int]) -> list[int]:
    seen = [proc.read(pid) for pid in numbers]
    return [process.pid for process in seen if process is not None and not process.is_dead]


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process of the same user that is nobody's server."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n", WAIT)


def killed(daemon: Daemon) -> None:
    """Kill a daemon, with a server that is deaf; that stays."""
    daemon.ready("deaf")
    assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL


def test_the_next_daemon_ends_what_a_killed_one_has_left_and_nobody_else(tmp_path: Path, stranger: int) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    with (
        running({"mcpServers": {"deaf": deaf(other)}}) as living,
        running({"mcpServers": {"deaf": deaf(own)}}) as daemon,
    ):
        living.ready("deaf")
        killed(daemon)
        left = pids(own)
        assert alive(left) == left

        daemon.start()

        assert not alive(left)
        assert daemon.ready("deaf")["deaf"]["pid"] not in left
        said = f"): server deaf: pid {', '.join(map(str, sorted(left)))}"
        assert said in daemon.said()
        assert alive([stranger, *pids(other)]) == [stranger, *pids(other)]
    assert not alive(pids(own))


def test_the_doctor_finds_what_is_left_and_ends_it_when_told_to(tmp_path: Path) -> None:
    with running({"mcpServers": {"deaf": deaf(tmp_path / "own")}}) as daemon:
        killed(daemon)
        left = pids(tmp_path / "own")

        told = daemon.run("doctor", check=None)
        assert "left running by a killed daemon" in told
        assert all(f"pid {pid}" in told for pid in left)
        assert alive(left) == left

        told = daemon.run("doctor", "--end-leftovers", check=None)
        assert "Ended" in told
        assert not alive(left)
        assert "No killed daemon has left anything running." in daemon.run("doctor", check=None)
        daemon.start()


def test_instances_that_a_killed_daemon_has_left_are_ended_by_the_next(tmp_path: Path) -> None:
    record = tmp_path / "record"
    server = {**scripted(ignore=["eof", "term"], record=str(record)), "share": "session"}
    with running({"mcpServers": {"deaf": server}}) as daemon:
        with daemon.client() as one, daemon.client() as other:
            for client in (one, other):
                client.run("deaf", "echo")
            assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL
        told = [json.loads(line) for line in record.read_text().splitlines()]
        left = [each["pid"] for each in told if each["event"] == "start"]
        assert len(left) >= 2
        daemon.start()
        assert not alive(left)
