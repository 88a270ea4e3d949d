"""What the cases cannot tell of the faulty line: that slices, delays and garbled bytes are what they say."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio
import trio.testing

from tests.faults.wire import HARMLESS, Direction, Fate, Toxic, join

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    Memory = trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]


@asynccontextmanager
async def joined(down: Toxic) -> AsyncIterator[tuple[Memory, Memory]]:
    """Two ends in memory with a line between them."""
    near, near_inside = trio.testing.memory_stream_pair()
    far, far_inside = trio.testing.memory_stream_pair()
    directions = {"up": Direction(HARMLESS), "down": Direction(down)}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(join, near_inside, far_inside, **directions, rng=random.Random(7)))
        yield near, far
        nursery.cancel_scope.cancel()


async def pieces(end: Memory, size: int) -> list[bytes]:
    """So many bytes, as they arrive."""
    found: list[bytes] = []
    while sum(map(len, found)) < size:
        found.append(bytes(await end.receive_some(65536)))
    return found


async def test_what_is_late_arrives_whole(autojump_clock: MockClock) -> None:
    async with joined(Toxic(latency=3.0, jitter=1.0)) as (near, far):
        await far.send_all(b"late")
        assert await near.receive_some(100) == b"late"
        assert 3.0 <= trio.current_time() < 4.0


async def test_slices_are_those_of_the_seed(autojump_clock: MockClock) -> None:
    found = []
    for _ in range(2):
        async with joined(Toxic(slice=5, latency=0.1)) as (near, far):
            await far.send_all(bytes(range(100)))
            found.append(await pieces(near, 100))
    assert found[0] == found[1]
    assert b"".join(found[0]) == bytes(range(100))
    assert {len(piece) for piece in found[0][:-1]} == {1, 2, 3, 4, 5}


async def test_garbled_bytes_are_as_many_and_lines_stay_lines() -> None:
    async with joined(Toxic(spare=10, fate=Fate.GARBLE)) as (near, far):
        sent = b"0123456789" + b"abcdefghijklmno\n" * 200
        await far.send_all(sent)
        got = b"".join(await pieces(near, len(sent)))
        assert got != sent
        assert (got[:10], len(got), got.count(b"\n")) == (sent[:10], len(sent), sent.count(b"\n"))
