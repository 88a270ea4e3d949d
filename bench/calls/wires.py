"""A client's end of a connection: two blocking descriptors, and nothing that costs more than a call itself."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from bench.running import Unmeasurable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOM_BYTES = 1024 * 1024
"""One read: as large as a pipe is made."""

ANSWER = 60.0
"""Seconds for one answer that is not measured: the daemon waits up to 30 s for a server's list."""

FIRST_ID = 10_000_000
"""Ids have eight digits from first to last, so that all answers have one length, which proves them right."""

NEWLINE = 0x0A

_room = memoryview(bytearray(ROOM_BYTES))


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Bound what blocks in the main thread.

    Raises:
        Unmeasurable: it took longer.
    """

    def late(_number: int, _frame: object) -> None:
        raise Unmeasurable(f"{what}: not done within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@attrs.frozen
class Request:
    """One call, to be made again and again under other ids."""

    template: bytes = attrs.field(repr=False)
    """The line, with `%d` for the id."""

    @classmethod
    def of(cls, tool: str, arguments: Mapping[str, object], category: str | None = None) -> Request:
        """A call of a tool, or of the tool through `call-category-tool`."""
        params: dict[str, object] = {"name": tool, "arguments": arguments}
        if category is not None:
            inner = {"category": category, "name": tool, "args": arguments}
            params = {"name": "call-category-tool", "arguments": inner}
        text = json.dumps(params, separators=(",", ":")).encode()
        return cls(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":' + text + b"}\n")

    def line(self, number: int) -> bytes:
        """The line of the nth call."""
        return self.template % (FIRST_ID + number)


class Wire:
    """Asks, and reads the answers."""

    def __init__(self, read_fd: int, write_fd: int, close: Callable[[], None]) -> None:
        """Speak over two descriptors, which `close` closes with whatever is behind them."""
        self.read_fd = read_fd
        self.write_fd = write_fd
        self.number = 0
        """Calls that were made over it."""
        self.close = close
        self._last = 0
        self._held = b""

    def send(self, data: bytes) -> None:
        """Write all of it."""
        written = os.write(self.write_fd, data)
        if written < len(data):
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[os.write(self.write_fd, rest) :]

    def exchange(self, line: bytes) -> int:
        """Send a line and read until the end of one. Returns the bytes that were read.

        Raises:
            Unmeasurable: the other side hung up.
        """
        self.send(line)
        total = 0
        while True:
            size = os.readv(self.read_fd, [_room])
            if not size:
                raise Unmeasurable("the connection was closed")
            total += size
            if _room[size - 1] == NEWLINE:
                return total

    def greet(self, hello: Mapping[str, object] | None = None) -> None:
        """Begin as clients do: the bridge's hello if there is one, the handshake, a list."""
        if hello is not None:
            self._say({"method": "mcpd/hello", "params": dict(hello)})
        info = {"name": "bench", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        self._say({"method": "notifications/initialized"})
        self.ask("tools/list", {})

    def ask(self, method: str, params: Mapping[str, object]) -> dict[str, Any]:
        """Send a request and wait for its result, past notifications.

        Raises:
            Unmeasurable: it is an error, or there is none in time.
        """
        self._last += 1
        with within(ANSWER, method):
            self._say({"id": self._last, "method": method, "params": dict(params)})
            while True:
                message: dict[str, Any] = json.loads(self._line())
                if message.get("id") == self._last:
                    break
        if "result" not in message:
            raise Unmeasurable(f"{method}: {message.get('error')}")
        result: dict[str, Any] = message["result"]
        return result

    def try_out(self, request: Request) -> int:
        """Make one call and look at the answer. Returns its size in bytes: all others must have it, too.

        Raises:
            Unmeasurable: it is not what was asked for.
        """
        with within(ANSWER, "the first call"):
            self.send(request.line(self.number))
            self.number += 1
            line = self._line()
        result = json.loads(line).get("result", {})
        if result.get("isError") or not result.get("content"):
            raise Unmeasurable(f"a call was answered with {line[:500]!r}")
        return len(line)

    def _say(self, message: Mapping[str, object]) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _line(self) -> bytes:
        pieces = [self._held]
        while b"\n" not in pieces[-1]:
            data = os.read(self.read_fd, ROOM_BYTES)
            if not data:
                raise Unmeasurable("the connection was closed")
            pieces.append(data)
        line, _, self._held = b"".join(pieces).partition(b"\n")
        return line + b"\n"


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used, all its threads together (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def kilobytes(pid: int, field: str) -> int:
    """A line of /proc/PID/status: `VmRSS`, or `VmHWM` for its peak.

    Raises:
        Unmeasurable: the process has no such line: it has ended.
    """
    with open(f"/proc/{pid}/status", encoding="ascii") as lines:  # noqa: PTH123
        for line in lines:
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
    raise Unmeasurable(f"process {pid} has ended")
