"""The real daemon, run as users run it: `python -m daemon run`, in a private runtime directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
NODE = ROOT / ".cache" / "node" / "node_modules"
MCP1 = ROOT / ".cache" / "mcp1" / "bin" / "python"

WAIT = 30.0
"""Seconds that anything here may take: servers on node need a few on a busy machine."""


def program(name: str) -> str:
    """A console script of the environment that runs the tests."""
    return str(Path(sys.executable).with_name(name))


def node_server(package: str, *args: str) -> dict[str, Any]:
    """The `mcpServers` entry of a server installed from npm."""
    script = NODE / "@modelcontextprotocol" / package / "dist" / "index.js"
    return {"command": "node", "args": [str(script), *args]}


class Daemon:
    """A running daemon."""

    def __init__(
        self, directory: Path, config: Mapping[str, Any], environ: Mapping[str, str], code: Path = ROOT
    ) -> None:
        self.directory = directory
        self.code = code
        self.config = directory / "mcpd.json"
        self.config.write_text(json.dumps(config))
        self.socket = directory / "mcpd" / "mcpd.sock"
        self.environ = {
            **{key: os.environ[key] for key in ("HOME", "PATH", "USER", "LANG") if key in os.environ},
            "XDG_RUNTIME_DIR": str(directory),
            "XDG_STATE_HOME": str(directory / "state"),
            **environ,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.log = directory / "log"

    def command(self, *words: str) -> list[str]:
        """`mcpd WORDS`, with the interpreter that runs the tests."""
        return [sys.executable, "-m", "daemon", *words]

    def start(self) -> None:
        """Start it and wait for READY=1, as systemd would."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, self.log.open("ab") as log:
            address = self.directory / "notify"
            address.unlink(missing_ok=True)
            ready.bind(str(address))
            ready.settimeout(WAIT)
            environ = {**self.environ, "NOTIFY_SOCKET": str(address)}
            self.process = subprocess.Popen(
                self.command("run", "--config", str(self.config)), cwd=self.code, env=environ, stderr=log
            )
            assert b"READY=1" in ready.recv(4096), self.said()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal it and wait for the end; returns its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(WAIT)

    def run(self, *words: str, check: int | None = 0) -> str:
        """Run an operator's command; returns its stdout."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.code,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert check is None or done.returncode == check, (done.returncode, done.stdout, done.stderr)
        return done.stdout

    def status(self) -> dict[str, Any]:
        """`mcpd status --json`."""
        answer: dict[str, Any] = json.loads(self.run("status", "--json", check=None))
        return answer

    def client(self, **kwargs: Any) -> RawClient:
        """A bare JSON-RPC client on the socket."""
        return RawClient(self.socket, **kwargs)

    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text()


class RawClient:
    """One JSON line out, one in: for what well-behaved clients never do, and to see the bytes."""

    def __init__(self, path: Path, *, timeout: float = WAIT) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        self._socket.connect(str(path))
        self._file = self._socket.makefile("rb")
        self._last = 0

    def send(self, line: bytes) -> None:
        """Send raw bytes and a newline."""
        self._socket.sendall(line + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next message."""
        line = self._file.readline()
        assert line, "the daemon closed the connection"
        message: dict[str, Any] = json.loads(line)
        return message

    def closed(self) -> bool:
        """Whether the daemon hangs up now (waits for it)."""
        return self._file.readline() == b""

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and wait for its answer, past notifications."""
        self._last += 1
        request = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params or {}}
        self.send(json.dumps(request).encode())
        while True:
            message = self.receive()
            if message.get("id") == self._last:
                return message

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """`tools/call`; returns the result."""
        answer = self.ask("tools/call", {"name": name, "arguments": arguments})
        result: dict[str, Any] = answer["result"]
        return result

    def get(self, category: str, *names: str) -> dict[str, Any]:
        """`get-category-tools`; returns its structured content."""
        arguments: dict[str, Any] = {"category": category, **({"toolNames": list(names)} if names else {})}
        content: dict[str, Any] = self.call("get-category-tools", arguments)["structuredContent"]
        return content

    def run(self, category: str, name: str, **args: Any) -> dict[str, Any]:
        """`call-category-tool`; returns its result."""
        return self.call("call-category-tool", {"category": category, "name": name, "args": args})

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@contextmanager
def running(
    config: Mapping[str, Any], environ: Mapping[str, str] | None = None, *, code: Path = ROOT
) -> Iterator[Daemon]:
    """A daemon, started and in the end stopped; nothing of it may be left. `code` holds its package."""
    # Not pytest's tmp_path: the path of a unix socket has at most 108 bytes.
    directory = Path(tempfile.mkdtemp(prefix="mcpd-"))
    daemon = Daemon(directory, config, environ or {}, code)
    try:
        daemon.start()
        yield daemon
        if daemon.process is not None and daemon.process.poll() is None:
            assert daemon.stop() == 0, daemon.said()
        assert not daemon.socket.exists()
        assert not left_behind(directory), daemon.said()
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait(WAIT)
        shutil.rmtree(directory, ignore_errors=True)


def left_behind(directory: Path) -> list[str]:
    """Processes whose command line or working directory names a test's own directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
                where = str((entry / "cwd").readlink())
            except OSError:
                continue
            if str(directory).encode() in words or where.startswith(str(directory)):
                found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found
