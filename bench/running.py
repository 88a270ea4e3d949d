"""The real daemon as a child in a directory of its own, and the smallest client that can speak to it."""

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
from typing import TYPE_CHECKING, Any, Self

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[1]

ANSWER = 30.0
"""Seconds for one answer: the longest the daemon waits for anything here is the list of a server."""

START = 120.0
"""Seconds until all upstreams have listed: an interpreter each, a hundred of them on a small machine."""

STOP = 15.0
"""Seconds for the end of the daemon; it gives its own children 5."""

LOG_LINES = 20
"""Of the log, shown when something went wrong: a traceback in short."""

POLL = 0.5
"""Seconds between two looks at the status; one look costs an interpreter."""


class Unmeasurable(Exception):
    """The daemon did not start, did not answer, or answered with an error."""


@attrs.frozen
class Answer:
    """One answer as it came."""

    line: bytes = attrs.field(repr=False)
    """The message on the wire, without its newline."""
    result: dict[str, Any]
    """Its result, decoded."""


class Client:
    """One connection: a JSON line out, a JSON line in."""

    def __init__(self, path: Path, hello: Mapping[str, object]) -> None:
        """Connect and say which profile or surface is wanted, as `mcpd connect` does."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self._last = 0
        self._send({"method": "mcpd/hello", "params": dict(hello)})

    def introduce(self) -> str:
        """The handshake. Returns the instructions."""
        params = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        answer = self.ask("initialize", params)
        self._send({"method": "notifications/initialized"})
        text: str = answer.result.get("instructions", "")
        return text

    def ask(self, method: str, params: Mapping[str, object]) -> Answer:
        """Send a request and wait for its answer, past notifications.

        Raises:
            Unmeasurable: it is a JSON-RPC error, or there is none in time.
        """
        self._last += 1
        self._send({"id": self._last, "method": method, "params": dict(params)})
        until = time.monotonic() + ANSWER
        while time.monotonic() < until:
            line = self._receive(method)
            message = json.loads(line)
            if message.get("id") == self._last:
                if "error" in message:
                    raise Unmeasurable(f"{method}: {message['error']}")
                return Answer(line.rstrip(b"\n"), message["result"])
        raise Unmeasurable(f"{method}: no answer in {ANSWER:g} s")

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()

    def _send(self, message: Mapping[str, object]) -> None:
        self._socket.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _receive(self, method: str) -> bytes:
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise Unmeasurable(f"{method}: no answer in {ANSWER:g} s") from None
        if not line:
            raise Unmeasurable(f"{method}: the daemon closed the connection")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Daemon:
    """`mcpd run`, with nothing of the user's own around it."""

    def __init__(self, directory: Path, config: Mapping[str, Any], checkout: Path = ROOT) -> None:
        """Write the configuration; `start` does the rest."""
        self._directory = directory
        self._config = directory / "mcpd.json"
        self._config.write_text(json.dumps(config))
        self._environ = {
            **{key: os.environ[key] for key in ("HOME", "PATH", "LANG") if key in os.environ},
            "XDG_RUNTIME_DIR": str(directory),
            "XDG_STATE_HOME": str(directory / "state"),
            "PYTHONPATH": str(checkout),
            # Its memory is read from outside.
            "MCPD_DUMPABLE": "1",
        }
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, expected: Mapping[str, int]) -> None:
        """Start it and wait until its servers have listed so many tools each.

        Raises:
            Unmeasurable: it ended, or they have not within `START` seconds.
        """
        child = self.begin()
        until = time.monotonic() + START
        missing = list(expected)
        while time.monotonic() < until and child.poll() is None:
            listed = self._listed()
            missing = [name for name, tools in expected.items() if listed.get(name) != tools]
            if not missing:
                return
            time.sleep(POLL)
        raise Unmeasurable(f"no tools from {', '.join(missing[:5])}")

    def begin(self) -> subprocess.Popen[bytes]:
        """Start it and wait for nothing."""
        with (self._directory / "log").open("wb") as log:
            command = [*self._mcpd("run"), "--config", str(self._config)]
            self._child = subprocess.Popen(command, cwd=self._directory, env=self._environ, stderr=log)
        return self._child

    def client(self, surface: str, **hello: object) -> Client:
        """A connection to a surface; `hello` is what else it wants."""
        return Client(self._directory / "mcpd" / "mcpd.sock", {"surface": surface, **hello})

    def stop(self) -> None:
        """End it, whatever state it is in."""
        if self._child is None or self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(STOP)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(STOP)

    def _mcpd(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "daemon", *words]

    def _listed(self) -> dict[str, int]:
        """How many tools each server has listed, usable or not; empty while the daemon cannot be asked."""
        try:
            done = subprocess.run(
                self._mcpd("status", "--json"),
                cwd=self._directory,
                env=self._environ,
                capture_output=True,
                timeout=ANSWER,
                check=False,
            )
            servers = json.loads(done.stdout)["servers"]
        except (ValueError, KeyError, subprocess.TimeoutExpired):
            return {}
        return {
            name: server["tools"] + len(server["quarantined"])
            for name, server in servers.items()
            if server["state"] == "ready"
        }

    def said(self) -> str:
        """The last lines of its log."""
        lines = (self._directory / "log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])


@contextmanager
def running(config: Mapping[str, Any], expected: Mapping[str, int]) -> Iterator[Daemon]:
    """A daemon whose servers have listed; in the end it is stopped and its directory is gone.

    Args:
        config: the configuration.
        expected: server to the number of tools that it is going to list.

    Raises:
        Unmeasurable: it does not come up.
    """
    directory = Path(tempfile.mkdtemp(prefix="mcpd-"))  # short: a unix socket's path has at most 108 bytes
    daemon = Daemon(directory, config)
    try:
        daemon.start(expected)
        yield daemon
    except Unmeasurable as error:
        raise Unmeasurable(f"{error}. The daemon's log ends with:\n{daemon.said()}") from None
    finally:
        daemon.stop()
        shutil.rmtree(directory, ignore_errors=True)
