"""A link under test, over a real socket or real pipes, and the far end of it."""

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
import trio.testing

from daemon.errors import ConnectionLost
from daemon.wire.envelope import Envelope, Line
from daemon.wire.link import FdLink
from daemon.wire.outbox import Outbox
from tests.waiting import beside

MIB = 1024 * 1024


@attrs.define(eq=False)
class Near:
    """A link under test, and what came in through it."""

    link: FdLink
    outbox: Outbox
    lines: list[bytes] = attrs.field(factory=list)
    heads: list[bytes] = attrs.field(factory=list)
    ended: str = ""
    """Why it ended; empty while it runs."""
    then: Callable[[list[bytes]], None] = lambda _: None
    """What the owner does with lines besides noting them."""

    async def run(self) -> None:
        """As the owner of a link does; anything but a lost connection fails the test."""
        try:
            await self.link.run(self)
        except ConnectionLost as error:
            self.ended = str(error)

    def say(self, *frames: bytes) -> None:
        """Send frames and flush, as at the end of a turn."""
        for frame in frames:
            self.link.send((frame,))
        self.outbox.flush()

    def on_oversized(self, head: bytes) -> None:
        self.heads.append(head)

    def on_message(self, message: Envelope, line: Line) -> None:
        raise AssertionError("a link over descriptors decodes nothing")

    def on_lines(self, lines: list[Line]) -> None:
        said = [bytes(line) for line in lines]
        self.lines += said
        self.then(said)


def answering(near: Near, answer: Callable[[bytes], bytes]) -> Callable[[list[bytes]], None]:
    """An owner that answers each line, and leaves the flush to the link."""

    def then(lines: list[bytes]) -> None:
        for line in lines:
            near.link.send((answer(line),))

    return then


def near_end(
    read_fd: int,
    write_fd: int,
    *,
    max_line: int = MIB,
    max_queue: int = 64 * MIB,
    pause_at: int | None = None,
    outbox: Outbox | None = None,
) -> Near:
    outbox = Outbox() if outbox is None else outbox
    link = FdLink(read_fd, write_fd, outbox=outbox, max_line=max_line, max_queue=max_queue, pause_at=pause_at)
    return Near(link, outbox)


@contextmanager
def socket_link(
    *, max_line: int = MIB, max_queue: int = 64 * MIB, pause_at: int | None = None, outbox: Outbox | None = None
) -> Iterator[tuple[Near, trio.SocketStream]]:
    """A link over a socket, and the far end of it; links of one outbox may write to each other."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    fd = ours.detach()
    near = near_end(fd, fd, max_line=max_line, max_queue=max_queue, pause_at=pause_at, outbox=outbox)
    with trio.socket.from_stdlib_socket(theirs) as far:
        try:
            yield near, trio.SocketStream(far)
        finally:
            near.link.close()


@asynccontextmanager
async def running(link: AbstractContextManager[tuple[Any, ...]]) -> AsyncIterator[tuple[Any, ...]]:
    """The link runs; its test lasts half a minute at most, or by a virtual clock some hours."""
    virtual = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    with trio.fail_after(30_000 if virtual else 30), link as ends:
        async with beside(ends[0].run):
            yield ends


@contextmanager
def pipe_link() -> Iterator[tuple[Near, int, int]]:
    """A link over two pipes, and the far descriptors: to write to it, to read from it."""
    read_fd, far_write = os.pipe()
    far_read, write_fd = os.pipe()
    for fd in (read_fd, write_fd, far_read):
        os.set_blocking(fd, False)
    near = near_end(read_fd, write_fd)
    try:
        yield near, far_write, far_read
    finally:
        near.link.close()
        for fd in (far_write, far_read):
            try:
                os.close(fd)
            except OSError:
                continue


async def receive(far: trio.SocketStream, size: int, *, step: int = 64 * 1024) -> bytes:
    """Exactly so many bytes, in small sips."""
    pieces: list[bytes] = []
    while size:
        got = await far.receive_some(min(step, size))
        assert got, "the link hung up"
        pieces.append(got)
        size -= len(got)
    return b"".join(pieces)


async def receive_all(far: trio.SocketStream) -> bytes:
    """Everything up to the end of the stream."""
    return b"".join([chunk async for chunk in far])


async def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        await trio.lowlevel.checkpoint()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
