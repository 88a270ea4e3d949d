"""A small service manager: keeps one daemon running, as systemd would.

It holds the listening sockets, passes them to the daemon, waits for READY=1 and WATCHDOG=1, and starts the next
daemon after one has ended. Unlike systemd, it cannot end children by their control group.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bench.reliability.stage import LOOK_SECONDS, Line, when
from bench.running import Daemon
from daemon.cli import control
from tests.e2e.harness import ROOT, left_behind, own_directory
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Mapping

RESTART_SECONDS = 0.1
"""RestartSec of the shipped units."""

WATCHDOG_SECONDS = 2.0
"""WatchdogSec; the shipped units have 30 s, which makes the same promise with a longer wait."""

ABORT_SECONDS = 5.0
"""TimeoutAbortSec of the shipped units: a daemon that does not end after SIGABRT is killed."""

HIGH = 20
"""A descriptor number above those that the launcher fills."""

LAUNCH = """
import os, sys
os.dup2(20, 3)
os.dup2(21, 4)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[1], sys.argv[1:])
"""
"""The program that sd_listen_fds(3) requires: it has the daemon's pid, and the sockets from descriptor 3 on."""


class Keeper:
    """Keeps one daemon running, as systemd would."""

    def __init__(self, servers: Mapping[str, Any]) -> None:
        """Write the configuration and listen; `run` starts the daemon."""
        self.daemon = Daemon(own_directory(), {"mcpServers": dict(servers)})
        self.directory = self.daemon.directory
        self.front = self.daemon.socket
        self.front.parent.mkdir(mode=0o700)
        self.ready: list[float] = []
        """Times when daemons became ready, on `time.perf_counter`."""
        self.stuck = 0
        """The count of daemons that were ended because they were silent."""
        self._process: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()
        self._alive_at = 0.0
        self._thread = threading.Thread(target=self._run)
        self._open = ExitStack()

    @property
    def pid(self) -> int:
        """The daemon's pid."""
        assert self._process is not None
        return self._process.pid

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Make an operator's request."""
        return self.daemon.ask(method, **params)

    def client(self) -> Line:
        """A client on the daemon's socket."""
        return Line(self.front)

    def wait(self, daemons: int) -> float:
        """Wait until this many daemons have been ready. Returns when the last one was."""
        when(lambda: len(self.ready) >= daemons)
        return self.ready[daemons - 1]

    def settled(self) -> dict[str, int]:
        """Wait until all servers are ready. Returns their pids."""

        def look() -> bool:
            with suppress(control.DaemonUnreachable):
                return all(each["state"] == "ready" for each in self.ask("status")["servers"].values())
            return False

        when(look)
        return {name: each["pid"] for name, each in self.ask("status")["servers"].items()}

    def _start(self) -> None:
        words = self.daemon.command("run", "--config", str(self.daemon.config))
        environ = {
            **self.daemon.environ,
            "LISTEN_FDS": "2",
            "LISTEN_FDNAMES": "front:control",
            "NOTIFY_SOCKET": str(self.directory / "notify"),
            "WATCHDOG_USEC": f"{WATCHDOG_SECONDS * 1e6:.0f}",
        }
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", LAUNCH, *words],
                cwd=ROOT,
                env=environ,
                stderr=log,
                pass_fds=(HIGH, HIGH + 1),
            )
        self._alive_at = time.perf_counter() + WAIT

    def _run(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.bind(str(self.directory / "notify"))
            channel.settimeout(LOOK_SECONDS)
            self._start()
            while not self._over.is_set():
                with suppress(TimeoutError):
                    self._hear(channel.recv(4096))
                assert self._process is not None
                if time.perf_counter() - self._alive_at > WATCHDOG_SECONDS:
                    self._abort()
                if self._process.poll() is not None:
                    self._over.wait(RESTART_SECONDS)
                    if not self._over.is_set():
                        self._start()

    def _hear(self, said: bytes) -> None:
        if b"READY=1" in said:
            self.ready.append(time.perf_counter())
        if b"READY=1" in said or b"WATCHDOG=1" in said:
            self._alive_at = time.perf_counter()

    def _abort(self) -> None:
        """Abort as systemd does: SIGABRT, and SIGCONT so that a stopped daemon receives it."""
        assert self._process is not None
        self.stuck += 1
        for number in (signal.SIGABRT, signal.SIGCONT):
            self._process.send_signal(number)
        try:
            self._process.wait(ABORT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(WAIT)

    def __enter__(self) -> Self:
        for number, path in enumerate((self.front, self.front.with_name("control.sock"))):
            listener = self._open.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen(1024)
            self._open.callback(os.close, _raised(listener.fileno(), HIGH + number))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(WAIT)
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(WAIT)
            finally:
                self._process.kill()
        self._open.close()
        for pid in _pids(self.directory):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)


def _raised(fd: int, to: int) -> int:
    found = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, to)
    assert found == to, "somebody else has that descriptor"
    return found


def _pids(directory: Path) -> list[int]:
    """Pids of a keeper's remaining processes; `left_behind` only names them."""
    if not left_behind(directory):
        return []
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid() and str(directory) in _words(entry)
    ]


def _words(entry: Path) -> str:
    with suppress(OSError):
        return (entry / "cmdline").read_bytes().decode(errors="replace")
    return ""
