"""The real daemon as a child, with echo servers behind it and nothing of the user's own around it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.calls.wires import Unmeasurable, Wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]

ECHO = [sys.executable, "-I", "-S", str(Path(__file__).with_name("echo_server.py"))]
"""The start of an echo server's command; its number and its tools come next."""

START = 120.0
"""Seconds until all servers have listed: an interpreter each, a hundred of them on a small machine."""

STOP = 15.0
"""Seconds for the end of a daemon; it gives its own children 5."""

POLL = 0.2
"""Seconds between two looks at the status."""

LOG_LINES = 20
"""Of the log, shown when something went wrong: a traceback in short."""


def servers(counts: list[int]) -> dict[str, Any]:
    """`mcpServers` with an echo server for each number of tools."""
    return {
        f"s{number}": {"command": ECHO[0], "args": [*ECHO[1:], str(number), str(count)]}
        for number, count in enumerate(counts)
    }


def mcpd(*words: str) -> list[str]:
    """The command line of mcpd, as users have it."""
    script = Path(sys.executable).with_name("mcpd")
    return [str(script), *words] if script.exists() else [sys.executable, "-m", "daemon", *words]


class Daemon:
    """`mcpd run` in a directory of its own."""

    def __init__(self, directory: Path, config: Mapping[str, Any], extra: Mapping[str, str]) -> None:
        """Write the configuration; `start` does the rest.

        Args:
            directory: exists; short, because a unix socket's path has at most 108 bytes.
            config: `mcpServers` and what else it takes.
            extra: for the environment.
        """
        self.directory = directory
        self.socket = str(directory / "mcpd" / "mcpd.sock")
        self.control = str(directory / "mcpd" / "control.sock")
        self.config = dict(config)
        self.environ = {
            **{key: os.environ[key] for key in ("HOME", "PATH", "LANG") if key in os.environ},
            "XDG_RUNTIME_DIR": str(directory),
            "XDG_STATE_HOME": str(directory / "state"),
            "PYTHONPATH": str(ROOT),
            # Its memory is read from outside.
            "MCPD_DUMPABLE": "1",
            **extra,
        }
        self._child: subprocess.Popen[bytes] | None = None
        self.write()

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._child is not None
        return self._child.pid

    def write(self) -> None:
        """Write the configuration as it is now."""
        path = self.directory / "mcpd.json"
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(self.config))
        fresh.replace(path)

    def start(self) -> None:
        """Start it, and wait for nothing."""
        command = [*mcpd("run"), "--config", str(self.directory / "mcpd.json")]
        with (self.directory / "log").open("ab") as log:
            self._child = subprocess.Popen(command, cwd=self.directory, env=self.environ, stderr=log)

    def wait_listed(self) -> None:
        """Wait until all servers are up and have listed.

        Raises:
            Unmeasurable: it ended, or they have not within `START` seconds.
        """
        assert self._child is not None
        until = time.monotonic() + START
        missing: list[str] = list(self.config["mcpServers"])
        while time.monotonic() < until and self._child.poll() is None:
            missing = self._missing()
            if not missing:
                return
            time.sleep(POLL)
        raise Unmeasurable(f"no tools from {', '.join(missing[:5])}")

    def _missing(self) -> list[str]:
        try:
            known = self.ask("status")["servers"]
        except OSError:
            known = {}
        ready = [name for name, each in known.items() if each["state"] == "ready" and each["tools"]]
        return [name for name in self.config["mcpServers"] if name not in ready]

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """Ask over the control socket, as the operators' commands do.

        Raises:
            OSError: nobody listens there.
            Unmeasurable: the answer is an error.
        """
        wire = over_socket(self.control)
        try:
            return wire.ask(method, params)
        finally:
            wire.close()

    def connect(self, surface: str) -> Wire:
        """A client of a surface, greeted."""
        wire = over_socket(self.socket)
        wire.greet({"surface": surface})
        return wire

    def stop(self) -> None:
        """End it, whatever state it is in."""
        if self._child is not None:
            end(self._child)
            self._child = None

    def said(self) -> str:
        """The last lines of its log, without those of calls: there is one for each."""
        lines = (self.directory / "log").read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if "] call " not in line][-LOG_LINES:])


@contextmanager
def prepared(config: Mapping[str, Any], extra: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """A daemon that is not started; in the end it is stopped and its directory is gone.

    Raises:
        Unmeasurable: from within, with the end of its log.
    """
    directory = Path(tempfile.mkdtemp(prefix="mcpd-"))
    daemon = Daemon(directory, config, extra or {})
    try:
        yield daemon
    except (Unmeasurable, OSError) as error:
        said = daemon.said() if (directory / "log").exists() else ""
        raise Unmeasurable(f"{error}. The daemon's log ends with:\n{said}") from None
    finally:
        daemon.stop()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def running(config: Mapping[str, Any], extra: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """The same, started, its servers up."""
    with prepared(config, extra) as daemon:
        daemon.start()
        daemon.wait_listed()
        yield daemon


def over_socket(path: str) -> Wire:
    """A connection to a unix socket."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(path)
    except OSError:
        link.close()
        raise
    return Wire(link.fileno(), link.fileno(), link.close)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a child that was started here."""
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(STOP)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(STOP)
