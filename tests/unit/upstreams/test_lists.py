"""A server's lists are kept current each by itself: none waits for another, and none fails with another."""

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.catalog.kinds import LISTS
from daemon.causes import Reason
from daemon.config.config_model import Server
from daemon.config.tuning import Timeouts
from daemon.errors import NeedsAuth, UpstreamLost
from daemon.facts import DefinitionsListed, Fact
from daemon.model import Era, Kind
from daemon.safety.redact import Redactor
from daemon.upstreams.handshake import Greeting
from daemon.upstreams.server_lists import LATER_PATIENCE, RELIST_AFTER_FAILURE, Listing, ServerLists
from daemon.wire.envelope import RemoteError
from tests.unit.upstreams.transports.replies import TableConnection
from tests.waiting import in_time, until

GREETING = Greeting(
    era=Era.MODERN,
    version="2026-07-28",
    lists_tools=True,
    others=("prompts", "resources"),
    announced=("tools", "resources"),
    skills=True,
    server_info="alpha 1",
)
UNKNOWN = RemoteError(-32601, "Method not found")


class Library(TableConnection):
    """A server that answers the same to each request for a list."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[Kind, list[str] | Exception] = {
            Kind.TOOL: ["t"],
            Kind.PROMPT: ["p"],
            Kind.RESOURCE: ["x:r"],
            Kind.TEMPLATE: ["x:{t}"],
            Kind.SKILL: ["skill://s/SKILL.md"],
        }
        self.held: dict[Kind, trio.Event] = {}
        self.subscription: Callable[[], Exception] = lambda: UNKNOWN

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109
        self.said.append((method, params))
        if method == "subscriptions/listen":
            raise self.subscription()
        (kind,) = (each for each, form in LISTS.items() if form.method == method)
        if kind in self.held:
            await self.held[kind].wait()
        names = self.lists[kind]
        if isinstance(names, Exception):
            raise names
        schema = {"inputSchema": {"type": "object"}, "frontmatter": {"name": "s"}, "resources": "dynamic"}
        listed: list[dict[str, Any]] = [{"name": each, LISTS[kind].key: each, **schema} for each in names]
        return json.dumps({LISTS[kind].member: listed}).encode()

    def asked(self, kind: Kind) -> int:
        return sum(method == LISTS[kind].method for method, _ in self.said)


class Scene:
    """The lists of a server, and what they have told."""

    def __init__(self, greeting: Greeting = GREETING, **timeouts: Any) -> None:
        self.facts: list[Fact] = []
        self.problems: list[Reason] = []
        self.connection = Library()
        redact = Redactor(())
        redact.learn(["s3cret"], [])
        server = Server(name="alpha", command="x", timeouts=Timeouts(**timeouts))
        self.lists = ServerLists(
            partial(Listing, server, tell=self.facts.append, wall=lambda: 42.0, redact=redact)
        )
        self.lists.begin(self.connection, 3, greeting)

    async def start(self, nursery: trio.Nursery) -> None:
        problem = await self.lists.tools.list_now()
        await nursery.start(self.lists.keep, problem, self.problems.append)

    def told(self, kind: Kind) -> list[DefinitionsListed]:
        return [each for each in self.facts if isinstance(each, DefinitionsListed) and each.kind is kind]

    def last(self, kind: Kind) -> tuple[list[str], str]:
        fact = self.told(kind)[-1]
        return [each.name for each in fact.definitions], fact.problem


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
    scene = Scene(attrs.evolve(GREETING, others=("prompts",)))
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
    assert scene.lists.tools.status.problem.text == ""


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
    assert not scene.lists.tools.is_stale


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
