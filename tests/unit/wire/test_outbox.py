"""The outbox flushes each touched link once, and holds sources while too much waits for slow links."""

from __future__ import annotations

from typing import Any

import attrs

from daemon.wire.outbox import MAX_WAITING, Outbox


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
