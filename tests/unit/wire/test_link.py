"""Links over real sockets and pipes: nothing torn, lost, reordered or leaked, whatever the other side does."""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import struct
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
import trio.testing
from msgspec import Raw
from trio.testing import wait_all_tasks_blocked

from daemon.errors import ConnectionLost, ProtocolFault
from daemon.wire import link
from daemon.wire.outbox import Outbox
from tests.unit.wire import linked
from tests.waiting import background, beside

if TYPE_CHECKING:
    from collections.abc import Iterator


# --- reading ----------------------------------------------------------------------------------------------


async def test_an_oversized_line_is_told_by_its_head_and_the_next_one_comes_in() -> None:
    async with linked.running(linked.socket_link(max_line=1000)) as (near, far):
        await far.send_all(b"x" * 500_000 + b"\nnext\n" + b"y" * 1001 + b"\nlast\n")
        await wait_all_tasks_blocked()
        assert (near.lines, [head[:1] for head in near.heads]) == ([b"next", b"last"], [b"x", b"y"])


async def test_a_peer_that_hangs_up_ends_the_link_and_its_unfinished_line_is_nobodys() -> None:
    with trio.fail_after(30), linked.socket_link() as (near, far):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.run)
            await far.send_all(b'whole\n{"id":1,"half')
            await far.aclose()
    assert near.lines == [b"whole"]
    assert near.ended == "the peer closed the connection"


@pytest.mark.process
async def test_a_reset_ends_the_link_with_the_systems_own_words() -> None:
    with trio.fail_after(30):
        listener = socket.create_server(("127.0.0.1", 0))
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        listener.close()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        ours.setblocking(False)
        fd = ours.detach()
        near = linked.near_end(fd, fd)
        await near.run()
        near.link.close()
    assert near.ended == "reading failed: Connection reset by peer"


async def test_a_peer_that_floods_gives_everybody_else_a_turn() -> None:
    seen_by_others = [0]
    line = b"x" * (link.READ_BYTES // 16 - 1) + b"\n"
    async with linked.running(linked.pipe_link()) as (near, far_write, _):
        os.set_blocking(far_write, False)
        fcntl.fcntl(far_write, fcntl.F_SETPIPE_SZ, linked.MIB)

        def refill() -> None:
            with suppress(BlockingIOError):
                while True:
                    os.write(far_write, line)

        # As fast as it is read, for the peer writes whenever a line of his is handed over.
        near.then = lambda _: refill()
        refill()
        while seen_by_others[-1] < 16 * link.READS_PER_TURN * 16:
            await trio.lowlevel.checkpoint()
            seen_by_others.append(len(near.lines))
    turns = [later - earlier for earlier, later in itertools.pairwise(seen_by_others)]
    # A turn of the others may fall before ours in one round of the loop and after it in the next; and one of
    # ours may read twice, to catch up and because more has come.
    assert max(turns) <= 4 * link.READS_PER_TURN * 17


async def test_a_peer_that_says_nothing_but_line_ends_gives_everybody_else_a_turn() -> None:
    seen_by_others = [0]
    with trio.fail_after(30), linked.socket_link() as (near, far):
        async with beside(near.run) as nursery:
            nursery.start_soon(far.send_all, b"\n" * 30_000 + b"last\n")
            while near.lines[-1:] != [b"last"]:
                await trio.lowlevel.checkpoint()
                seen_by_others.append(len(near.lines))
    turns = [later - earlier for earlier, later in itertools.pairwise(seen_by_others)]
    assert len(near.lines) == 30_001
    # As above: the last portion of one read may be followed by the first of the next.
    assert max(turns) <= 4 * link.LINES_PER_TURN


async def test_what_the_owner_raises_ends_the_link_and_no_other() -> None:
    def fails(lines: list[bytes]) -> None:
        raise ProtocolFault(f"not {lines[0].decode()}")

    with linked.socket_link() as (bad, far_bad):
        async with linked.running(linked.socket_link(outbox=bad.outbox)) as (near, far):
            bad.then = fails
            near.then = linked.answering(near, lambda line: line.upper())
            await far_bad.send_all(b"this\n")
            with pytest.raises(ProtocolFault, match="not this"):
                await bad.run()
            await far.send_all(b"a\n")
            assert await linked.receive(far, 2) == b"A\n"


async def test_what_the_owner_raises_in_a_later_portion_ends_the_link_too() -> None:
    with trio.fail_after(30), linked.socket_link() as (near, far):

        def fails_later(_: list[bytes]) -> None:
            if len(near.lines) > link.LINES_PER_TURN:
                raise ProtocolFault("too much")

        near.then = fails_later
        await far.send_all(b"\n" * link.LINES_PER_TURN * 3)
        with pytest.raises(ProtocolFault, match="too much"):
            await near.run()
    assert len(near.lines) == link.LINES_PER_TURN + link.LINES_AT_ONCE


async def test_a_turn_ends_where_the_peer_had_said_all_that_it_had_to_say() -> None:
    turns: list[int] = []
    async with linked.running(linked.socket_link()) as (near, far):
        near.then = lambda lines: turns.extend([near.link.turns] * len(lines))
        long = b"x" * link.SHORT_READ + b"\nlast\n"
        many = b"\n" * link.LINES_PER_TURN * 2 + b"x" * link.SHORT_READ + b"\n"
        for said in (b"one\ntwo\n", long, many, b"after many\n"):
            await far.send_all(said)
            await wait_all_tasks_blocked()
    assert [len(list(same)) for _, same in itertools.groupby(turns)] == [2, 2, link.LINES_PER_TURN * 2 + 1, 1]


async def test_who_was_not_read_from_for_a_while_has_ended_a_turn_when_he_had_said_all() -> None:
    turns: list[int] = []
    async with linked.running(linked.socket_link(pause_at=linked.MIB)) as (near, far):

        def then(lines: list[bytes]) -> None:
            turns.extend([near.link.turns] * len(lines))
            near.link.send((b"y" * 2 * linked.MIB,))

        near.then = then
        for _ in range(2):
            await far.send_all(b"x" * link.SHORT_READ + b"\n")
            await linked.receive(far, 2 * linked.MIB + 1)
            await wait_all_tasks_blocked()
    first, second = turns
    assert first < second


# --- those who are behind, and those who wait for them ----------------------------------------------------


@contextmanager
def served(
    *, clients: int = 1, max_waiting: int = 2 * linked.MIB
) -> Iterator[tuple[linked.Near, trio.SocketStream, list[Far]]]:
    """A server's link whose lines go to clients in turn, its far end, and the clients."""
    with ExitStack() as stack:
        outbox = Outbox(max_waiting=max_waiting)
        server, far = stack.enter_context(linked.socket_link(max_line=16 * linked.MIB, outbox=outbox))
        ends = []
        for _ in range(clients):
            client, end = stack.enter_context(
                linked.socket_link(max_queue=linked.MIB, pause_at=linked.MIB, outbox=outbox)
            )
            ends.append(Far(client, end))

        def then(lines: list[bytes]) -> None:
            for line in lines:
                ends[line[0] - ord("0")].near.link.send((line,))

        server.then = then
        yield server, far, ends


@attrs.frozen
class Far:
    near: linked.Near
    end: trio.SocketStream


def is_held(near: linked.Near) -> bool:
    return near.link.is_held


def line_for(client: int, size: int) -> bytes:
    return b"%d" % client + b"x" * (size - 2) + b"\n"


async def test_a_server_waits_for_a_client_that_is_behind_and_nothing_is_lost() -> None:
    lines = [line_for(0, linked.MIB - number) for number in range(12)]
    with trio.fail_after(30), served() as (server, far, (slow,)):
        async with beside(server.run) as nursery:
            nursery.start_soon(slow.near.run)
            nursery.start_soon(far.send_all, b"".join(lines))
            await wait_all_tasks_blocked()
            assert is_held(server)
            assert 2 * linked.MIB < slow.near.link.queued < 6 * linked.MIB
            assert await linked.receive(slow.end, sum(map(len, lines))) == b"".join(lines)
            await wait_all_tasks_blocked()
            assert not is_held(server)


@pytest.mark.parametrize("how", ["goes", "is closed here", "takes nothing for long"])
async def test_a_server_is_read_again_when_the_client_that_was_behind_is_no_more(
    how: str, autojump_clock: trio.testing.MockClock
) -> None:
    with trio.fail_after(3 * link.STUCK_SECONDS), served(clients=2) as (server, far, (slow, other)):
        async with background() as nursery:
            for each in (server, slow.near, other.near):
                nursery.start_soon(each.run)
            nursery.start_soon(far.send_all, line_for(0, linked.MIB) * 8 + line_for(1, 10))
            while not is_held(server):
                await trio.lowlevel.checkpoint()
            if how == "goes":
                await slow.end.aclose()
            elif how == "is closed here":
                slow.near.link.close()
            assert await linked.receive(other.end, 10) == line_for(1, 10)
            assert slow.near.ended


async def test_a_server_that_goes_while_it_is_held_is_forgotten() -> None:
    with trio.fail_after(30), served() as (server, far, (slow,)):
        async with beside(server.run) as nursery:
            nursery.start_soon(slow.near.run)
            nursery.start_soon(far.send_all, line_for(0, linked.MIB) * 4)
            await wait_all_tasks_blocked()
            assert is_held(server)
            server.link.close()
            assert not any(server.outbox.held.values())


async def test_a_client_that_asks_for_much_at_once_is_answered_as_it_reads() -> None:
    asked = 4 * link.LINES_AT_ONCE
    size = linked.MIB // 8
    async with linked.running(linked.socket_link(pause_at=size)) as (near, far):
        near.then = linked.answering(near, lambda _: b"y" * (size - 1))
        await far.send_all(b"more\n" * asked)
        await wait_all_tasks_blocked()
        assert len(near.lines) == link.LINES_AT_ONCE
        assert await linked.receive(far, asked * size)
        assert len(near.lines) == asked


async def test_a_client_that_holds_a_server_for_long_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    with served() as (server, far, (slow,)):
        async with beside(server.run) as nursery:
            nursery.start_soon(slow.near.run)
            nursery.start_soon(far.send_all, line_for(0, linked.MIB) * 8)
            while not is_held(server):
                await trio.lowlevel.checkpoint()
            with trio.move_on_after(3 * link.LOOK_SECONDS):
                while not slow.near.ended:
                    await linked.receive(slow.end, 16 * 1024)
                    await trio.sleep(1)
            assert slow.near.ended.startswith("the peer does not read")
            assert not is_held(server)


async def test_a_client_that_reads_a_little_is_not_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    async with linked.running(linked.socket_link(max_queue=linked.MIB, pause_at=linked.MIB)) as (near, far):
        near.say(b"x" * 4 * linked.MIB)
        for _ in range(20):
            await trio.sleep(link.STUCK_SECONDS - 1)
            await linked.receive(far, 16 * 1024)
        assert not near.ended


@pytest.mark.parametrize("lines", [0, link.LINES_PER_TURN + 1])
async def test_writing_to_who_has_gone_ends_the_link_when_all_it_said_is_taken_in(lines: int) -> None:
    """It answered and ended; we notice by a write of somebody else's before we have read."""
    with trio.fail_after(30), linked.pipe_link() as (near, far_write, far_read):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.run)
            await wait_all_tasks_blocked()
            os.write(far_write, b"answer\n" * lines)
            os.close(far_read)
            near.say(b"anybody?")
    assert (near.ended, near.link.queued) == ("writing failed: Broken pipe", 0)
    assert near.lines == [b"answer"] * lines


async def test_a_link_that_cannot_be_waited_for_ends_and_the_others_are_flushed() -> None:
    with tempfile.TemporaryFile() as file, linked.socket_link() as (near, far), trio.fail_after(30):
        # No epoll takes a file of a disk (epoll_ctl(2), EPERM).
        odd = linked.near_end(os.dup(file.fileno()), os.dup(file.fileno()), outbox=near.outbox)
        with pytest.raises(ConnectionLost, match="cannot watch its descriptor: Operation not permitted"):
            await odd.link.run(odd)
        near.say(b"fine")
        assert await linked.receive(far, 5) == b"fine\n"
        odd.link.close()


async def test_what_fails_before_the_link_runs_ends_it_when_it_does() -> None:
    with trio.fail_after(30), linked.pipe_link() as (near, _, far_read):
        os.close(far_read)
        near.say(b"anybody?")
        await near.run()
    assert near.ended == "writing failed: Broken pipe"


# --- closing ----------------------------------------------------------------------------------------------


async def test_after_close_nothing_is_written_and_nothing_waits() -> None:
    with trio.fail_after(30), linked.socket_link() as (near, far):
        near.link.send((b"queued",))
        near.link.close()
        near.say(b"later")
        near.link.writer.flush()
        near.link.close()
        assert near.link.queued == 0
        assert await linked.receive_all(far) == b""


async def test_a_closed_link_ends_and_keeps_nothing_that_waited() -> None:
    with trio.fail_after(30), linked.socket_link(max_line=8 * linked.MIB) as (near, far):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.run)
            await far.send_all(b"x" * 4 * linked.MIB)
            await wait_all_tasks_blocked()
            assert near.link._lines.held == 4 * linked.MIB
            near.say(b"x" * linked.MIB)
            await wait_all_tasks_blocked()
            assert near.link.queued
            near.link.close()
        assert near.ended
        assert (near.link._lines.held, near.link.queued) == (0, 0)


async def test_a_closed_link_never_touches_a_descriptor_that_took_its_number() -> None:
    async with linked.running(linked.socket_link(pause_at=1)) as (near, far):
        near.then = linked.answering(near, lambda _: b"y" * linked.MIB)
        await far.send_all(b"one\n")
        await wait_all_tasks_blocked()
        taken = near.link._read_fd
        near.link.close()
        stranger, other = socket.socketpair()
        with stranger, other:
            assert stranger.fileno() == taken
            stranger.setblocking(False)
            other.sendall(b"not yours\n")
            await wait_all_tasks_blocked()
            assert stranger.recv(100) == b"not yours\n"
    assert near.lines == [b"one"]


@pytest.mark.parametrize("how", ["hang up", "cancel", "cut off"])
async def test_links_leak_no_descriptors_at_their_end(how: str, autojump_clock: trio.testing.MockClock) -> None:
    before = linked.open_descriptors()
    with trio.fail_after(100 * link.STUCK_SECONDS):
        for _ in range(3):
            with linked.socket_link(max_queue=1) as (near, far):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(near.run)
                    await wait_all_tasks_blocked()
                    if how == "hang up":
                        await far.aclose()
                    elif how == "cancel":
                        nursery.cancel_scope.cancel()
                    else:
                        near.say(b"x" * linked.MIB)
            with linked.pipe_link() as (near, _, _):
                near.link.close_write()
            with linked.pipe_link():
                pass
    assert linked.open_descriptors() == before


async def test_nothing_is_written_before_the_flush_and_everything_in_order_by_it() -> None:
    with trio.fail_after(30), linked.socket_link() as (near, far):
        near.link.send((b"a", Raw(b"{}"), b"", memoryview(b"b")))
        near.link.send((b"c",))
        assert (near.link.queued, len(near.outbox)) == (7, 1)
        with trio.move_on_after(0):
            assert not await far.receive_some(1)
        near.outbox.flush()
        assert near.link.queued == 0
        assert await linked.receive(far, 7) == b"a{}b\nc\n"


async def test_frames_are_written_whole_and_in_order_to_a_peer_that_reads_slowly() -> None:
    frames = [b"%d:" % number + b"x" * (number * 37 % 5000) for number in range(500)]
    expected = b"".join(frame + b"\n" for frame in frames)
    with trio.fail_after(30), linked.socket_link() as (near, far):
        async with beside(near.run) as nursery:

            async def speak() -> None:
                for start in range(0, len(frames), 10):
                    near.say(*frames[start : start + 10])
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(speak)
            assert await linked.receive(far, len(expected)) == expected
            await wait_all_tasks_blocked()
            assert near.link.queued == 0


async def test_a_queue_of_more_buffers_than_one_writev_takes_is_written_in_order() -> None:
    pieces = tuple(b"%06d" % number for number in range(link.JOIN_BELOW))
    assert len(pieces) > link.IOV_MAX
    async with linked.running(linked.socket_link()) as (near, far):
        near.link.send(pieces)
        near.outbox.flush()
        assert await linked.receive(far, len(pieces) * 6 + 1) == b"".join(pieces) + b"\n"


async def test_a_frame_of_megabytes_arrives_unharmed_between_small_ones() -> None:
    big = os.urandom(linked.MIB).replace(b"\n", b" ") * 3
    async with linked.running(linked.socket_link(max_queue=1)) as (near, far):
        near.link.send((b"before:", big))
        near.outbox.flush()
        assert await linked.receive(far, len(big) + 8) == b"before:" + big + b"\n"
        near.say(b"after")
        assert await linked.receive(far, 6) == b"after\n"


async def test_a_peer_that_takes_nothing_for_long_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    with linked.socket_link(max_queue=linked.MIB) as (near, far):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.run)
            for _ in range(4):
                near.say(b"x" * linked.MIB)
            await trio.sleep(link.STUCK_SECONDS - 1)
            assert not near.ended
        assert trio.current_time() == link.STUCK_SECONDS
        assert near.ended.startswith("the peer does not read")
        assert near.link.queued == 0
        near.say(b"too late")
        assert near.link.queued == 0
        near.link.close()
        assert b"too late" not in await linked.receive_all(far)


async def test_a_peer_that_does_not_read_harms_nobody_else() -> None:
    with (
        trio.fail_after(30),
        linked.socket_link() as (stuck, _),
        linked.socket_link(outbox=stuck.outbox) as (near, far),
    ):
        async with beside(stuck.run) as nursery:
            nursery.start_soon(near.run)
            stuck.say(b"x" * linked.MIB)
            near.say(b"fine")
            assert await linked.receive(far, 5) == b"fine\n"
            assert stuck.link.queued > 0


async def test_a_peer_is_not_read_from_while_its_answers_wait() -> None:
    async with linked.running(linked.socket_link(pause_at=linked.MIB)) as (near, far):
        near.then = linked.answering(near, lambda _: b"y" * 2 * linked.MIB)
        await far.send_all(b"one\n")
        await wait_all_tasks_blocked()
        await far.send_all(b"two\n")
        await wait_all_tasks_blocked()
        assert near.lines == [b"one"]
        await linked.receive(far, linked.MIB + linked.MIB // 2)
        await wait_all_tasks_blocked()
        assert near.lines == [b"one", b"two"], "enough has drained"


async def test_closing_our_direction_is_eof_for_the_child_and_its_last_words_still_come_in() -> None:
    with trio.fail_after(30), linked.pipe_link() as (near, far_write, far_read):
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
    async with linked.running(linked.pipe_link()) as (near, far_write, _):
        near.say(b"x" * linked.MIB)
        await wait_all_tasks_blocked()
        near.link.close_write()
        await wait_all_tasks_blocked()
        os.write(far_write, b"last words\n")
        await wait_all_tasks_blocked()
        assert near.lines == [b"last words"]


async def test_a_socket_has_no_direction_of_its_own_to_close() -> None:
    with trio.fail_after(30), linked.socket_link() as (near, far):
        near.link.close_write()
        near.say(b"still here")
        assert await linked.receive(far, 11) == b"still here\n"
