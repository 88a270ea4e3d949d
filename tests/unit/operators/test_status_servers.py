"""The status of one server, and the metrics as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import attrs
import trio

from daemon.config.redaction import Redactors
from daemon.config.tuning import Timeouts
from daemon.errors import UpstreamTimeout
from daemon.model import Era
from daemon.operators.status_commands import server_status
from daemon.states import ServerState
from daemon.upstreams.handshake import Keepalive
from tests.fakes_upstream import Stage, tool
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import FakeServer, FakeUse, OperatorStage, operator_context
from tests.unit.operators.test_status import PROMISED

if TYPE_CHECKING:
    from trio.testing import MockClock

    from daemon.ports import UpstreamConnection

SECRET = "reading"


def told(server: str, reason: str) -> Any:
    """The report of a server that is down for a reason; alpha was given a secret that is a plain word."""
    redactors = Redactors()
    entries = {name: {"command": name} for name in ("alpha", "beta")}
    guarded = {"command": "a", "env": {"PASSWORD": SECRET}}
    redactors.learn(config_of({"mcpServers": {**entries, "alpha": guarded}}))
    stage = Stage()
    stage.becomes(server, ServerState.BACKOFF, reason=reason)
    context = operator_context(stage, upstreams={server: FakeServer(server)}, redact=redactors)
    return server_status(context, context.catalog.servers[server], {})


async def test_a_server_has_all_that_is_promised_whether_it_runs_or_not() -> None:
    stage = Stage()
    entry = stage.catalog.value.servers["alpha"]
    runs, rests = (
        server_status(operator_context(stage, upstreams=upstreams), entry, {})
        for upstreams in ({"alpha": FakeServer("alpha")}, {})
    )
    assert runs.keys() == rests.keys()
    assert runs.keys() >= PROMISED


async def test_a_server_loses_its_own_secrets_and_no_word_that_is_anothers() -> None:
    assert SECRET not in told("alpha", f"was not {SECRET}")["reason"]
    assert told("beta", f"was not {SECRET}")["reason"] == f"was not {SECRET}"


async def test_the_text_is_the_answer(nursery: trio.Nursery) -> None:
    async def export() -> str:
        return "x 1"

    stage = Stage()
    counters = attrs.evolve(operator_context(stage).counters, export=export)
    client = await OperatorStage(stage).connect(nursery, counters=counters)
    assert (await client.request("metrics"))["result"] == {"text": "x 1"}


async def test_a_server_with_instances_is_told_as_a_whole_and_by_instance() -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha#3", "alpha#7", workspace="/home/me/app")
    one, other = (stage.actors[name] for name in ("alpha#3", "alpha#7"))
    one.children, one.in_flight = {11: 7}, 2
    other.children, other.use = {12: 8}, FakeUse(trio.current_time() - 30)
    other.stats.record([0.5], ok=True)
    other.child.status.become(ServerState.STARTING)
    context = stage.context()
    told = server_status(context, context.catalog.servers["alpha"], {7: 1024, 8: 4096})
    assert (told["pid"], told["rssBytes"], told["share"]) == (None, 5120, "all")
    rows: Any = told["instances"]
    assert [(row["name"], row["session"], row["workspace"]) for row in rows] == [
        ("alpha#3", 3, "/home/me/app"),
        ("alpha#7", 7, "/home/me/app"),
    ]
    assert [(row["pid"], row["rssBytes"], row["calls"]) for row in rows] == [(11, 1024, 0), (12, 4096, 1)]
    assert [row["state"] for row in rows] == ["stopped", "starting"]
    assert rows[0]["idleMs"] == 0
    assert 30_000 <= rows[1]["idleMs"] < 60_000
    assert {row["tools"] for row in rows} == {2}
    assert not any(row["differs"] for row in rows)
    own = {"name", "workspace", "session", "differs", "idleMs"}
    assert rows[0].keys() - own <= told.keys()


async def test_one_instance_has_its_pid_shown_for_the_server_and_none_is_dormant() -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha@~/a")
    stage.actors["alpha@~/a"].children[11] = 7
    stage.divide("beta")
    context = stage.context()
    told: list[Any] = [server_status(context, context.catalog.servers[name], {}) for name in ("alpha", "beta")]
    alpha, beta = told
    (row,) = alpha["instances"]
    assert (alpha["pid"], row["session"], row["idleMs"]) == (11, None, None)
    assert (beta["pid"], beta["rssBytes"], beta["instances"]) == (None, None, [])


async def test_an_instance_that_lists_something_else_is_marked() -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha#3", "alpha#7")
    context = stage.context()
    other = Stage()
    other.lists("alpha", tool("own"))
    stage.actors["alpha#7"].own = other.catalog.value
    told: Any = server_status(context, context.catalog.servers["alpha"], {})
    assert [(row["differs"], row["tools"]) for row in told["instances"]] == [(False, 2), (True, 1)]


@attrs.define
class FakeLine:
    """A connection whose server is silent."""

    last_heard: float
    in_flight: int = 0

    async def request(self, method: str, params: dict[str, Any], *, timeout: float) -> bytes:  # noqa: ASYNC109
        await trio.sleep(timeout)
        raise UpstreamTimeout(method)


async def test_how_long_a_server_is_silent_is_told_as_of_now(autojump_clock: MockClock) -> None:
    stage, server = Stage(), FakeServer("alpha")
    line = cast("UpstreamConnection", FakeLine(trio.current_time()))
    server.pings = Keepalive(line, Timeouts(ping_interval=25, ping=10, missed_pings=100))
    context = operator_context(stage, upstreams={"alpha": server}, wall=lambda: 1000.0)

    def told() -> Any:
        return server_status(context, context.catalog.servers["alpha"], {})

    assert told()["pings"] == {"unanswered": 0, "lastMs": None, "lastHeardAt": 1000.0}
    with trio.move_on_after(40):
        await server.pings.run(Era.HANDSHAKE)
    why = server.pings.problem
    stage.becomes("alpha", ServerState.DEGRADED, reason="earlier", cause=why.cause)
    seen = told()
    assert seen["pings"]["unanswered"] == 1
    assert seen["causeData"] == {"count": 1, "seconds": 40, "calls": 0}
    assert seen["reason"].endswith("last heard 40s ago")
    server.pings = None
    assert (told()["reason"], told()["pings"]) == ("earlier", None)


async def test_the_calls_of_the_last_minutes_are_apart_from_all() -> None:
    stage, server = Stage(), FakeServer("alpha")
    server.stats.record([0.004], ok=True)
    server.stats.turn(trio.current_time() - 3600)
    server.stats.record([0.5], ok=False)
    context = operator_context(stage, upstreams={"alpha": server}, wall=lambda: 1000.0)
    told = server_status(context, context.catalog.servers["alpha"], {})
    assert (told["calls"], told["errors"]) == (2, 1)
    assert told["recent"] == {"minutes": 5, "calls": 1, "errors": 1, "p50Ms": 500.0, "p95Ms": 500.0}
