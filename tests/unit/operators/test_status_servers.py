"""The status of one server, and the metrics as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from daemon.config.redaction import Redactors
from daemon.operators.status_servers import server_status
from daemon.states import ServerState
from tests.fakes_upstream import Stage
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import FakeServer, OperatorStage, operator_context
from tests.unit.operators.test_status import PROMISED

if TYPE_CHECKING:
    import trio

SECRET = "reading"


def told(server: str, reason: str) -> dict[str, Any]:
    """The report of a server that is down for a reason; alpha was given a secret that is a plain word."""
    redactors = Redactors()
    entries = {name: {"command": name} for name in ("alpha", "beta")}
    guarded = {"command": "a", "env": {"PASSWORD": SECRET}}
    redactors.learn(config_of({"mcpServers": {**entries, "alpha": guarded}}))
    stage = Stage()
    stage.becomes(server, ServerState.BACKOFF, reason=reason)
    context = operator_context(stage, upstreams={server: FakeServer(server)}, redact=redactors)
    return server_status(context, context.catalog.servers[server], {})


def test_a_server_has_all_that_is_promised_whether_it_runs_or_not() -> None:
    stage = Stage()
    entry = stage.catalog.value.servers["alpha"]
    runs, rests = (
        server_status(operator_context(stage, upstreams=upstreams), entry, {})
        for upstreams in ({"alpha": FakeServer("alpha")}, {})
    )
    assert runs.keys() == rests.keys()
    assert runs.keys() >= PROMISED


def test_a_server_loses_its_own_secrets_and_no_word_that_is_anothers() -> None:
    assert SECRET not in told("alpha", f"was not {SECRET}")["reason"]
    assert told("beta", f"was not {SECRET}")["reason"] == f"was not {SECRET}"


async def test_the_text_is_the_answer(nursery: trio.Nursery) -> None:
    async def export() -> str:
        return "x 1"

    stage = Stage()
    counters = attrs.evolve(operator_context(stage).counters, export=export)
    client = await OperatorStage(stage).connect(nursery, counters=counters)
    assert (await client.request("metrics"))["result"] == {"text": "x 1"}
