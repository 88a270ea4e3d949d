"""The faulty line itself: every toxic does what it says, by the seed, on a virtual clock where time matters."""

from __future__ import annotations

import random
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from tests.faults.wire import HARMLESS, Direction, Fate, Toxic, Wire, join

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    Memory = trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]

SEED = 7
BOUND = 30.0
"""Seconds that anything with sockets may take."""


@asynccontextmanager
async def joined(up: Toxic = HARMLESS, down: Toxic = HARMLESS) -> AsyncIterator[tuple[Memory, Memory]]:
    """Two ends in memory with a line between them."""
    near, near_inside = trio.testing.memory_stream_pair()
    far, far_inside = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            directions = {"up": Direction(up), "down": Direction(down)}
            await join(near_inside, far_inside, **directions, rng=random.Random(SEED))

        nursery.start_soon(run)
        yield near, far
        nursery.cancel_scope.cancel()


async def received(end: Memory | trio.SocketStream) -> bytes:
    """Everything up to the end of the stream."""
    return b"".join([bytes(piece) async for piece in end])


async def pieces(end: Memory, size: int) -> list[bytes]:
    """So many bytes, as they arrive."""
    found: list[bytes] = []
    while sum(map(len, found)) < size:
        found.append(bytes(await end.receive_some(65536)))
    return found


async def test_bytes_pass_both_ways_and_so_does_the_end(autojump_clock: MockClock) -> None:
    async with joined() as (near, far):
        await near.send_all(b"question")
        assert await far.receive_some(100) == b"question"
        await far.send_all(b"answer")
        await far.send_eof()
        assert await received(near) == b"answer"
        await near.send_all(b"more")
        assert await far.receive_some(100) == b"more"


async def test_what_is_late_arrives_whole(autojump_clock: MockClock) -> None:
    async with joined(down=Toxic(latency=3.0, jitter=1.0)) as (near, far):
        await far.send_all(b"late")
        assert await near.receive_some(100) == b"late"
        assert 3.0 <= trio.current_time() < 4.0


async def test_a_drip_takes_a_second_a_byte_and_loses_none(autojump_clock: MockClock) -> None:
    async with joined(up=Toxic(slice=1, latency=1.0)) as (near, far):
        await near.send_all(b"drip")
        assert await pieces(far, 4) == [b"d", b"r", b"i", b"p"]
        assert trio.current_time() == pytest.approx(4.0)


async def test_slices_are_those_of_the_seed(autojump_clock: MockClock) -> None:
    found = []
    for _ in range(2):
        async with joined(up=Toxic(slice=5, latency=0.1)) as (near, far):
            await near.send_all(bytes(range(100)))
            found.append(await pieces(far, 100))
    assert found[0] == found[1]
    assert b"".join(found[0]) == bytes(range(100))
    assert {len(piece) for piece in found[0][:-1]} <= {1, 2, 3, 4, 5}


async def test_a_black_hole_takes_everything_and_says_nothing(autojump_clock: MockClock) -> None:
    async with joined(up=Toxic(spare=3, fate=Fate.SWALLOW)) as (near, far):
        await near.send_all(b"abcdef")
        assert await far.receive_some(100) == b"abc"
        await near.send_all(b"ghi")
        await near.send_eof()
        with trio.move_on_after(3600) as waiting:
            await far.receive_some(100)
        assert waiting.cancelled_caught


@pytest.mark.parametrize("fate", [Fate.CUT, Fate.RESET])
async def test_a_cut_ends_both_directions(fate: Fate) -> None:
    async with joined(up=Toxic(spare=2, fate=fate)) as (near, far):
        await near.send_all(b"abcdef")
        assert await far.receive_some(100) == b"ab"
        for end in (near, far):
            assert await end.receive_some(100) == b""
            with pytest.raises(trio.BrokenResourceError):
                await end.send_all(b"x")


async def test_a_half_close_leaves_the_other_direction() -> None:
    async with joined(up=Toxic(spare=2, fate=Fate.HALF_CLOSE)) as (near, far):
        await near.send_all(b"abcdef")
        assert await received(far) == b"ab"
        await far.send_all(b"still here")
        assert await near.receive_some(100) == b"still here"


async def test_garbled_bytes_are_as_many_and_lines_stay_lines() -> None:
    async with joined(down=Toxic(spare=10, fate=Fate.GARBLE)) as (near, far):
        sent = b"0123456789" + b"abcdefghijklmno\n" * 200
        await far.send_all(sent)
        got = b"".join(await pieces(near, len(sent)))
        assert got != sent
        assert (got[:10], len(got), got.count(b"\n")) == (sent[:10], len(sent), sent.count(b"\n"))


async def test_what_is_stalled_goes_on_when_the_line_is_mended(autojump_clock: MockClock) -> None:
    near, near_inside = trio.testing.memory_stream_pair()
    far, far_inside = trio.testing.memory_stream_pair()
    up = Direction(Toxic(spare=1, fate=Fate.STALL))
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await join(near_inside, far_inside, up=up, down=Direction(HARMLESS), rng=random.Random(SEED))

        nursery.start_soon(run)
        await near.send_all(b"abc")
        assert await far.receive_some(100) == b"a"
        await trio.sleep(1000)
        up.toxic = HARMLESS
        assert b"".join(await pieces(far, 2)) == b"bc"
        nursery.cancel_scope.cancel()


# --- over sockets -------------------------------------------------------------------------------------------


async def echo(stream: trio.SocketStream) -> None:
    """Says back what it is told."""
    try:
        async for data in stream:
            await stream.send_all(data)
    except trio.BrokenResourceError:
        pass


@asynccontextmanager
async def wired(**toxics: Toxic) -> AsyncIterator[tuple[Wire, int]]:
    """A wire to an echo server, and its port."""
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, echo, 0)
            port: int = listeners[0].socket.getsockname()[1]

            async def connect() -> trio.SocketStream:
                return await trio.open_tcp_stream("127.0.0.1", port)

            async with Wire(connect, rng=random.Random(SEED), **toxics).running() as wire:
                yield wire, wire.reserve_port()
            nursery.cancel_scope.cancel()


async def test_a_reserved_port_refuses_until_it_answers_and_again_afterwards() -> None:
    async with wired() as (wire, port):
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream("127.0.0.1", port)
        wire.answer()
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"hello")
            assert await stream.receive_some(100) == b"hello"
            wire.hang_up()
            assert await stream.receive_some(100) == b""
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream("127.0.0.1", port)
        wire.answer()
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"again")
            assert await stream.receive_some(100) == b"again"


async def test_a_reset_is_one_for_a_socket() -> None:
    async with wired(down=Toxic(spare=2, fate=Fate.RESET)) as (wire, port):
        wire.answer()
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"abcdef")
            with pytest.raises(trio.BrokenResourceError) as broken:
                await received(stream)
        assert isinstance(broken.value.__cause__, ConnectionResetError)


async def test_every_line_can_be_reset_while_the_listener_goes_on() -> None:
    async with wired() as (wire, port):
        wire.answer()
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"abc")
            assert await stream.receive_some(100) == b"abc"
            wire.end_lines(reset=True)
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some(100)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"abc")
            assert await stream.receive_some(100) == b"abc"
        assert wire.lines == 2


async def test_a_unix_socket_leaves_its_file_behind_and_takes_it_over(tmp_path: object) -> None:
    async with wired() as (wire, _port):
        path = f"{tmp_path}/s"
        wire.hang_up()
        wire.name_path(path)
        wire.answer()
        async with await trio.open_unix_socket(path) as stream:
            await stream.send_all(b"abc")
            assert await stream.receive_some(100) == b"abc"
        wire.hang_up()
        with socket.socket(socket.AF_UNIX) as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(path)
        wire.answer()
        async with await trio.open_unix_socket(path):
            pass
