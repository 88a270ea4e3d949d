"""A fault of the machine that the daemon runs on: it lacks time."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon.processes.own import OPEN
from tests.e2e.harness import running, scripted
from tests.waiting import eventually

STARVED_SERVERS = 10
"""They start on a machine whose processors have all been taken twice over."""


@contextmanager
def starved() -> Iterator[None]:
    """Two busy loops for each processor."""
    count = 2 * (os.cpu_count() or 1)
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def test_on_a_starved_machine_nobody_is_taken_for_dead(sockets: Path) -> None:
    record = sockets / "record"
    entry = {**scripted(record=str(record)), "timeouts": {"pingInterval": 0.3}}
    config = {"mcpServers": {f"s{number}": entry for number in range(STARVED_SERVERS)}}
    with running(config, {OPEN: "1"}) as daemon, starved():
        daemon.ready()
        eventually(lambda: record.read_text().count('"ping"') >= 3 * STARVED_SERVERS, daemon.said)
        servers = daemon.status()["servers"].values()
        assert {(server["state"], server["restarts"]) for server in servers} == {("ready", 0)}
