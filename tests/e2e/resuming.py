"""Clients behind `mcpd connect` whose daemon is killed between what they were shown and what they call."""

from __future__ import annotations

import json
import socket
import subprocess
from typing import TYPE_CHECKING, Any

from tests.e2e.changing import CATALOG, SURFACES, Guest
from tests.e2e.harness import ROOT, Daemon, scripted
from tests.waiting import WAIT

if TYPE_CHECKING:
    import signal
    from pathlib import Path

Json = dict[str, Any]

PROFILES = CATALOG["profiles"]


class Way:
    """The way to a daemon, which a test opens: a new daemon is found when it is ready, on any machine."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.path = daemon.directory / "way"
        self.path.symlink_to(daemon.socket)

    def restart(self, number: signal.Signals) -> None:
        """End the daemon, start another, and let it be found when its servers are ready."""
        self.close(number)
        self.open()

    def close(self, number: signal.Signals) -> None:
        """End the daemon."""
        self.path.unlink()
        self.daemon.stop(number)

    def open(self) -> None:
        """Start another, and let it be found when its servers are ready."""
        self.daemon.start()
        self.daemon.ready()
        self.path.symlink_to(self.daemon.socket)


class Bridged(Guest):
    """A client of one surface, behind a bridge."""

    def __init__(self, way: Way, surface: str, *, key: str | None = None, look: bool = True) -> None:
        self._way = way
        self._options = ["--profile", surface, *(["--session", key] if key else [])]
        super().__init__(way.daemon, surface, look=look)

    def reach(self, hello: Json) -> None:
        """Start the bridge, which says the hello itself."""
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(WAIT)
        daemon = self._way.daemon
        with theirs, daemon.log.open("ab") as log:
            self.process = subprocess.Popen(
                daemon.command("connect", "--socket", str(self._way.path), *self._options),
                cwd=ROOT,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=log,
            )
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        super().close()
        assert self.process.wait(WAIT) == 0


class Party:
    """A server of two that may have a tool of the same name: `transfer`, from one of its runs on."""

    def __init__(self, directory: Path, name: str, *, since: int) -> None:
        self.name = name
        self._record = directory / f"{name}.record"
        own = [{"name": f"of_{name}", "inputSchema": {"type": "object"}}]
        both = [*own, {"name": "transfer", "description": f"{name}'s", "inputSchema": {"type": "object"}}]
        runs = [{"tools": own}] * (since - 1) + [{"tools": both}]
        self.entry = scripted(count=str(directory / f"{name}.count"), runs=runs, record=str(self._record))

    def called(self) -> int:
        """How often its `transfer` was called."""
        lines = self._record.read_text().splitlines() if self._record.exists() else []
        messages = [event["message"] for line in lines if (event := json.loads(line))["event"] == "message"]
        calls = [each["params"]["name"] for each in messages if each.get("method") == "tools/call"]
        return calls.count("transfer")


__all__ = ["PROFILES", "SURFACES", "Bridged", "Party", "Way"]
