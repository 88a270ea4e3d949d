"""The writing half of a link: frames whole and in order, and nobody waits for who does not read."""

from __future__ import annotations

import os

import trio
import trio.testing
from msgspec import Raw
from trio.testing import wait_all_tasks_blocked

from daemon.wire.link import IOV_MAX, JOIN_BELOW, STUCK_SECONDS
from tests.unit.wire.linked import MIB, answering, pipe_link, receive, receive_all, socket_link


async def test_nothing_is_written_before_the_flush_and_everything_in_order_by_it() -> None:
    with trio.fail_after(30), socket_link() as (near, far):
        near.link.send((b"a", Raw(b"{}"), b"", memoryview(b"b")))
        near.link.send((b"c",))
        assert (near.link.queued, len(near.outbox)) == (7, 1)
        with trio.move_on_after(0):
            assert not await far.receive_some(1)
        near.outbox.flush()
        assert near.link.queued == 0
        assert await receive(far, 7) == b"a{}b\nc\n"


async def test_frames_are_written_whole_and_in_order_to_a_peer_that_reads_slowly() -> None:
    frames = [b"%d:" % number + b"x" * (number * 37 % 5000) for number in range(500)]
    expected = b"".join(frame + b"\n" for frame in frames)
    with trio.fail_after(30), socket_link() as (near, far):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.run)

            async def speak() -> None:
                for start in range(0, len(frames), 10):
                    near.say(*frames[start : start + 10])
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(speak)
            assert await receive(far, len(expected)) == expected
            await wait_all_tasks_blocked()
            assert near.link.queued == 0
            nursery.cancel_scope.cancel()


async def test_a_queue_of_more_buffers_than_one_writev_takes_is_written_in_order() -> None:
    pieces = tuple(b"%06d" % number for number in range(JOIN_BELOW))
    assert len(pieces) > IOV_MAX
    with trio.fail_after(30), socket_link() as (near, far):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.run)
            near.link.send(pieces)
            near.outbox.flush()
            assert await receive(far, len(pieces) * 6 + 1) == b"".join(pieces) + b"\n"
            nursery.cancel_scope.cancel()


async def test_a_frame_of_megabytes_arrives_unharmed_between_small_ones() -> None:
    big = os.urandom(MIB).replace(b"\n", b" ") * 3
    with trio.fail_after(30), socket_link(max_queue=1) as (near, far):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.run)
            near.link.send((b"before:", big))
            near.outbox.flush()
            assert await receive(far, len(big) + 8) == b"before:" + big + b"\n"
            near.say(b"after")
            assert await receive(far, 6) == b"after\n"
            nursery.cancel_scope.cancel()


async def test_a_peer_that_takes_nothing_for_long_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    with socket_link(max_queue=MIB) as (near, far):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.run)
            for _ in range(4):
                near.say(b"x" * MIB)
            await trio.sleep(STUCK_SECONDS - 1)
            assert not near.ended
        assert trio.current_time() == STUCK_SECONDS
        assert near.ended.startswith("the peer does not read")
        assert near.link.queued == 0
        near.say(b"too late")
        assert near.link.queued == 0
        near.link.close()
        assert b"too late" not in await receive_all(far)


async def test_a_peer_that_does_not_read_harms_nobody_else() -> None:
    with trio.fail_after(30), socket_link() as (stuck, _), socket_link(outbox=stuck.outbox) as (near, far):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stuck.run)
            nursery.start_soon(near.run)
            stuck.say(b"x" * MIB)
            near.say(b"fine")
            assert await receive(far, 5) == b"fine\n"
            assert stuck.link.queued > 0
            nursery.cancel_scope.cancel()


async def test_a_peer_is_not_read_from_while_its_answers_wait() -> None:
    with trio.fail_after(30), socket_link(pause_at=MIB) as (near, far):
        near.then = answering(near, lambda _: b"y" * 2 * MIB)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.run)
            await far.send_all(b"one\n")
            await wait_all_tasks_blocked()
            await far.send_all(b"two\n")
            await wait_all_tasks_blocked()
            assert near.lines == [b"one"]
            await receive(far, MIB + MIB // 2)
            await wait_all_tasks_blocked()
            assert near.lines == [b"one", b"two"], "enough has drained"
            nursery.cancel_scope.cancel()


async def test_closing_our_direction_is_eof_for_the_child_and_its_last_words_still_come_in() -> None:
    with trio.fail_after(30), pipe_link() as (near, far_write, far_read):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.run)
            near.say(b"bye")
            await wait_all_tasks_blocked()
            near.link.close_write()
            near.link.close_write()
            near.say(b"not sent")
            assert os.read(far_read, 100) == b"bye\n"
            assert os.read(far_read, 100) == b""
            os.write(far_write, b"last words\n")
            await wait_all_tasks_blocked()
            assert near.lines == [b"last words"]
            os.close(far_write)
    assert near.ended == "the peer closed the connection"


async def test_closing_our_direction_while_it_is_blocked_does_not_end_the_other() -> None:
    with trio.fail_after(30), pipe_link() as (near, far_write, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.run)
            near.say(b"x" * MIB)
            await wait_all_tasks_blocked()
            near.link.close_write()
            await wait_all_tasks_blocked()
            os.write(far_write, b"last words\n")
            await wait_all_tasks_blocked()
            assert near.lines == [b"last words"]
            nursery.cancel_scope.cancel()


async def test_a_socket_has_no_direction_of_its_own_to_close() -> None:
    with trio.fail_after(30), socket_link() as (near, far):
        near.link.close_write()
        near.say(b"still here")
        assert await receive(far, 11) == b"still here\n"
