"""What stops a daemon: systemd its own, a signal any other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from daemon.setup.running import starting
from daemon.setup.running.starting import NotStopped, end, stop
from tests.process.setup.systemd import RUNS, FakeSystemd
from tests.unit.cli.daemons import listen
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

STUBBORN = "import signal, sys; signal.signal(15, signal.SIG_IGN); print(flush=True); sys.stdin.read()"


def test_systemd_stops_its_units_with_all_that_would_start_them(sockets: Path) -> None:
    systemd = FakeSystemd(sockets)
    systemd.says(RUNS)
    assert stop(systemd.environ, sockets / "control.sock", PATIENCE) == 0
    systemd.says({**RUNS, "MainPID": str(os.getpid())})
    with listen(sockets / "control.sock"):
        assert stop(systemd.environ, sockets / "control.sock", PATIENCE) == 0
    assert systemd.told() == ["--user stop mcpd.socket mcpd-http.socket mcpd.service"] * 2


def test_a_listener_that_is_not_trusted_is_no_daemon_that_stopped(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "distrust", lambda _link, path: f"uid 4711 listens on {path}")
    with listen(sockets / "control.sock"), pytest.raises(NotStopped, match="uid 4711 listens on"):
        stop({"PATH": ""}, sockets / "control.sock", PATIENCE)


def test_one_that_does_not_end_is_said_with_what_ends_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(NotStopped, match=f"kill -9 {process.pid}"):
            end(process.pid, 0.01)
        process.send_signal(signal.SIGKILL)
