"""An operator ends a call: at its server, and for its client; never twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from daemon.errors import InvalidArguments
from daemon.operators.call_commands import CancelParams, cancel, in_flight
from daemon.operators.own_requests import OperatorCallParams, call
from tests.fakes_upstream import error_of
from tests.unit.clients.inputs import ACCEPTED, META, asks
from tests.unit.operators.test_calls import Daemon

if TYPE_CHECKING:
    from msgspec import Raw


async def end_one(daemon: Daemon) -> Any:
    """Cancel the only call."""
    (found,) = in_flight(daemon.operators)
    return await cancel(daemon.operators, CancelParams(id=found["id"]))


async def test_the_server_is_told_and_the_client_gets_an_error(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    client = (await daemon.guest(nursery)).client
    await client.call("alpha", "echo")
    sent = await daemon.alpha.wait_sent()
    answer = await end_one(daemon)
    assert answer["call"]["sent"]
    ((key, reason),) = daemon.alpha.cancelled
    assert (key, reason.partition(" after ")[0]) == (sent.key, "an operator has cancelled this call")
    error = error_of(await client.get())
    assert (error["code"], error["sent"]) == ("CallCancelled", True)
    assert "may have run" in error["message"]
    assert in_flight(daemon.operators) == []
    assert [outcome for _, _, _, outcome in daemon.stage.log.notes] == ["CallCancelled"]


async def test_a_call_that_has_ended_cannot_be_cancelled(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    client = (await daemon.guest(nursery)).client
    await client.call("alpha", "echo")
    sent = await daemon.alpha.wait_sent()
    (found,) = in_flight(daemon.operators)
    daemon.stage.answer(sent, b'{"content":[]}')
    await client.call("alpha", "echo")
    await daemon.alpha.wait_sent(2)
    with pytest.raises(InvalidArguments, match=f"no call {found['id']} is in flight"):
        await cancel(daemon.operators, CancelParams(id=found["id"]))
    assert not daemon.alpha.cancelled


async def test_a_call_that_nobody_has_looked_at_has_no_number(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    client = (await daemon.guest(nursery)).client
    await client.call("alpha", "echo")
    await daemon.alpha.wait_sent()
    with pytest.raises(InvalidArguments, match="no call 0"):
        await cancel(daemon.operators, CancelParams(id=0))


async def test_a_call_that_waits_for_its_server_is_not_sent(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    daemon.alpha.up = False
    client = (await daemon.guest(nursery)).client
    await client.call("alpha", "echo")
    await daemon.alpha.wait_woken()
    assert not (await end_one(daemon))["call"]["sent"]
    assert "was not sent" in error_of(await client.get())["message"]
    daemon.alpha.come_up()
    await trio.testing.wait_all_tasks_blocked()
    assert not daemon.alpha.sent


async def test_a_parked_call_ends_and_its_client_learns_it_when_it_is_back(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    client = (await daemon.guest(nursery)).client
    await client.call("alpha", "echo", _meta=META)
    asks(daemon.stage, await daemon.alpha.wait_sent())
    result = (await client.get())["result"]
    await end_one(daemon)
    assert len(daemon.alpha.cancelled) == 1
    assert in_flight(daemon.operators) == []
    more = {"requestState": result["requestState"], "_meta": META}
    answers = dict.fromkeys(result["inputRequests"], ACCEPTED)
    await client.call("alpha", "echo", request_id=2, inputResponses=answers, **more)
    assert error_of(await client.get())["code"] == "CallCancelled"
    assert len(daemon.alpha.sent) == 1


@pytest.mark.parametrize("up", [True, False])
async def test_an_operators_own_call_ends(up: bool, nursery: trio.Nursery) -> None:
    daemon = Daemon()
    daemon.alpha.up = up
    found: list[Raw] = []

    async def ask() -> None:
        found.append(await call(daemon.operators, OperatorCallParams(server="alpha", tool="echo")))

    nursery.start_soon(ask)
    await (daemon.alpha.wait_sent() if up else daemon.alpha.wait_woken())
    await trio.testing.wait_all_tasks_blocked()
    assert (await end_one(daemon))["call"]["sent"] is up
    await trio.testing.wait_all_tasks_blocked()
    assert b"CallCancelled" in bytes(found[0])
    assert len(daemon.alpha.cancelled) == up
