"""`status` with a server: everything about that one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.config.redaction import Redactors
from daemon.errors import UnknownServer
from daemon.history.event import Event, EventKind
from daemon.operators.status_commands import EVENTS, status_of_one
from tests.fakes_upstream import Stage
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import FakeServer, OperatorStage, operator_context

if TYPE_CHECKING:
    import trio

SECRET = "hunter2-of-alpha"


async def test_a_server_is_told_with_its_events_and_its_errors_without_secrets() -> None:
    redactors = Redactors()
    entries = {"alpha": {"command": "a", "env": {"PASSWORD": SECRET}}, "beta": {"command": "b"}}
    redactors.learn(config_of({"mcpServers": entries}))
    context = operator_context(Stage(), upstreams={"alpha": FakeServer("alpha")}, redact=redactors)
    for number in range(EVENTS + 1):
        context.history.note(Event(kind=EventKind.ENDED, server="alpha", text=f"exited {number}", run=number))
    context.history.note(Event(kind=EventKind.ENDED, server="beta", text="boom"))
    context.counters.recent.failed("alpha", "look", "UpstreamTimeout", f"not with {SECRET}")
    told: Any = await status_of_one(context, "alpha", {})
    assert (told["name"], told["server"]["state"]) == ("alpha", "ready")
    assert len(told["events"]) == EVENTS
    assert "exited 20" in told["events"][-1]["text"]
    assert "boom" not in str(told)
    (error,) = told["lastErrors"]
    assert (error["tool"], error["code"]) == ("look", "UpstreamTimeout")
    assert SECRET not in str(told)
    assert (told["calls"], told["moreCalls"]) == ([], 0)


async def test_an_instance_is_told_by_its_own_name() -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha#3", "alpha#7")
    told: Any = await status_of_one(stage.context(), "alpha#7", {})
    assert (told["server"]["name"], told["server"]["session"]) == ("alpha#7", 7)
    whole: Any = await status_of_one(stage.context(), "alpha", {})
    assert len(whole["server"]["instances"]) == 2


@pytest.mark.parametrize("name", ["alhpa", "alpha#99", ""])
async def test_a_name_that_is_nobodys_is_refused(name: str) -> None:
    with pytest.raises(UnknownServer):
        await status_of_one(operator_context(Stage()), name, {})


async def test_the_command_takes_a_server(nursery: trio.Nursery) -> None:
    client = await OperatorStage(Stage()).connect(nursery)
    whole = (await client.request("status"))["result"]
    one = (await client.request("status", {"server": "beta"}))["result"]
    assert one["server"].keys() == whole["servers"]["beta"].keys()
    refused = await client.request("status", {"server": "gamma"})
    assert "gamma" in refused["error"]["message"]
