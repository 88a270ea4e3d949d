"""A client's end of a connection: two blocking descriptors, so that it costs less than the call itself."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from bench.running import INTRODUCTION, Unmeasurable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOM_BYTES = 1024 * 1024
"""Bytes of one read: as many as a pipe holds."""

ANSWER = 60.0
"""Seconds to wait for an unmeasured answer: the daemon waits up to 30 s for a server's list."""

FIRST_ID = 10_000_000
"""All ids have eight digits, so that all answers have one length, by which they are checked."""

NEWLINE = 0x0A

_room = memoryview(bytearray(ROOM_BYTES))


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Limit the time of blocking code in the main thread.

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
    """A call that is repeated with changing ids."""

    template: bytes = attrs.field(repr=False)
    """The bytes to send, with `%d` for the id: a line, or the result of a wire's `wrap`."""

    @classmethod
    def of(
        cls,
        tool: str,
        arguments: Mapping[str, object],
        category: str | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> Request:
        """A call of a tool, directly or through `call-category-tool`; `meta` is its `_meta`."""
        params: dict[str, object] = {"name": tool, "arguments": arguments}
        if category is not None:
            inner = {"category": category, "name": tool, "args": arguments}
            params = {"name": "call-category-tool", "arguments": inner}
        if meta is not None:
            params["_meta"] = meta
        text = json.dumps(params, separators=(",", ":")).encode()
        return cls(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":' + text + b"}\n")

    def line(self, number: int) -> bytes:
        """The bytes of the nth call."""
        return self.template % (FIRST_ID + number)


class Wire:
    """Sends requests and reads the answers."""

    def __init__(self, read_fd: int, write_fd: int, close: Callable[[], None]) -> None:
        """Use two descriptors, which `close` closes."""
        self.read_fd = read_fd
        self.write_fd = write_fd
        self.number = 0
        """Calls made over this connection."""
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

    def wrap(self, request: Request) -> Request:
        """A call in the form that this connection sends."""
        return request

    def is_over(self, piece: memoryview) -> bool:
        """Whether this piece ends an answer, even before its expected size."""
        return piece[-1] == NEWLINE

    def exchange(self, data: bytes, size: float = math.inf) -> int:
        """Send a call and read its answer, which has `size` bytes or ends. Returns the number of bytes read.

        Raises:
            Unmeasurable: the peer closed the connection.
        """
        self.send(data)
        total = 0
        while True:
            got = os.readv(self.read_fd, [_room])
            if not got:
                raise Unmeasurable("the connection was closed")
            total += got
            if total >= size or self.is_over(_room[:got]):
                return total

    def greet(self, hello: Mapping[str, object] | None = None) -> None:
        """Begin as clients do: the bridge's hello if given, the handshake, a list."""
        if hello is not None:
            self._say({"method": "mcpd/hello", "params": dict(hello)})
        self.ask("initialize", INTRODUCTION)
        self._say({"method": "notifications/initialized"})
        self.ask("tools/list", {})

    def ask(self, method: str, params: Mapping[str, object]) -> dict[str, Any]:
        """Send a request and wait for its result; notifications are skipped.

        Raises:
            Unmeasurable: the answer is an error, or too late.
        """
        self._last += 1
        with within(ANSWER, method):
            self._say({"id": self._last, "method": method, "params": dict(params)})
            while True:
                message: dict[str, Any] = json.loads(self._next()[1])
                if message.get("id") == self._last:
                    break
        if "result" not in message:
            raise Unmeasurable(f"{method}: {message.get('error')}")
        result: dict[str, Any] = message["result"]
        return result

    def try_out(self, request: Request) -> int:
        """Make one call and check the answer. Returns its size in bytes, which all other answers must have.

        Raises:
            Unmeasurable: the answer is wrong.
        """
        with within(ANSWER, "the first call"):
            self.send(request.line(self.number))
            self.number += 1
            size, message = self._next()
        result = json.loads(message).get("result", {})
        if result.get("isError") or not result.get("content"):
            raise Unmeasurable(f"a call was answered with {message[:500]!r}")
        return size

    def _say(self, message: Mapping[str, object]) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _next(self) -> tuple[int, bytes]:
        """The next message with its number of bytes."""
        line = self._until(b"\n")
        return len(line), line

    def _until(self, end: bytes) -> bytes:
        """Read up to and including a delimiter."""
        while end not in self._held:
            self._held += self._read()
        found, end, self._held = self._held.partition(end)
        return found + end

    def _exactly(self, size: int) -> bytes:
        """Read this many bytes."""
        while len(self._held) < size:
            self._held += self._read()
        found, self._held = self._held[:size], self._held[size:]
        return found

    def _read(self) -> bytes:
        data = os.read(self.read_fd, ROOM_BYTES)
        if not data:
            raise Unmeasurable("the connection was closed")
        return data


def cpu_of(pid: int) -> float:
    """Seconds of CPU that all threads of a process have used (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def kilobytes(pid: int, field: str) -> int:
    """A value from /proc/PID/status: `VmRSS`, or `VmHWM` for its peak.

    Raises:
        Unmeasurable: the process has ended.
    """
    with open(f"/proc/{pid}/status", encoding="ascii") as lines:  # noqa: PTH123
        for line in lines:
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
    raise Unmeasurable(f"process {pid} has ended")
