"""Calls that have no answer yet, as operators see them, and those that have."""

from functools import partial
from typing import Any

import msgspec
import pytest
import trio.testing
from msgspec import Raw
from trio.testing import MockClock

from daemon.clients.asking import parked_calls
from daemon.clients.client import Principal
from daemon.config.redaction import Redactors
from daemon.counting.recent_calls import RecentCall
from daemon.errors import InvalidArguments, UnknownServer
from daemon.operators.base import OperatorContext
from daemon.operators.call_commands import CallsParams, CancelParams, WaitsFor, calls, cancel, in_flight
from daemon.operators.own_requests import OperatorCallParams, call
from tests.fakes_upstream import Client, Guest, error_of
from tests.unit.clients.inputs import ABLE, ACCEPTED, META, asks
from tests.unit.operators.stage import OperatorStage, clients_of
from tests.waiting import in_time

NOW = 1_800_000_000.0


class Daemon(OperatorStage):
    """A daemon with clients that are really connected."""

    def __init__(self) -> None:
        super().__init__()
        self.guests: list[Guest] = []
        # What clients call is what operators look at.
        self.stage.upstreams.update(self.servers)
        self.operators: OperatorContext = self.context(
            wall=lambda: NOW,
            clients=msgspec.structs.replace(
                clients_of(),
                live=lambda: [guest.session for guest in self.guests],
                parked=partial(parked_calls, self.stage.context.states),
            ),
        )

    async def guest(self, nursery: trio.Nursery, **more: Any) -> Guest:
        """A client connects."""
        self.guests.append(await self.stage.connect(nursery, **more))
        return self.guests[-1]

    async def calling(self, nursery: trio.Nursery, **more: Any) -> Client:
        """A client connects and calls `echo`, which its server has got unless it is down."""
        client = (await self.guest(nursery)).client
        await client.call("alpha", "echo", **more)
        await (self.alpha.wait_sent() if self.alpha.up else self.alpha.wait_woken())
        return client

    async def told(self, **params: Any) -> Any:
        """What `mcpd calls` is told."""
        return await in_time(calls(self.operators, CallsParams(**params)))

    def ended(self, *outcomes: str, server: str = "alpha") -> None:
        """Calls end."""
        made = [RecentCall(NOW, 3, "key", "agent 1", "", server, "echo", 0.0125, each) for each in outcomes]
        self.stage.recent.publish((len(made), made))


async def test_a_call_is_shown_with_caller_and_wait(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    daemon = Daemon()
    client = (await daemon.guest(nursery, principal=Principal(token="ci"))).client
    await client.call("alpha", "echo")
    await daemon.alpha.wait_sent()
    await trio.sleep(46)
    (found,) = in_flight(daemon.operators)
    assert (found["session"], found["key"], found["token"]) == (1, None, "ci")
    assert (found["server"], found["instance"], found["tool"]) == ("alpha", "", "echo")
    assert (found["method"], found["waitsFor"], found["sent"]) == ("tools/call", WaitsFor.ANSWER, True)
    assert (round(found["ageSeconds"]), round(found["since"])) == (46, NOW - 46)
    assert in_flight(daemon.operators, "alpha") == [found], "and keeps its number"
    assert in_flight(daemon.operators, "beta") == []
    # The oldest comes first.
    await client.call("alpha", "echo", request_id=2)
    sent = await daemon.alpha.wait_sent(2)
    assert [round(each["ageSeconds"]) for each in in_flight(daemon.operators)] == [46, 0]
    daemon.stage.refuse(sent, b'{"code":-1,"message":"out of order"}')
    assert in_flight(daemon.operators) == [found]
    (failure,) = daemon.stage.recent.failures("alpha")
    assert (failure.tool, failure.code) == ("echo", "UpstreamCallError")
    assert "out of order" in failure.text


async def test_a_call_in_line_waits_for_its_turn(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    await daemon.calling(nursery)
    daemon.alpha.sent[0].call.in_line = True
    (found,) = in_flight(daemon.operators)
    assert (found["waitsFor"], found["sent"]) == (WaitsFor.TURN, False)


async def test_a_call_that_waits_for_an_announced_list_waits_for_its_server(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    await daemon.calling(nursery)
    daemon.alpha.is_stale = True
    assert not daemon.alpha.sent[0].call.check()
    await trio.testing.wait_all_tasks_blocked()
    (found,) = in_flight(daemon.operators)
    assert (found["waitsFor"], found["sent"]) == (WaitsFor.SERVER, False)
    daemon.alpha.is_current()
    await daemon.alpha.wait_sent(2)
    (found,) = in_flight(daemon.operators)
    assert (found["waitsFor"], found["sent"]) == (WaitsFor.ANSWER, True)


async def test_a_call_whose_server_wants_a_pause_waits_for_its_answer(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    daemon.alpha.is_modern = True
    await daemon.calling(nursery)
    daemon.stage.answer(daemon.alpha.sent[0], b'{"resultType":"input_required","requestState":"s"}')
    await trio.testing.wait_all_tasks_blocked()
    (found,) = in_flight(daemon.operators)
    assert (found["waitsFor"], found["sent"]) == (WaitsFor.ANSWER, True)


async def test_a_call_whose_client_is_asked_waits_for_its_client(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    client = (await daemon.guest(nursery)).client
    hello = {"protocolVersion": "2025-11-25", "capabilities": ABLE, "clientInfo": {"name": "a", "version": "1"}}
    await client.request("initialize", hello)
    await client.call("alpha", "echo", request_id=2)
    asks(daemon.stage, await daemon.alpha.wait_sent())
    await client.get()
    (found,) = in_flight(daemon.operators)
    assert (found["client"], found["waitsFor"]) == ("a 1", WaitsFor.CLIENT)


async def test_an_operators_call_is_shown_and_kept_with_its_outcome(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    nursery.start_soon(call, daemon.operators, OperatorCallParams(server="alpha", tool="echo"))
    sent = await daemon.alpha.wait_sent()
    (found,) = in_flight(daemon.operators)
    assert (found["session"], found["client"], found["tool"]) == (None, "operator", "echo")
    sent.exchange.answered(b'{"content":[{"type":"text","text":"no"}],"isError":true}')
    await trio.testing.wait_all_tasks_blocked()
    assert in_flight(daemon.operators) == []
    ((_, ended),) = daemon.stage.recent.after(0)
    assert (ended.session, ended.client, ended.tool, ended.outcome) == (None, "operator", "echo", "isError")
    assert [each.text for each in daemon.stage.recent.failures("alpha")] == ["no"]
    assert [each["text"] for each in (await daemon.told())["recent"]] == ["no"]
    assert [ok for _, ok in daemon.alpha.recorded] == [False]


async def test_the_reason_of_a_failed_call_is_told_without_secrets(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    client = await stage.connect(nursery, redact=Redactors(["hunter2"]))
    await client.request("call", {"server": "alpha", "tool": "ehco", "arguments": {}, "profile": "default"})
    failed = RecentCall(NOW, 3, "key", "agent 1", "", "alpha", "echo", 0.1, "isError", text="not hunter2")
    stage.stage.recent.publish((1, [failed]))
    refused, told = (await client.request("calls"))["result"]["recent"]
    assert (refused["outcome"], "ehco" in refused["text"]) == ("UnknownTool", True)
    assert (told["text"], told["outcome"]) == ("not [redacted]", "isError")


async def test_ended_calls_are_told_from_where_the_caller_left_off() -> None:
    daemon = Daemon()
    daemon.ended("ok", "UpstreamLost")
    first = await daemon.told()
    assert [(each["number"], each["outcome"], each["ms"]) for each in first["recent"]] == [
        (1, "ok", 12.5),
        (2, "UpstreamLost", 12.5),
    ]
    daemon.ended("ok", server="beta")
    seen = {"after": first["next"], "source": first["source"]}
    assert [each["number"] for each in (await daemon.told(**seen))["recent"]] == [3]
    assert len((await daemon.told(after=3, source="an earlier daemon"))["recent"]) == 3


async def test_ended_calls_are_filtered() -> None:
    daemon = Daemon()
    daemon.ended("ok", "isError", "ok")
    daemon.ended("ok", server="beta")
    assert [each["number"] for each in (await daemon.told(server="beta"))["recent"]] == [4]
    assert [each["number"] for each in (await daemon.told(errorsOnly=True))["recent"]] == [2]
    assert [each["number"] for each in (await daemon.told(limit=1))["recent"]] == [4]
    assert len((await daemon.told(session="#3"))["recent"]) == 4
    assert len((await daemon.told(since=NOW))["recent"]) == 4
    assert (await daemon.told(since=NOW + 1, session="#3"))["recent"] == []
    assert len((await daemon.told(session="3"))["recent"]) == 4
    with pytest.raises(InvalidArguments, match="no session is named"):
        await daemon.told(session="#4")
    with pytest.raises(UnknownServer, match="no server"):
        await daemon.told(server="gamma")


async def test_a_follower_waits_for_a_wanted_call(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    daemon = Daemon()
    found: list[Any] = []

    async def follow() -> None:
        found.append(await daemon.told(server="beta", wait=25))

    nursery.start_soon(follow)
    await trio.testing.wait_all_tasks_blocked()
    daemon.ended("ok", server="alpha")
    await trio.testing.wait_all_tasks_blocked()
    assert not found
    daemon.ended("ok", server="beta")
    await trio.testing.wait_all_tasks_blocked()
    assert [each["number"] for each in found[0]["recent"]] == [2]
    began = trio.current_time()
    assert (await daemon.told(after=2, source=found[0]["source"], wait=25))["recent"] == []
    assert trio.current_time() - began == 25


async def end_one(daemon: Daemon) -> Any:
    """Cancel the only call."""
    (found,) = in_flight(daemon.operators)
    return await cancel(daemon.operators, CancelParams(id=found["id"]))


async def test_a_call_that_has_ended_cannot_be_cancelled(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    client = await daemon.calling(nursery)
    (found,) = in_flight(daemon.operators)
    daemon.stage.answer(daemon.alpha.sent[0], b'{"content":[]}')
    await client.call("alpha", "echo")
    await daemon.alpha.wait_sent(2)
    # Nor one that nobody has looked at, which has no number.
    for number in (0, found["id"]):
        with pytest.raises(InvalidArguments, match=f"no call {number} is in flight"):
            await cancel(daemon.operators, CancelParams(id=number))
    assert not daemon.alpha.cancelled


async def test_a_call_that_waits_for_its_server_is_not_sent(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    daemon.alpha.up = False
    client = await daemon.calling(nursery)
    (found,) = in_flight(daemon.operators)
    assert (found["server"], found["waitsFor"], found["sent"]) == ("alpha", WaitsFor.SERVER, False)
    assert not (await end_one(daemon))["call"]["sent"]
    assert "was not sent" in error_of(await client.get())["message"]
    daemon.alpha.come_up()
    await trio.testing.wait_all_tasks_blocked()
    assert not daemon.alpha.sent


async def test_a_parked_call_ends_and_its_client_learns_it_when_it_is_back(nursery: trio.Nursery) -> None:
    daemon = Daemon()
    client = await daemon.calling(nursery, _meta=META)
    asks(daemon.stage, daemon.alpha.sent[0])
    result = (await client.get())["result"]
    (found,) = in_flight(daemon.operators)
    assert (found["tool"], found["waitsFor"], found["sent"]) == ("echo", WaitsFor.CLIENT, True)
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
