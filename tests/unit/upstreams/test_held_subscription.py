"""One subscription is held with a modern server: to its lists, and to what clients follow at the moment."""

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.errors import UpstreamLost
from daemon.upstreams.events import ACK_SECONDS, REOPEN_FIRST, REOPEN_LATEST, HeldSubscription
from daemon.wire.envelope import RemoteError
from tests.unit.clients.inputs import raw
from tests.unit.upstreams.wishing import AskedServer, Wishing
from tests.waiting import background

LISTEN = "subscriptions/listen"
LISTS = {"toolsListChanged": True}


class Scene:
    """A subscription, its server, and how often lists may have changed unnoticed."""

    def __init__(self) -> None:
        self.wishing = Wishing()
        self.missed = 0
        self.held = HeldSubscription("alpha", self.wishing, self._miss)
        self.server = AskedServer()

    def _miss(self) -> None:
        self.missed += 1

    async def start(self, nursery: trio.Nursery, lists: dict[str, bool] = LISTS) -> None:
        await nursery.start(self.held.keep, self.server, lists)

    async def acknowledge(self, *uris: str) -> None:
        self.held.acknowledged(raw({"notifications": {**LISTS, "resourceSubscriptions": list(uris)}}))
        await trio.testing.wait_all_tasks_blocked()

    def asked(self) -> list[Any]:
        return [each["notifications"] for each in self.server.of(LISTEN)]


async def test_it_is_asked_for_before_anything_else_and_stays_as_it_is(nursery: trio.Nursery) -> None:
    scene = Scene()
    await scene.start(nursery)
    assert scene.asked() == [LISTS]
    await scene.acknowledge()
    await scene.wishing.wish(level="debug")
    assert (scene.asked(), len(scene.server.open), scene.missed) == ([], 1, 0)


async def test_it_is_renewed_for_other_resources_and_the_old_one_ends_only_then(nursery: trio.Nursery) -> None:
    scene = Scene()
    await scene.start(nursery)
    await scene.acknowledge()
    scene.asked()
    await scene.wishing.wish("a:2", "a:1")
    assert scene.asked() == [{**LISTS, "resourceSubscriptions": ["a:1", "a:2"]}]
    assert (len(scene.server.open), scene.wishing.outcomes) == (2, {})
    await scene.acknowledge("a:1")
    assert len(scene.server.open) == 1
    assert scene.wishing.outcomes["a:1"] is None
    assert "resources.subscribe" in str(scene.wishing.outcomes["a:2"])
    await scene.wishing.wish()
    assert scene.asked() == [LISTS]


async def test_nothing_is_asked_for_where_nothing_is_wanted(nursery: trio.Nursery) -> None:
    scene = Scene()
    await scene.start(nursery, {})
    assert scene.asked() == []
    await scene.wishing.wish("a:1")
    assert scene.asked() == [{"resourceSubscriptions": ["a:1"]}]


async def test_one_that_is_refused_is_asked_for_again_only_for_other_resources(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scene, refusal = Scene(), RemoteError(-32601, "no such method")
    scene.server.answer = lambda _method, _params: refusal
    await scene.start(nursery)
    await trio.sleep(10 * REOPEN_LATEST)
    assert scene.asked() == [LISTS]
    await scene.wishing.wish("a:1")
    assert (len(scene.asked()), scene.wishing.outcomes, scene.missed) == (1, {"a:1": refusal}, 0)


@pytest.mark.parametrize("gracefully", [True, False])
async def test_one_that_ends_is_opened_again_and_what_was_missed_is_looked_at(
    nursery: trio.Nursery, autojump_clock: MockClock, *, gracefully: bool
) -> None:
    scene = Scene()
    await scene.wishing.wish("a:1")
    await scene.start(nursery)
    await scene.acknowledge("a:1")
    assert scene.wishing.updated == []
    if not gracefully:
        scene.server.answer = lambda _method, _params: UpstreamLost("the stream broke")
    scene.server.end.set()
    await trio.sleep(REOPEN_FIRST / 2)
    assert len(scene.asked()) == 1
    scene.server.end = trio.Event()
    scene.server.answer = lambda _method, _params: None
    await trio.sleep(REOPEN_FIRST)
    assert len(scene.asked()) == 1
    await scene.acknowledge("a:1")
    assert (scene.missed, scene.wishing.updated, len(scene.server.open)) == (1, ["a:1"], 1)


async def test_one_that_ends_again_and_again_is_opened_more_and_more_rarely(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scene = Scene()
    scene.server.answer = lambda _method, _params: UpstreamLost("the stream broke")
    await scene.start(nursery)
    await trio.sleep(10 * REOPEN_LATEST)
    assert 10 <= len(scene.asked()) <= 16


async def test_over_a_new_connection_what_was_followed_before_may_have_changed(nursery: trio.Nursery) -> None:
    scene = Scene()
    await scene.wishing.wish("a:1")
    async with background() as connected:
        await scene.start(connected)
        await scene.acknowledge("a:1")
    await scene.wishing.wish("a:1", "a:2")
    await scene.start(nursery)
    await scene.acknowledge("a:1", "a:2")
    assert (scene.wishing.updated, scene.missed) == (["a:1"], 0)


@pytest.mark.parametrize("params", [None, [], {}, {"notifications": {"resourceSubscriptions": "all"}}])
async def test_an_acknowledgement_that_never_comes_or_cannot_be_read_counts_for_what_was_wished(
    nursery: trio.Nursery, mock_clock: MockClock, params: object
) -> None:
    scene = Scene()
    await scene.wishing.wish("a:1")
    await scene.start(nursery)
    if params is None:
        mock_clock.jump(ACK_SECONDS + 1)
    else:
        scene.held.acknowledged(raw(params))
    await trio.testing.wait_all_tasks_blocked()
    assert scene.wishing.outcomes == {"a:1": None}
