"""What clients want beside answers is asked of a server once, and again over a new connection."""

import attrs
import pytest
import trio
import trio.testing

from daemon.model import Era
from daemon.upstreams.events import ASK_SECONDS, LEAST_TALKATIVE, RETRY_SECONDS, WatchedServer
from daemon.upstreams.handshake import Greeting
from daemon.wire.envelope import RemoteError
from tests.unit.upstreams.wishing import AskedServer, Wishing
from tests.waiting import background

GREETING = Greeting(
    era=Era.HANDSHAKE, version="2025-11-25", lists_tools=True, server_info="alpha 1", logs=True, updates=True
)
SUBSCRIBE, UNSUBSCRIBE, SET_LEVEL = "resources/subscribe", "resources/unsubscribe", "logging/setLevel"


@pytest.fixture
def clock(autojump_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    return autojump_clock


async def keep(nursery: trio.Nursery, watched: WatchedServer, greeting: Greeting = GREETING) -> AskedServer:
    server = AskedServer()
    nursery.start_soon(watched.keep, server, greeting)
    await trio.testing.wait_all_tasks_blocked()
    return server


async def test_a_level_is_asked_for_only_once_somebody_has_set_one(nursery: trio.Nursery) -> None:
    wishing = Wishing()
    server = await keep(nursery, WatchedServer("alpha", wishing))
    asked: list[object] = []
    for level in (None, "debug", "debug", "error", None, None):
        await wishing.wish(level=level)
        asked.append([each["level"] for each in server.of(SET_LEVEL)])
    assert asked == [[], ["debug"], [], ["error"], [LEAST_TALKATIVE], []]


async def test_a_level_is_asked_for_again_over_a_new_connection(nursery: trio.Nursery) -> None:
    wishing, refused = Wishing(), RemoteError(-32601, "no such method")
    watched = WatchedServer("alpha", wishing)
    await wishing.wish(level="debug")
    for _connection in range(2):
        async with background() as connected:
            server = await keep(connected, watched)
            assert server.of(SET_LEVEL) == [{"level": "debug"}]
            server.answer = lambda _method, _params: refused
            await wishing.wish(level="info")
            await wishing.wish(level="debug")
            assert len(server.of(SET_LEVEL)) == 2
    server = await keep(nursery, watched, attrs.evolve(GREETING, logs=False))
    assert server.asked == []


async def test_each_uri_is_subscribed_once_and_unsubscribed_at_the_end(nursery: trio.Nursery) -> None:
    wishing = Wishing()
    server = await keep(nursery, WatchedServer("alpha", wishing))
    await wishing.wish("a:1", "a:2")
    assert sorted(each["uri"] for each in server.of(SUBSCRIBE)) == ["a:1", "a:2"]
    assert wishing.outcomes == {"a:1": None, "a:2": None}
    wishing.outcomes.clear()
    await wishing.wish("a:2", "a:3")
    assert (server.of(SUBSCRIBE), server.of(UNSUBSCRIBE)) == ([{"uri": "a:3"}], [{"uri": "a:1"}])
    # Who follows "a:2" since a moment ago, after the last one had gone, has to be told as well.
    assert wishing.outcomes == {"a:2": None, "a:3": None}
    assert wishing.updated == []


async def test_what_is_subscribed_again_may_have_changed_unnoticed(nursery: trio.Nursery) -> None:
    wishing = Wishing()
    watched = WatchedServer("alpha", wishing)
    await wishing.wish("a:1", "a:2")
    async with background() as connected:
        await keep(connected, watched)
    await wishing.wish("a:2", "a:new")
    server = await keep(nursery, watched)
    assert sorted(each["uri"] for each in server.of(SUBSCRIBE)) == ["a:2", "a:new"]
    # Who follows one only now that nobody followed at first has missed nothing.
    await wishing.wish("a:1", "a:2")
    assert wishing.updated == ["a:2"]


async def test_a_refusal_is_told_and_not_asked_about_again(
    nursery: trio.Nursery, clock: trio.testing.MockClock
) -> None:
    wishing, refusal = Wishing(), RemoteError(-32002, "no such resource")
    server = await keep(nursery, WatchedServer("alpha", wishing))
    server.answer = lambda _method, _params: refusal
    await wishing.wish("a:1")
    await trio.sleep(10 * RETRY_SECONDS)
    assert (len(server.of(SUBSCRIBE)), wishing.outcomes) == (1, {"a:1": refusal})


async def test_a_server_that_does_not_answer_is_asked_again_and_holds_up_no_other_uri(
    nursery: trio.Nursery, clock: trio.testing.MockClock
) -> None:
    wishing = Wishing()
    server = await keep(nursery, WatchedServer("alpha", wishing))
    server.mute.add(SUBSCRIBE)
    await wishing.wish("a:1")
    await trio.sleep(ASK_SECONDS + 1)
    assert wishing.outcomes["a:1"] is not None
    server.mute.clear()
    await trio.sleep(RETRY_SECONDS + 1)
    assert (len(server.of(SUBSCRIBE)), wishing.outcomes) == (2, {"a:1": None})


async def test_a_server_without_subscriptions_is_not_asked_and_that_is_said(nursery: trio.Nursery) -> None:
    wishing = Wishing()
    await wishing.wish("a:1")
    server = await keep(nursery, WatchedServer("alpha", wishing), attrs.evolve(GREETING, updates=False))
    await wishing.wish("a:1", "a:2")
    assert server.asked == []
    assert {"resources.subscribe" in str(refusal) for refusal in wishing.outcomes.values()} == {True}
    assert sorted(wishing.outcomes) == ["a:1", "a:2"]
