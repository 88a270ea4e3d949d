"""The outbox flushes each touched link once, and holds sources while too much waits for slow links."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import trio
from loguru import logger
from trio.testing import wait_all_tasks_blocked

from daemon.wire.outbox import EVENTS_AT_ONCE, IN, MAX_SKIPS, MAX_WAITING, OUT, Outbox, Poll
from tests.unit.wire.linked import open_descriptors
from tests.waiting import until


@attrs.define(eq=False)
class Queue:
    """A link that more than 100 bytes put behind."""

    queued: int
    max_queue: int = 100


class Scene:
    """An outbox, and the sources that it has resumed, by name."""

    def __init__(self, max_waiting: int) -> None:
        self.outbox = Outbox(max_waiting=max_waiting)
        self.resumed: list[str] = []
        self.server = lambda: self.resumed.append("server")
        self.other = lambda: self.resumed.append("other")

    def hold(self, source: Any, *slow: Any) -> bool:
        """Whether a source that has written to these, which are behind, has to wait."""
        self.outbox.slow.clear()
        for each in slow:
            self.outbox.fall_behind(each)
        return self.outbox.hold(source)

    def shrink(self, link: Any, queued: int) -> list[str]:
        link.queued = queued
        self.outbox.catch_up(link)
        return self.resumed


def test_a_flush_writes_each_touched_link_once_and_those_touched_meanwhile() -> None:
    outbox, written = Outbox(), []

    def first() -> None:
        written.append("first")
        outbox.touch(lambda: written.append("second"))

    outbox.touch(first)
    outbox.flush()
    outbox.flush()
    assert written == ["first", "second"]
    assert not len(outbox)


def test_a_source_waits_only_for_slow_links_that_it_has_written_to_and_only_without_room() -> None:
    scene = Scene(max_waiting=1000)
    assert not scene.hold(scene.server, Queue(500), Queue(500))
    assert not scene.outbox.held
    assert scene.hold(scene.server, Queue(501))
    assert not scene.hold(scene.other)
    assert Outbox()._max_waiting == MAX_WAITING


def test_a_source_that_waits_for_several_links_resumes_once_with_the_last() -> None:
    scene = Scene(max_waiting=250)
    one, two, three = Queue(200), Queue(200), Queue(200)
    assert scene.hold(scene.server, one, two)
    assert scene.hold(scene.other, one)
    scene.outbox.fall_behind(three)
    assert scene.shrink(one, 200) == []
    assert scene.shrink(one, 100) == ["other"]
    assert scene.shrink(two, 0) == ["other", "server"]
    assert scene.shrink(two, 0) == ["other", "server"]


def test_all_sources_resume_once_any_link_has_made_room() -> None:
    scene, one, two = Scene(max_waiting=300), Queue(200), Queue(200)
    scene.outbox.fall_behind(two)
    assert scene.hold(scene.server, one)
    assert scene.shrink(two, 0) == ["server"]
    assert not scene.outbox.held


def test_a_source_that_has_ended_is_not_resumed() -> None:
    scene, slow = Scene(max_waiting=100), Queue(200)
    assert scene.hold(scene.server, slow)
    scene.outbox.forget(scene.server)
    assert scene.shrink(slow, 0) == []


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end, both non-blocking."""
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    try:
        yield ends
    finally:
        for fd in ends:
            os.close(fd)


def reading(fd: int, into: list[bytes]) -> Callable[[int], None]:
    """An owner that reads what is there."""

    def on_ready(_: int) -> None:
        into.append(os.read(fd, 100))

    return on_ready


async def test_who_is_ready_is_called_until_he_is_not() -> None:
    got: list[bytes] = []
    with pipe() as (read_fd, write_fd):
        poll = Poll(after=lambda: None)
        poll.watch(read_fd, IN, lambda _: got.append(os.read(read_fd, 1)))
        os.write(write_fd, b"abc")
        await until(lambda: got == [b"a", b"b", b"c"])
        poll.watch(read_fd, 0, reading(read_fd, got))
        os.write(write_fd, b"d")
        await wait_all_tasks_blocked()
        assert got == [b"a", b"b", b"c"]


async def test_one_that_is_forgotten_while_it_is_ready_is_not_called() -> None:
    calls: list[str] = []
    with pipe() as (one, to_one), pipe() as (two, to_two):
        poll = Poll(after=lambda: None)

        def only(name: str) -> Callable[[int], None]:
            def on_ready(_: int) -> None:
                calls.append(name)
                poll.watch(one, 0, on_ready)
                poll.watch(two, 0, on_ready)

            return on_ready

        poll.watch(one, IN, only("one"))
        poll.watch(two, IN, only("two"))
        os.write(to_one, b"x")
        os.write(to_two, b"x")
        await until(lambda: calls)
        await wait_all_tasks_blocked()
        assert len(calls) == 1


async def test_a_fault_of_one_is_logged_and_the_others_are_served() -> None:
    got: list[bytes] = []
    told: list[str] = []
    sink = logger.add(lambda message: told.append(str(message)), level="ERROR")
    with pipe() as (bad, to_bad), pipe() as (good, to_good):
        poll = Poll(after=lambda: None)

        def fails(_: int) -> None:
            poll.watch(bad, 0, fails)
            raise RuntimeError("a bug")

        poll.watch(bad, IN, fails)
        poll.watch(good, IN, reading(good, got))
        os.write(to_bad, b"x")
        os.write(to_good, b"fine")
        await until(lambda: got)
        poll.watch(good, 0, fails)
    logger.remove(sink)
    assert got == [b"fine"]
    assert "a bug" in told[0]


async def test_more_than_fit_into_one_look_are_all_served() -> None:
    got: list[bytes] = []
    with trio.fail_after(30):
        pipes = [os.pipe() for _ in range(EVENTS_AT_ONCE * 2 + 1)]
        poll = Poll(after=lambda: None)
        for read_fd, write_fd in pipes:
            poll.watch(read_fd, IN, reading(read_fd, got))
            os.write(write_fd, b"x")
        await until(lambda: len(got) == len(pipes))
        for read_fd, write_fd in pipes:
            poll.watch(read_fd, 0, lambda _: None)
            os.close(read_fd)
            os.close(write_fd)


async def test_a_poll_that_watches_nobody_holds_nothing_and_may_begin_again() -> None:
    got: list[bytes] = []
    poll = Poll(after=lambda: None)
    with pipe() as (read_fd, write_fd):
        before = open_descriptors()
        for said in (b"one", b"two"):
            poll.watch(read_fd, IN, reading(read_fd, got))
            os.write(write_fd, said)
            await wait_all_tasks_blocked()
            assert got.pop() == said
            poll.watch(read_fd, 0, lambda _: None)
            assert open_descriptors() == before


def test_a_poll_ends_with_its_run_and_closes_its_descriptor() -> None:
    async def watch_something() -> None:
        poll.watch(read_fd, IN, lambda _: None)
        await wait_all_tasks_blocked()

    poll = Poll(after=lambda: None)
    with pipe() as (read_fd, _):
        before = open_descriptors()
        for _ in range(2):
            trio.run(watch_something)
            assert open_descriptors() == before


async def test_guests_have_turns_in_order_and_everybody_else_has_one_between_any_two() -> None:
    order: list[str] = []
    with pipe() as (local, to_local), pipe() as (_, one), pipe() as (_, two), pipe() as (_, three):
        poll = Poll(after=lambda: None)

        def as_guest(name: str) -> Callable[[int], None]:
            def on_ready(_: int) -> None:
                order.append(name)
                os.write(to_local, b"x")

            return on_ready

        def as_local(_: int) -> None:
            order.append(f"local after {order[-1]}")
            os.read(local, 100)

        poll.watch(local, IN, as_local)
        for name, fd in (("one", one), ("two", two), ("three", three)):
            poll.guests.watch(fd, OUT, as_guest(name))  # always ready: none of them is ever done
        await until(lambda: len(order) >= 12)
        for fd in (one, two, three):
            poll.guests.watch(fd, 0, lambda _: None)
        poll.watch(local, 0, as_local)
    turns = [f"{each}{name}" for name in ("one", "two", "three") for each in ("", "local after ")]
    first = turns.index(order[0])
    assert order[:12] == [*turns[first:], *turns, *turns][:12]


async def test_what_a_guest_leaves_for_later_waits_for_the_other_guests() -> None:
    order: list[str] = []
    with pipe() as (_, one), pipe() as (_, two):
        poll = Poll(after=lambda: None)

        def leaves_some(_: int) -> None:
            order.append("one")
            poll.guests.watch(one, 0, leaves_some)
            poll.guests.soon(lambda: order.append("the rest of one"))

        def is_done(_: int) -> None:
            order.append("two")
            poll.guests.watch(two, 0, is_done)

        poll.guests.watch(one, OUT, leaves_some)
        poll.guests.watch(two, OUT, is_done)
        await until(lambda: len(order) == 3)
    assert "the rest of one" in order[1:]


def test_lingering_that_never_pays_is_tried_again_after_a_bounded_number_of_turns() -> None:
    poll = Poll(after=lambda: None)
    for _ in range(MAX_SKIPS):
        poll._learn(paid=False)
    assert [bool(poll._next_linger()) for _ in range(MAX_SKIPS + 1)] == [False] * MAX_SKIPS + [True]
