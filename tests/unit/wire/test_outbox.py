"""Which links are flushed, and who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.wire.outbox import MAX_WAITING, Outbox

if TYPE_CHECKING:
    from collections.abc import Callable


class CountingLink:
    """A link that counts flushes; `then` happens in the first one."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.queued = 0
        self.turns = 0
        self.is_held = False
        self.flushes = 0
        self._then = then

    def send(self, frame: object) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        self.flushes += 1
        if self.flushes == 1:
            self._then()

    async def run(self, on_lines: object, on_oversized: object) -> None:
        raise NotImplementedError


def test_the_outbox_flushes_what_was_touched_and_forgets_it() -> None:
    outbox, touched, other = Outbox(), CountingLink(), CountingLink()
    outbox.touch(touched)
    outbox.flush()
    outbox.flush()
    assert (touched.flushes, other.flushes) == (1, 0)


def test_what_is_touched_during_a_flush_is_flushed_too() -> None:
    outbox, second = Outbox(), CountingLink()
    first = CountingLink(then=lambda: outbox.touch(second))
    outbox.touch(first)
    outbox.flush()
    assert (first.flushes, second.flushes) == (1, 1)


@attrs.define(eq=False)
class Queue:
    """What waits for a client."""

    queued: int = 0
    max_queue: int = 100


@attrs.define(eq=False)
class Server:
    """Whoever reads, and how often it was told to go on."""

    resumed: int = 0

    def resume(self) -> None:
        self.resumed += 1


def held(outbox: Outbox, server: Server, *slow: Queue) -> bool:
    """Whether a server that has written to these, which are behind, has to wait."""
    outbox.slow.clear()
    for each in slow:
        outbox.fall_behind(each)
    return outbox.hold(server)


def test_as_long_as_there_is_room_nobody_waits() -> None:
    outbox, server = Outbox(max_waiting=1000), Server()
    assert not held(outbox, server, Queue(500), Queue(500))
    assert not outbox.held
    assert held(outbox, server, Queue(501))
    assert Outbox()._max_waiting == MAX_WAITING


def test_who_has_written_to_nobody_that_is_behind_does_not_wait() -> None:
    outbox, server = Outbox(max_waiting=100), Server()
    outbox.fall_behind(Queue(200))
    assert not held(outbox, server)


def test_who_waits_for_several_goes_on_with_the_last_of_them() -> None:
    outbox, server, other = Outbox(max_waiting=250), Server(), Server()
    one, two, three = Queue(200), Queue(200), Queue(200)
    assert held(outbox, server, one, two)
    assert held(outbox, other, one)
    outbox.fall_behind(three)
    outbox.catch_up(one)
    assert (server.resumed, other.resumed) == (0, 0)
    one.queued = 100
    outbox.catch_up(one)
    assert (server.resumed, other.resumed) == (0, 1)
    two.queued = 0
    outbox.catch_up(two)
    outbox.catch_up(two)
    assert (server.resumed, other.resumed) == (1, 1)


def test_when_there_is_room_again_all_go_on_whoever_has_made_it() -> None:
    outbox, server, one, two = Outbox(max_waiting=300), Server(), Queue(200), Queue(200)
    outbox.fall_behind(two)
    assert held(outbox, server, one)
    two.queued = 0
    outbox.catch_up(two)
    assert server.resumed == 1
    assert not outbox.held


def test_who_is_gone_is_not_told_to_go_on() -> None:
    outbox, server, queue = Outbox(max_waiting=100), Server(), Queue(200)
    assert held(outbox, server, queue)
    outbox.forget(server)
    queue.queued = 0
    outbox.catch_up(queue)
    assert server.resumed == 0
