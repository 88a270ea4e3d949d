"""A line that is not to be relied on: it passes bytes on between any two ends, badly if it is told to.

`Wire` listens where one end connects, and connects to the other for each connection; `join` is the same between
two streams that exist already. What becomes of the bytes of one direction is a `Toxic`, a value that can be
replaced while the line is up. All times are trio's, so a virtual clock works; chance comes from a generator
that is passed in.
"""

import os
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto

import attrs
import trio

Stream = trio.abc.HalfCloseableStream
Connect = Callable[[], Awaitable[Stream]]

CHUNK = 64 * 1024
"""Bytes that are looked at together."""

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: close(2) sends a reset instead of an end (socket(7))."""

LOW_PORTS = range(18000, 30000)
"""Below the kernel's own choices (ip_local_port_range): a port that is closed for a while is not taken by a
connection that somebody makes meanwhile, nor does a try to connect to it meet itself."""

_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class Fate(Enum):
    """What becomes of the bytes after those that are spared."""

    PASS = auto()
    """They arrive."""
    SWALLOW = auto()
    """A black hole: they are taken, and never arrive."""
    STALL = auto()
    """They are not even taken: the sender's buffers fill up."""
    HALF_CLOSE = auto()
    """The receiver sees an end; the other direction goes on."""
    CUT = auto()
    """Both ends see an end."""
    RESET = auto()
    """Both ends see a reset, where they are sockets."""
    GARBLE = auto()
    """One byte in sixteen arrives as another; line ends are left alone."""


@attrs.frozen(kw_only=True)
class Toxic:
    """What becomes of the bytes of one direction."""

    latency: float = 0.0
    """Seconds by which every piece is late."""
    jitter: float = 0.0
    """Up to so many seconds more, by chance."""
    slice: int = 0
    """Passed on in pieces of one to so many bytes; 0: as they come."""
    spare: int = 0
    """So many bytes of a connection arrive before `fate` has its way."""
    fate: Fate = Fate.PASS
    """What becomes of the rest."""


HARMLESS = Toxic()
DRIP = Toxic(slice=1, latency=1.0)
"""A byte a second: only for a virtual clock."""


class _Ended(Exception):
    """The whole line is over, in a way that the ends shall see."""

    def __init__(self, fate: Fate) -> None:
        super().__init__(fate.name)
        self.fate = fate


class Direction:
    """One direction of all lines of a wire; `toxic` may be replaced at any time."""

    def __init__(self, toxic: Toxic) -> None:
        self._toxic = toxic
        self._changed = trio.Event()

    @property
    def toxic(self) -> Toxic:
        """What becomes of the bytes from now on."""
        return self._toxic

    @toxic.setter
    def toxic(self, toxic: Toxic) -> None:
        self._toxic = toxic
        self._changed.set()
        self._changed = trio.Event()

    async def wait_changed(self) -> None:
        """Return once there is another toxic."""
        await self._changed.wait()


class _Pump:
    """The bytes of one direction of one line."""

    def __init__(self, source: Stream, sink: Stream, direction: Direction, rng: random.Random) -> None:
        self._source = source
        self._sink = sink
        self._direction = direction
        self._rng = rng
        self._passed = 0

    async def run(self) -> None:
        """Pass bytes on until the source has no more. Raises `_Ended` if both ends shall see it."""
        while True:
            if self._spared() == 0 and self._direction.toxic.fate is Fate.STALL:
                await self._direction.wait_changed()
                continue
            data = bytes(await self._source.receive_some(CHUNK))
            if not data:
                # What swallows bytes does not let their end through either.
                while self._direction.toxic.fate is Fate.SWALLOW:
                    await self._direction.wait_changed()
                await self._sink.send_eof()
                return
            if await self._pass(data):
                return

    def _spared(self) -> int:
        return max(0, self._direction.toxic.spare - self._passed)

    async def _pass(self, data: bytes) -> bool:
        """Deliver a chunk. True if this direction is over."""
        while True:
            toxic = self._direction.toxic
            whole = toxic.fate is Fate.PASS
            now = data if whole else data[: self._spared()]
            if not now:
                return False if whole else await self._meet(toxic.fate, data)
            now = now[: self._rng.randint(1, toxic.slice)] if toxic.slice else now
            await self._deliver(now, toxic)
            data = data[len(now) :]
            if not data and self._spared():
                return False

    async def _deliver(self, piece: bytes, toxic: Toxic) -> None:
        late = toxic.latency + toxic.jitter * self._rng.random()
        if late:
            await trio.sleep(late)
        await self._sink.send_all(piece)
        self._passed += len(piece)

    async def _meet(self, fate: Fate, data: bytes) -> bool:
        match fate:
            case Fate.CUT | Fate.RESET:
                raise _Ended(fate)
            case Fate.HALF_CLOSE:
                await self._sink.send_eof()
                return True
            case Fate.GARBLE if data:
                await self._deliver(self._garbled(data), self._direction.toxic)
            case Fate.STALL if data:
                await self._direction.wait_changed()
                return await self._pass(data)
            case _:
                pass
        return False

    def _garbled(self, data: bytes) -> bytes:
        return bytes(
            self._rng.randrange(11, 256) if byte != ord("\n") and not self._rng.randrange(16) else byte
            for byte in data
        )


async def join(near: Stream, far: Stream, *, up: Direction, down: Direction, rng: random.Random) -> None:
    """Pass bytes between two ends until both have ended, or the line has; then both are closed.

    Args:
        near: the end that asks.
        far: the end that answers.
        up: from near to far.
        down: from far to near.
        rng: what chance comes from.
    """
    fate = Fate.CUT
    try:
        async with trio.open_nursery() as nursery:
            for source, sink, direction in ((near, far, up), (far, near, down)):
                nursery.start_soon(_Pump(source, sink, direction, rng).run)
    except* _Ended as ended:
        fate = next(error.fate for error in _leaves(ended))
    except* _GONE:
        pass
    finally:
        for end in (near, far):
            if fate is Fate.RESET:
                _linger_not(end)
            await _close(end)


async def _close(end: Stream) -> None:
    """Close at once, also when cancelled: the next one must be closed, too."""
    with trio.CancelScope(shield=True):
        await trio.aclose_forcefully(end)


def _leaves(group: BaseExceptionGroup[_Ended]) -> list[_Ended]:
    found: list[_Ended] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def _linger_not(end: Stream) -> None:
    if isinstance(end, trio.SocketStream):
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


class Wire:
    """Listens; each connection is a line to what `connect` reaches."""

    def __init__(
        self, connect: Connect, *, rng: random.Random, up: Toxic = HARMLESS, down: Toxic = HARMLESS
    ) -> None:
        """Prepare; nothing listens yet.

        Args:
            connect: makes a connection to the far end.
            rng: what chance comes from.
            up: towards the far end.
            down: from it.
        """
        self.up = Direction(up)
        self.down = Direction(down)
        self.lines = 0
        """Connections that were ever made."""
        self._connect = connect
        self._rng = rng
        self._live: dict[int, tuple[trio.CancelScope, trio.SocketStream]] = {}
        self._listener: trio.SocketListener | None = None
        self._bound: socket.socket | None = None
        self._address: tuple[int, str | tuple[str, int]] | None = None
        self._nursery: trio.Nursery
        self._accepting: trio.CancelScope | None = None

    @property
    def open(self) -> int:
        """Lines that are up."""
        return len(self._live)

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[Wire]":
        """Its lines live while the block runs."""
        async with trio.open_nursery() as self._nursery:
            try:
                yield self
            finally:
                self.hang_up()
                self._nursery.cancel_scope.cancel()

    def reserve_port(self) -> int:
        """Take a port of loopback without listening on it: who connects is refused. Returns it."""
        while True:
            port = self._rng.choice(LOW_PORTS)
            try:
                self._bind((socket.AF_INET, ("127.0.0.1", port)))
            except OSError:
                continue
            return port

    def name_path(self, path: str) -> None:
        """Be going to listen on a unix socket; its file does not exist yet."""
        self._address = (socket.AF_UNIX, path)

    def _bind(self, address: tuple[int, str | tuple[str, int]]) -> None:
        family, where = self._address = address
        bound = socket.socket(family)
        try:
            if family == socket.AF_INET:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(where)
        except BaseException:
            bound.close()
            raise
        self._bound = bound

    def answer(self) -> None:
        """Listen from now on."""
        if self._bound is None:
            assert self._address is not None, "reserve_port or name_path first"
            if self._address[0] == socket.AF_UNIX:
                with suppress(FileNotFoundError):
                    os.unlink(str(self._address[1]))  # noqa: PTH108 - it is an address here
            self._bind(self._address)
        assert self._bound is not None
        self._bound.listen(64)
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._bound))
        self._nursery.start_soon(self._accept, self._listener)

    def hang_up(self) -> None:
        """Listen no more and end every line. A unix socket's file is left behind, as a crash does."""
        if self._accepting is not None:
            self._accepting.cancel()
        if self._bound is not None:
            trio.lowlevel.notify_closing(self._bound)
            self._bound.close()
        self._listener = self._bound = None
        self.end_lines()

    def end_lines(self, *, reset: bool = False) -> None:
        """End every line that is up; what listens goes on."""
        for scope, near in self._live.values():
            if reset:
                _linger_not(near)
            scope.cancel()

    async def _accept(self, listener: trio.SocketListener) -> None:
        with trio.CancelScope() as self._accepting, suppress(*_GONE):
            while True:
                near = await listener.accept()
                self.lines += 1
                self._nursery.start_soon(self._serve, near, self.lines)

    async def _serve(self, near: trio.SocketStream, number: int) -> None:
        try:
            with trio.CancelScope() as scope:
                self._live[number] = (scope, near)
                far = await self._connect()
                await join(near, far, up=self.up, down=self.down, rng=self._rng)
        except OSError:
            pass
        finally:
            self._live.pop(number, None)
            await _close(near)
