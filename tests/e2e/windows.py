"""An agent's window on real servers: behind `mcpd connect`, or directly at a server process."""

import contextlib
import json
import os
import queue
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.e2e.harness import ROOT, Daemon, RawClient, Spawned
from tests.waiting import WAIT

Json = dict[str, Any]


class Window(Spawned):
    """A client of a child process that answers the server's requests; its directory is its root."""

    def __init__(self, command: list[str], directory: Path, environ: Mapping[str, str], log: Path) -> None:
        self.directory = directory
        super().__init__(command, log, cwd=directory, env=environ)
        self._is_bridged = "connect" in command
        self._closing = False
        self._inbox: queue.Queue[Json | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    def bridged(cls, daemon: Daemon, directory: Path, *options: str) -> Self:
        """A window whose bridge was started in its directory."""
        command = daemon.command("connect", "--socket", str(daemon.socket), *options)
        # The test itself brings back a daemon that it has killed.
        environ = {**daemon.environ, "PYTHONPATH": str(ROOT), "MCPD_NO_START": "1"}
        return cls(command, directory, environ, daemon.log)

    @classmethod
    def direct(cls, entry: Json, directory: Path, log: Path) -> Self:
        """A window with a separate server process."""
        environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **entry.get("env", {})}
        return cls([entry["command"], *entry.get("args", [])], directory, environ, log)

    def begin(self, protocol: str = "2025-11-25") -> Json:
        """Make the handshake; returns the answer."""
        capabilities = {"roots": {"listChanged": True}}
        info = {"name": self.directory.name, "version": "1"}
        return self.greet(protocolVersion=protocol, capabilities=capabilities, clientInfo=info)

    def receive(self) -> Json:
        """The next message that is not a request."""
        message = self._inbox.get(timeout=WAIT)
        assert message is not None, "the daemon closed the connection"
        return message

    def _read(self) -> None:
        """Answer requests at once, as agents do, even while no request of ours is in flight."""
        for line in self._file:
            message = json.loads(line)
            if "id" not in message or "method" not in message:
                self._inbox.put(message)
            elif not self._closing:
                answer = {"jsonrpc": "2.0", "id": message["id"], **self._answered(message["method"])}
                with contextlib.suppress(BrokenPipeError):
                    self.send(json.dumps(answer).encode())
        self._inbox.put(None)

    def _answered(self, method: str) -> Json:
        if method == "roots/list":
            return {"result": {"roots": [{"uri": self.directory.as_uri(), "name": self.directory.name}]}}
        return {"error": {"code": -32601, "message": f"no {method} here"}}

    def text(self, tool: str, /, **arguments: Any) -> str:
        """The text of a tool's result."""
        return " ".join(each.get("text", "") for each in self.call(tool, arguments)["content"])

    def close(self) -> None:
        self._closing = True
        self._socket.shutdown(socket.SHUT_WR)
        if not self._is_bridged:
            # Not all of them end with their client.
            self.process.terminate()
        status = self.process.wait(WAIT)
        self._reader.join(WAIT)
        RawClient.close(self)
        assert status == 0 or not self._is_bridged
