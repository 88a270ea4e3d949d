"""`python -m bench.trace`: how much Python of ours one warm call runs, for each surface.

A real `mcpd run` is started with one stdio server, and one client calls one tool over the socket: first to warm
up, then a few times more while `sys.setprofile` counts what of `daemon/` is called in the daemon's main thread,
from reading the request to writing the answer. SIGUSR2 turns the counting on and off; a pipe says that it is
on, and what was counted. Of several counted calls the one with the fewest calls is taken, since a timer of the
daemon may fall into any of them.

    python -m bench.trace [--order SURFACE]

Columns: Python calls, files that they stand in, and how often the next one stands in another file than the one
before. `--order` prints a surface's files in the order in which they are entered.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ROOT = Path(__file__).parent.parent

SURFACES = ("category", "browse", "search", "load", "full")

WARM_CALLS = 5
"""Before one is counted: the first remembers its way, the second is the first to take it."""

COUNTED_CALLS = 15
"""Of which the quietest counts."""

PATIENCE = 60.0
"""Seconds for the daemon to come up, and for one answer."""

POLL = 0.05
"""Seconds between two tries to connect while the daemon comes up."""

_GENERATED = "<attrs generated methods daemon."
"""What attrs wrote for a class of ours counts as a call, and stands in no file."""

_SERVER = """
import json, sys
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")), flush=True)
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        say(id=m["id"], result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                "serverInfo": {"name": "echo", "version": "1"}})
    elif m.get("method") == "tools/list":
        say(id=m["id"], result={"tools": [{"name": "echo", "inputSchema": SCHEMA}]})
    elif m.get("method") == "tools/call":
        say(id=m["id"], result={"content": [{"type": "text", "text": m["params"]["arguments"]["text"]}]})
    elif "id" in m:
        say(id=m["id"], error={"code": -32601, "message": "no such method"})
"""


@attrs.frozen(kw_only=True)
class Trace:
    """What one call ran."""

    calls: int
    """Python calls of functions in daemon/."""
    order: tuple[str, ...]
    """Their files, a file again whenever another one was entered between."""

    @property
    def files(self) -> int:
        """Different files."""
        return len(set(self.order))

    @property
    def switches(self) -> int:
        """How often another file was entered."""
        return len(self.order) - 1


class _Counter:
    """Counts in the daemon's main thread, turned on and off by a signal, and tells in a pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._on = False
        self._calls = 0
        self._order: list[str] = []
        self._daemon = str(ROOT / "daemon") + os.sep

    def toggle(self, _number: int, _frame: FrameType | None) -> None:
        self._on = not self._on
        if self._on:
            self._calls, self._order = 0, []
            self._tell("on")
            sys.setprofile(self._count)
        else:
            sys.setprofile(None)
            self._tell({"calls": self._calls, "order": self._order})

    def _count(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        file = frame.f_code.co_filename
        self._calls += file.startswith((self._daemon, _GENERATED))
        if file.startswith(self._daemon):
            short = file[len(self._daemon) :]
            if not self._order or self._order[-1] != short:
                self._order.append(short)

    def _tell(self, what: object) -> None:
        os.write(self._pipe, json.dumps(what).encode() + b"\n")


def _daemon(pipe: int, words: list[str]) -> None:
    """Be the daemon that is counted."""
    from daemon.cli import main  # noqa: PLC0415 - only the daemon's process loads the daemon

    signal.signal(signal.SIGUSR2, _Counter(pipe).toggle)
    sys.argv[1:] = words
    main()


@contextmanager
def _running(directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A daemon in a directory of its own, and where its counter tells."""
    config = {"mcpServers": {"echo": {"command": sys.executable, "args": ["-I", "-S", "-c", _SERVER]}}}
    (directory / "mcpd.json").write_text(json.dumps(config))
    reader, writer = os.pipe()
    run = ["run", "--config", "mcpd.json", "--socket", "front", "--state-dir", "state"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(directory)}
    with (directory / "log").open("wb") as log, os.fdopen(reader, "rb") as told:
        child = subprocess.Popen(
            [sys.executable, "-m", "bench.trace", "--daemon", str(writer), *run],
            cwd=directory,
            env=environ,
            pass_fds=(writer,),
            stderr=log,
        )
        os.close(writer)
        try:
            yield child, told
        finally:
            child.terminate()
            child.wait(PATIENCE)


class _Client:
    """One client of one surface."""

    def __init__(self, path: Path, surface: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self._last = 0
        self._send({"method": "mcpd/hello", "params": {"surface": surface}})

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request.

        Raises:
            SystemExit: it was refused.
        """
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        while True:
            message = json.loads(self._lines.readline())
            if message.get("id") == self._last:
                if "error" in message or message["result"].get("isError"):
                    raise SystemExit(f"{method} {params}: {message}")
                result: dict[str, Any] = message["result"]
                return result

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")


def _call_of(surface: str) -> dict[str, Any]:
    """The params of a call of `echo` as the surface wants it."""
    arguments = {"text": "hello"}
    if surface == "category":
        wrapped = {"category": "echo", "name": "echo", "args": arguments}
        return {"name": "call-category-tool", "arguments": wrapped}
    if surface in {"browse", "search"}:
        return {"name": "call_tool", "arguments": {"tool_name": "echo", "arguments": arguments}}
    return {"name": "echo", "arguments": arguments}


def _prepare(client: _Client, surface: str) -> None:
    """What a client does before it calls: it shakes hands, lists, and loads where that is asked for."""
    client.ask(
        "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "trace"}}
    )
    client.ask("tools/list", {})
    if surface == "load":
        client.ask("tools/call", {"name": "load_mcp_tool", "arguments": {"names": ["echo"]}})
    for _ in range(WARM_CALLS):
        client.ask("tools/call", _call_of(surface))


def _counted(client: _Client, surface: str, pid: int, told: IO[bytes]) -> Trace:
    """One call, counted."""
    os.kill(pid, signal.SIGUSR2)
    told.readline()
    client.ask("tools/call", _call_of(surface))
    os.kill(pid, signal.SIGUSR2)
    found = json.loads(told.readline())
    return Trace(calls=found["calls"], order=tuple(found["order"]))


def traces(*surfaces: str) -> dict[str, Trace]:
    """A warm call on each surface.

    Raises:
        SystemExit: the daemon did not come up, or refused a call.
    """
    found = {}
    with tempfile.TemporaryDirectory(prefix="mcpd-") as name:
        directory = Path(name)
        with _running(directory) as (child, told):
            _wait_up(directory, child)
            for surface in surfaces:
                client = _Client(directory / "front", surface)
                _prepare(client, surface)
                runs = [_counted(client, surface, child.pid, told) for _ in range(COUNTED_CALLS)]
                client.close()
                found[surface] = min(runs, key=lambda run: run.calls)
    return found


def _wait_up(directory: Path, child: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while not (directory / "front").exists():
        if time.monotonic() > until or child.poll() is not None:
            raise SystemExit(f"no daemon:\n{(directory / 'log').read_text(errors='replace')}")
        time.sleep(POLL)


def main(words: list[str]) -> int:
    """Print a line per surface."""
    if words[:1] == ["--daemon"]:
        _daemon(int(words[1]), words[2:])
        return 0
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description=__doc__.splitlines()[0])
    parser.add_argument("--order", choices=SURFACES, help="the files of one surface, as they are entered")
    asked = parser.parse_args(words)
    if asked.order:
        print("\n".join(traces(asked.order)[asked.order].order))
        return 0
    print(f"{'surface':<10}{'calls':>7}{'files':>7}{'switches':>10}")
    for surface, trace in traces(*SURFACES).items():
        print(f"{surface:<10}{trace.calls:>7}{trace.files:>7}{trace.switches:>10}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
