"""Keeps many calls in flight, over one connection or a thousand: one epoll, one read per readiness."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

import attrs

from bench.running import Unmeasurable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.calls.wires import Request, Wire

STALLED = 60.0
"""Seconds without an answer after which the run fails."""

ROOM_BYTES = 1024 * 1024

SHOWN = 500
"""Bytes shown of an unexpected answer."""

_room = memoryview(bytearray(ROOM_BYTES))


@attrs.frozen(kw_only=True)
class Ran:
    """The result of a run."""

    calls: int
    seconds: float
    latencies: list[float] = attrs.field(repr=False)
    """Seconds of each call, if each connection has only one in flight."""


class _Caller:
    """The state of one connection."""

    __slots__ = ("answered", "open", "received", "request", "sent_at", "unsent", "wire")

    def __init__(self, wire: Wire, request: Request) -> None:
        self.wire = wire
        self.request = request
        self.open = 0
        self.answered = 0
        self.received = 0
        self.sent_at = 0.0
        self.unsent = b""


class Crowd:
    """Keeps `window` calls in flight on each connection for some seconds, then lets them finish."""

    def __init__(self, wires: Sequence[Wire], window: int, requests: Sequence[Request], size: int) -> None:
        """Take over connections for one run.

        Args:
            wires: connections after their handshake.
            window: calls in flight on each.
            requests: the call that each connection repeats.
            size: bytes of each answer.
        """
        self._window = window
        self._size = size
        self._callers = [_Caller(*each) for each in zip(wires, requests, strict=True)]
        self._epoll = select.epoll()
        self._readers = {caller.wire.read_fd: caller for caller in self._callers}
        self._writers = {caller.wire.write_fd: caller for caller in self._callers}
        self._latencies: list[float] = []

    def run(self, seconds: float) -> Ran:
        """Call for some seconds.

        Raises:
            Unmeasurable: a connection ended, stalled, or gave an unexpected answer.
        """
        for caller in self._callers:
            os.set_blocking(caller.wire.read_fd, False)
            os.set_blocking(caller.wire.write_fd, False)
            self._epoll.register(caller.wire.read_fd, select.EPOLLIN)
        try:
            return self._run(seconds)
        finally:
            self._epoll.close()
            for caller in self._callers:
                os.set_blocking(caller.wire.read_fd, True)
                os.set_blocking(caller.wire.write_fd, True)

    def _run(self, seconds: float) -> Ran:
        begun = time.perf_counter()
        until = begun + seconds
        for caller in self._callers:
            self._call(caller, self._window)
        open_ = len(self._callers) * self._window
        while open_:
            ready = self._epoll.poll(STALLED)
            if not ready:
                raise Unmeasurable(f"{open_} calls are not answered within {STALLED:g} s")
            more = time.perf_counter() < until
            for descriptor, events in ready:
                if events & select.EPOLLOUT:
                    self._write(self._writers[descriptor], b"")
                if events & ~select.EPOLLOUT:
                    open_ -= self._read(self._readers[descriptor], more=more)
        took = time.perf_counter() - begun
        self._prove()
        calls = sum(caller.answered for caller in self._callers)
        return Ran(calls=calls, seconds=took, latencies=self._latencies)

    def _read(self, caller: _Caller, *, more: bool) -> int:
        """Read what has arrived, and make a call for each answer. Returns the decrease of calls in flight."""
        try:
            size = os.readv(caller.wire.read_fd, [_room])
        except BlockingIOError:
            return 0
        if not size:
            raise Unmeasurable("the connection was closed")
        caller.received += size
        answers = caller.received // self._size - caller.answered
        if not answers:
            if caller.wire.is_over(_room[:size]):
                raise Unmeasurable(f"a call was refused: {bytes(_room[: min(size, SHOWN)])!r}")
            return 0
        caller.answered += answers
        caller.open -= answers
        if self._window == 1:
            self._latencies.append(time.perf_counter() - caller.sent_at)
        if not more:
            return answers
        self._call(caller, answers)
        return 0

    def _call(self, caller: _Caller, count: int) -> None:
        wire = caller.wire
        caller.open += count
        first, wire.number = wire.number, wire.number + count
        line = caller.request.line
        data = line(first) if count == 1 else b"".join(map(line, range(first, first + count)))
        caller.sent_at = time.perf_counter()
        self._write(caller, data)

    def _write(self, caller: _Caller, data: bytes) -> None:
        """Write as much as the kernel takes now; epoll reports when it takes more."""
        had, caller.unsent = caller.unsent, b""
        data = had + data if had else data
        try:
            written = os.write(caller.wire.write_fd, data)
        except BlockingIOError:
            written = 0
        if written < len(data):
            caller.unsent = data[written:]
        if bool(had) != bool(caller.unsent):
            self._watch(caller)

    def _watch(self, caller: _Caller) -> None:
        """Have epoll report writability while data is unsent."""
        wire, wants = caller.wire, select.EPOLLOUT if caller.unsent else 0
        if wire.read_fd == wire.write_fd:
            self._epoll.modify(wire.read_fd, select.EPOLLIN | wants)
        elif wants:
            self._epoll.register(wire.write_fd, wants)
        else:
            self._epoll.unregister(wire.write_fd)

    def _prove(self) -> None:
        for caller in self._callers:
            if caller.received != caller.answered * self._size:
                raise Unmeasurable(
                    f"{caller.answered} answers of {self._size} bytes each came as {caller.received} bytes:"
                    " some were refusals"
                )
