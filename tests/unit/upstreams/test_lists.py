"""A server's lists are kept current each by itself: none waits for another, and none fails with another."""

import json
import math
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.errors import NeedsAuth, UpstreamLost
from daemon.facts import DefinitionsListed
from daemon.model import Era, Kind
from daemon.upstreams.handshake import Greeting
from daemon.upstreams.server_lists import LATER_PATIENCE, RELIST_AFTER_FAILURE
from daemon.wire.envelope import RemoteError
from tests.unit.upstreams.listing_server import UNKNOWN, Lists
from tests.waiting import in_time, until

MODERN = Greeting(
    era=Era.MODERN,
    version="2026-07-28",
    lists_tools=True,
    others=("prompts", "resources"),
    announced=("tools", "resources"),
    skills=True,
    server_info="alpha 1",
)


class Scene(Lists):
    """All lists of a server of the modern era."""

    def __init__(self, greeting: Greeting = MODERN, **timeouts: Any) -> None:
        super().__init__(greeting, **timeouts)

    async def start(self, nursery: trio.Nursery) -> None:
        problem = await self.tools.list_now()
        await nursery.start(self.lists.keep, problem, self.problems.append)


async def test_all_that_is_declared_is_listed_after_the_tools(nursery: trio.Nursery) -> None:
    scene = Scene()
    await scene.start(nursery)
    assert isinstance(scene.facts[0], DefinitionsListed)
    assert scene.last(Kind.PROMPT) == (["p"], "")
    assert scene.last(Kind.RESOURCE) == (["x:r"], "")
    assert scene.last(Kind.TEMPLATE) == (["x:{t}"], "")
    (fact,) = scene.told(Kind.PROMPT)
    assert (fact.incarnation, fact.at, fact.first, fact.declared) == (3, 42.0, True, True)


async def test_what_is_not_declared_is_not_asked_for_and_known_not_to_be_there(nursery: trio.Nursery) -> None:
    scene = Scene(attrs.evolve(MODERN, others=("prompts",)))
    await scene.start(nursery)
    assert scene.connection.asked(Kind.RESOURCE) == scene.connection.asked(Kind.TEMPLATE) == 0
    assert scene.told(Kind.RESOURCE)[-1].declared is False
    assert scene.last(Kind.PROMPT) == (["p"], "")
    scene.lists.are_asked_for((Kind.RESOURCE, Kind.TEMPLATE))
    await scene.lists.refresh()
    assert len(scene.told(Kind.RESOURCE)) == 1


@pytest.mark.parametrize(
    "failure", [UNKNOWN, UpstreamLost("the stream broke"), NeedsAuth("401: s3cret is no key")]
)
async def test_a_list_that_fails_costs_no_other_and_no_run(nursery: trio.Nursery, failure: Exception) -> None:
    scene = Scene()
    scene.connection.lists[Kind.RESOURCE] = failure
    await scene.start(nursery)
    names, problem = scene.last(Kind.RESOURCE)
    assert names == []
    assert problem
    assert "s3cret" not in problem
    assert scene.last(Kind.PROMPT) == (["p"], "")
    assert scene.tools.status.problem.text == ""


async def test_who_has_resources_need_not_know_of_templates(nursery: trio.Nursery) -> None:
    scene = Scene()
    for refusal in (UNKNOWN, RemoteError(-32602, "Invalid params")):
        scene.connection.lists[Kind.TEMPLATE] = refusal
        await scene.start(nursery)
        assert scene.last(Kind.TEMPLATE) == ([], "")


@pytest.mark.parametrize("kind", [Kind.TEMPLATE, Kind.RESOURCE])
@pytest.mark.parametrize(
    ("data", "told"),
    [(b"null", {}), (b'{"n":[1.5,"s3cret"]}', {"data": {"n": [1.5, "[redacted]"]}}), (b'"cut', {})],
)
async def test_a_refusal_is_kept_as_the_server_wrote_it(
    nursery: trio.Nursery, kind: Kind, data: bytes, told: Any
) -> None:
    scene = Scene()
    scene.connection.lists[kind] = RemoteError(-32601, "no s3cret", data)
    await scene.start(nursery)
    wanted = {"code": -32601, "message": "no [redacted]", **told}
    assert json.loads(scene.told(kind)[-1].refusal) == wanted
    scene.connection.lists[kind] = ["x:r"]
    await scene.lists.refresh()
    assert scene.told(kind)[-1].refusal == scene.told(Kind.PROMPT)[-1].refusal == b""


async def test_a_list_that_is_refused_is_asked_for_in_its_time_and_one_that_is_late_soon(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scene = Scene(refresh=10_000, list=5)
    scene.connection.lists[Kind.PROMPT] = UNKNOWN
    scene.connection.lists[Kind.RESOURCE] = UpstreamLost("the stream broke")
    await scene.start(nursery)
    await trio.sleep(10 * RELIST_AFTER_FAILURE)
    assert scene.connection.asked(Kind.PROMPT) == 1
    assert scene.connection.asked(Kind.RESOURCE) > 5


async def test_a_list_that_takes_long_holds_up_a_start_for_a_moment_and_no_other_list(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scene = Scene()
    scene.connection.held[Kind.RESOURCE] = trio.Event()
    before = trio.current_time()
    await scene.start(nursery)
    assert trio.current_time() - before == pytest.approx(LATER_PATIENCE)
    assert scene.last(Kind.PROMPT) == (["p"], "")
    assert scene.last(Kind.TEMPLATE) == (["x:{t}"], "")
    assert scene.told(Kind.RESOURCE) == []
    scene.connection.held[Kind.RESOURCE].set()
    await until(lambda: bool(scene.told(Kind.RESOURCE)), every=0.05)


async def test_a_burst_of_announcements_of_one_kind_is_one_more_list_of_that_kind(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scene = Scene(refresh=math.inf)
    await scene.start(nursery)
    scene.connection.lists[Kind.PROMPT] = ["p", "q"]
    for _ in range(4):
        scene.lists.are_asked_for((Kind.PROMPT,))
    await until(lambda: len(scene.told(Kind.PROMPT)) == 2, every=0.05)
    await trio.sleep(60)
    assert scene.last(Kind.PROMPT) == (["p", "q"], "")
    assert [scene.connection.asked(kind) for kind in Kind] == [1, 2, 1, 1, 1]
    assert scene.told(Kind.PROMPT)[-1].first is False
    assert not scene.tools.is_stale


async def test_an_operator_has_everything_listed_again(nursery: trio.Nursery) -> None:
    scene = Scene()
    await scene.start(nursery)
    scene.connection.lists[Kind.RESOURCE] = RemoteError(-1, "broken")
    assert await in_time(scene.lists.refresh()) == "", "the tools are what it answers for"
    assert [scene.connection.asked(kind) for kind in Kind] == [2, 2, 2, 2, 2]
    assert "broken" in scene.last(Kind.RESOURCE)[1]


async def test_a_secret_in_a_uri_costs_the_resource(nursery: trio.Nursery) -> None:
    scene = Scene()
    scene.connection.lists[Kind.RESOURCE] = ["db://s3cret@host/t", "db://host/u"]
    await scene.start(nursery)
    fact = scene.told(Kind.RESOURCE)[-1]
    assert [each.name for each in fact.definitions] == ["db://host/u"]
    assert "s3cret" not in repr(fact.quarantined)
    assert len(fact.quarantined) == 1
