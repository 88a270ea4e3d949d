"""The plain end of a stream over TLS: bytes, ends and resets travel both ways, and nothing stays behind."""

import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trustme

from daemon.wire.copying import GOODBYE_SECONDS, HURRIED_SECONDS, LAST_SECONDS, plain_end
from tests.unit.wire.linked import MIB, open_descriptors, receive_all

pytestmark = pytest.mark.usefixtures("autojump_clock")

AUTHORITY = trustme.CA()
SECONDS = 30
SOME = MIB // 16

Stream = trio.SSLStream[trio.SocketStream]


def over(end: socket.socket, context: ssl.SSLContext, *, server: bool) -> Stream:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(end))
    return trio.SSLStream(stream, context, server_side=server, server_hostname=None if server else "localhost")


@asynccontextmanager
async def encrypted() -> AsyncIterator[tuple[Stream, Stream]]:
    """Two ends of a connection over TLS, the handshake done: the server's, the client's."""
    serving, asking = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    AUTHORITY.issue_cert("localhost").configure_cert(serving)
    AUTHORITY.configure_trust(asking)
    ours, theirs = socket.socketpair()
    near, far = over(ours, serving, server=True), over(theirs, asking, server=False)
    try:
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(near.do_handshake)
                nursery.start_soon(far.do_handshake)
        yield near, far
    finally:
        await trio.aclose_forcefully(near)
        await trio.aclose_forcefully(far)


def as_stream(plain: socket.socket) -> trio.SocketStream:
    return trio.SocketStream(trio.socket.from_stdlib_socket(plain))


async def test_bytes_go_both_ways_and_each_end_is_passed_on_after_them() -> None:
    async with encrypted() as (near, far), trio.open_nursery() as nursery:
        with trio.fail_after(SECONDS):
            async with plain_end(near) as plain:
                assert not plain.getblocking()
                async with as_stream(plain) as inner:
                    nursery.start_soon(far.send_all, b"question" * SOME)
                    assert await receive_all_of(inner, 8 * SOME) == b"question" * SOME
                    nursery.start_soon(inner.send_all, b"answers!" * SOME)
                    assert len(await receive_all_of(far, 8 * SOME)) == 8 * SOME
                    nursery.start_soon(far.aclose)
                    assert await inner.receive_some() == b""


async def receive_all_of(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = await stream.receive_some(MIB)
        assert data
        found += data
    return found


async def test_what_was_written_before_the_plain_end_was_closed_arrives_and_then_the_end() -> None:
    async with encrypted() as (near, far):
        got: list[bytes] = []

        async def listen() -> None:
            while data := await far.receive_some():
                got.append(bytes(data))
            await far.aclose()

        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                async with plain_end(near) as plain:
                    plain.send(b"last words")
                    plain.close()
                nursery.start_soon(listen)
        assert b"".join(got) == b"last words"


async def test_the_plain_end_may_end_its_direction_and_go_on_reading() -> None:
    async with encrypted() as (near, far):
        with trio.fail_after(SECONDS):
            async with plain_end(near) as plain, as_stream(plain) as inner:
                await inner.send_all(b"that is all")
                await inner.send_eof()
                assert await receive_all_of(far, 11) == b"that is all"
                assert await far.receive_some() == b""
                await far.aclose()
                assert await inner.receive_some() == b""


@pytest.mark.parametrize("how", ["hangs up", "is gone", "says what is no TLS"])
async def test_a_peer_that_ends_without_a_word_ends_what_the_plain_end_receives(how: str) -> None:
    async with encrypted() as (near, far):
        with trio.fail_after(SECONDS):
            async with plain_end(near) as plain, as_stream(plain) as inner:
                if how == "hangs up":
                    await far.send_all(b"bye")
                    await far.transport_stream.send_eof()
                elif how == "is gone":
                    await trio.aclose_forcefully(far)
                else:
                    await far.transport_stream.send_all(b"GET / HTTP/1.1\r\n\r\n" * 10)
                assert await receive_all(inner) == (b"bye" if how == "hangs up" else b"")


async def fill(plain: socket.socket) -> None:
    """Write until nothing more is taken, however often the loop has turned.

    Raises:
        trio.TooSlowError: nothing was taken for a hundred turns.
    """
    turns = total = 0
    while turns < 100:
        try:
            total += plain.send(b"x" * MIB)
            turns = 0
        except BlockingIOError:
            await trio.lowlevel.checkpoint()
            turns += 1
        assert total < 16 * MIB
    raise trio.TooSlowError


@pytest.mark.parametrize("is_slow", [True, False])
async def test_a_slow_peer_is_waited_for_and_not_for_ever_and_a_silent_one_for_a_moment(
    *, is_slow: bool
) -> None:
    async with encrypted() as (near, _):
        began = trio.current_time()
        async with plain_end(near) as plain:
            if is_slow:
                with pytest.raises(trio.TooSlowError):
                    await fill(plain)
            plain.close()
        least, most = (LAST_SECONDS, LAST_SECONDS + 1) if is_slow else (0.0, GOODBYE_SECONDS + 0.1)
        assert least <= trio.current_time() - began <= most


async def test_a_stop_lets_a_farewell_out() -> None:
    async with encrypted() as (near, far):
        with trio.CancelScope() as stop:
            async with plain_end(near) as plain:
                stop.cancel()
                try:
                    await trio.sleep_forever()
                finally:
                    plain.send(b"bye")
                    plain.close()
                    began = trio.current_time()
        assert trio.current_time() - began <= HURRIED_SECONDS + 0.1
        assert await receive_all_of(far, 3) == b"bye"


async def test_without_a_descriptor_the_stream_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with encrypted() as (near, far):
        monkeypatch.setattr(socket, "socketpair", none_left)
        with pytest.raises(OSError, match="Too many open files"):
            async with plain_end(near):
                pass
        with pytest.raises(trio.BrokenResourceError):
            await far.receive_some()


async def test_nothing_is_left_open() -> None:
    async with encrypted():
        pass
    before = open_descriptors()
    for _ in range(3):
        async with encrypted() as (near, far):
            with trio.fail_after(SECONDS):
                async with plain_end(near) as plain:
                    await far.aclose()
                    plain.close()
    assert open_descriptors() == before
