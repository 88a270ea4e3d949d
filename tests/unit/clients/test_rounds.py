"""Servers of MCP 2026-07-28 that need input, and clients of earlier revisions that are asked for it."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from daemon.clients.asking import MAX_ROUNDS
from daemon.clients.connected_clients import ConnectedClients
from daemon.clients.input_required import FIRST_PAUSE, LONGEST_PAUSE
from daemon.clients.server_requests import MAX_OF_SERVER
from daemon.facts import Switched
from daemon.history.event import Event, EventKind
from daemon.protocol import CAPABILITIES_KEY
from tests.fakes_upstream import Client, Guest, Sent, Stage, error_of
from tests.unit.cases import cases
from tests.unit.clients.inputs import ABLE, ACCEPTED, ANSWERS, META, QUESTION

STATE = rb'"\u0041 \/ opaque"'
"""A state whose bytes a decoder would change."""


async def greeted(stage: Stage, nursery: trio.Nursery, capabilities: object = ABLE) -> Guest:
    """A client that has said what it can be asked."""
    stage.alpha.is_modern = True
    guest = await stage.connect(nursery)
    params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "c"}}
    await guest.client.request("initialize", params, request_id="init")
    return guest


async def called(stage: Stage, client: Client, **params: Any) -> Sent:
    """A call that has reached its server."""
    await client.call("alpha", "echo", {"x": 1}, **params)
    return await stage.alpha.wait_sent()


def needs(stage: Stage, sent: Sent, requests: dict[str, str], state: bytes | None = STATE) -> None:
    """The server answers with what it needs: a method under each key."""
    asked = {key: {"method": each, "params": QUESTION} for key, each in requests.items()}
    told = b',"requestState":' + state if state is not None else b""
    stage.answer(
        sent, b'{"inputRequests":%b%b,"resultType":"input_required"}' % (json.dumps(asked).encode(), told)
    )


def members(sent: Sent) -> dict[str, Any]:
    """What was sent."""
    found: dict[str, Any] = json.loads(b"{%b}" % b"".join(map(bytes, sent.call.params)))
    return found


async def answer(client: Client, result: object = ACCEPTED) -> dict[str, Any]:
    """Answer the next request; returns it."""
    message: dict[str, Any] = await client.get()
    await client.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
    return message


@pytest.fixture
async def guest(stage: Stage, nursery: trio.Nursery) -> Guest:
    return await greeted(stage, nursery)


async def test_a_client_is_asked_and_the_call_sent_again_with_its_answer(stage: Stage, guest: Guest) -> None:
    client = guest.client
    needs(stage, await called(stage, client, other=[1]), {"who": "elicitation/create"})
    asked = await answer(client)
    told = {**QUESTION, "message": f"Server alpha asks: {QUESTION['message']}"}
    assert (asked["method"], asked["params"]) == ("elicitation/create", told)
    sent = await stage.alpha.wait_sent(2)
    assert b'"requestState":' + STATE in b"".join(map(bytes, sent.call.params))
    assert members(sent) == {
        "other": [1],
        "inputResponses": {"who": ACCEPTED},
        "requestState": "A / opaque",
        "name": "echo",
        "arguments": {"x": 1},
    }
    stage.answer(sent, b'{"content":[],"resultType":"complete"}')
    assert (await client.get())["result"] == {"content": [], "resultType": "complete"}
    assert guest.session.in_flight == 0
    assert [(label, outcome) for _, label, _, outcome in stage.log.notes] == [("alpha/echo", "ok")]


@pytest.mark.parametrize("modern", [False, True])
async def test_what_no_user_is_to_see_ends_the_call(nursery: trio.Nursery, modern: bool) -> None:
    stage, noted = Stage(), list[Event]()
    stage.context = msgspec.structs.replace(stage.context, subscribers=ConnectedClients(noted.append))
    client = (await greeted(stage, nursery)).client
    more = {"_meta": META} if modern else {}
    sent = await called(stage, client, **more)
    asked = {"who": {"method": "elicitation/create", "params": {**QUESTION, "url": "file:///etc/passwd"}}}
    stage.answer(sent, b'{"inputRequests":%b,"resultType":"input_required"}' % json.dumps(asked).encode())
    told = error_of(await client.get())
    assert (told["code"], "http or https" in told["message"]) == ("InputRefused", True)
    assert [(event.kind, event.server, event.details) for event in noted] == [
        (EventKind.QUESTION_REFUSED, "alpha", {"reason": "url"})
    ]


@pytest.mark.parametrize("method", ANSWERS)
async def test_everything_can_be_asked_at_once(stage: Stage, client: Client, method: str) -> None:
    needs(stage, await called(stage, client), {"a": method, **{key: key for key in ANSWERS}})
    asked = [await client.get() for _ in range(1 + len(ANSWERS))]
    for message in reversed(asked):
        await client.send({"jsonrpc": "2.0", "id": message["id"], "result": ANSWERS[message["method"]]})
    sent = await stage.alpha.wait_sent(2)
    assert members(sent)["inputResponses"] == {"a": ANSWERS[method], **ANSWERS}


async def test_there_are_as_many_rounds_as_a_server_wants_up_to_a_bound(stage: Stage, client: Client) -> None:
    sent = await called(stage, client)
    for number in range(MAX_ROUNDS):
        needs(stage, sent, {f"k{number}": "roots/list"}, b'"%d"' % number if number % 2 else None)
        await answer(client, {"roots": []})
        sent = await stage.alpha.wait_sent(number + 2)
        said = members(sent)
        assert said["inputResponses"] == {f"k{number}": {"roots": []}}
        # A state that is not given is not sent, nor is the one before.
        assert said.get("requestState") == (str(number) if number % 2 else None)
    needs(stage, sent, {"k": "roots/list"})
    error = error_of(await client.get())
    assert error["code"] == "UpstreamCallError"
    assert len(stage.alpha.sent) == MAX_ROUNDS + 1


async def test_without_questions_a_call_pauses(stage: Stage, client: Client, autojump_clock: MockClock) -> None:
    sent, times = await called(stage, client), []
    for number in range(4):
        times.append(trio.current_time())
        needs(stage, sent, {})
        sent = await stage.alpha.wait_sent(number + 2)
        assert "inputResponses" not in members(sent)
    times.append(trio.current_time())
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == pytest.approx([FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, LONGEST_PAUSE], abs=0.01)


# --- clients that cannot, or will not ----------------------------------------------------------------------


async def test_an_elicitation_is_declined_for_who_cannot_ask(stage: Stage, nursery: trio.Nursery) -> None:
    client = (await greeted(stage, nursery, {})).client
    needs(stage, await called(stage, client), {"who": "elicitation/create"})
    sent = await stage.alpha.wait_sent(2)
    assert members(sent)["inputResponses"] == {"who": {"action": "decline"}}


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list", "tools/call", "", "x" * 1000])
async def test_what_a_client_cannot_give_is_an_error(stage: Stage, nursery: trio.Nursery, method: str) -> None:
    guest = await greeted(stage, nursery, {})
    needs(stage, await called(stage, guest.client), {"who": method})
    error = error_of(await guest.client.get())
    assert error["code"] == "InputRefused"
    assert (error["server"], error["method"]) == ("alpha", method)
    assert len(stage.alpha.sent) == 1
    assert guest.session.in_flight == 0


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}])
@pytest.mark.parametrize("modern", [False, True])
async def test_an_instance_with_a_workspace_gets_that_for_roots_which_its_client_has_not(
    stage: Stage, nursery: trio.Nursery, capabilities: object, modern: bool
) -> None:
    stage.alpha.roots = b'{"roots":[{"uri":"file:///w","name":"w"}]}'
    client = (await greeted(stage, nursery, capabilities)).client
    more = {"_meta": {**META, CAPABILITIES_KEY: capabilities}} if modern else {}
    needs(stage, await called(stage, client, **more), {"where": "roots/list"})
    sent = await stage.alpha.wait_sent(2)
    assert members(sent)["inputResponses"] == {"where": {"roots": [{"uri": "file:///w", "name": "w"}]}}
    needs(stage, sent, {"what": "sampling/createMessage"})
    if modern:
        assert list((await client.get())["result"]["inputRequests"]) == ["what"]
    else:
        assert error_of(await client.get())["code"] == "InputRefused"


async def test_a_state_without_questions_goes_to_a_modern_client_although_its_instance_has_a_workspace(
    stage: Stage, nursery: trio.Nursery
) -> None:
    stage.alpha.roots = b'{"roots":[]}'
    client = (await greeted(stage, nursery, {})).client
    needs(stage, await called(stage, client, _meta={**META, CAPABILITIES_KEY: {}}), {})
    assert (await client.get())["result"]["resultType"] == "input_required"


async def test_roots_of_its_own_are_passed_on_as_they_are(stage: Stage, nursery: trio.Nursery) -> None:
    stage.alpha.roots = b'{"roots":[]}'
    client = (await greeted(stage, nursery)).client
    needs(stage, await called(stage, client), {"where": "roots/list"})
    await answer(client, ANSWERS["roots/list"])
    assert members(await stage.alpha.wait_sent(2))["inputResponses"] == {"where": ANSWERS["roots/list"]}


async def test_a_client_that_refuses_ends_its_call(stage: Stage, client: Client) -> None:
    needs(stage, await called(stage, client), {"a": "sampling/createMessage", "b": "elicitation/create"})
    first, second = await client.get(), await client.get()
    error = {"code": -1, "message": "User rejected sampling request"}
    await client.send({"jsonrpc": "2.0", "id": first["id"], "error": error})
    taken_back, ended = await client.get(), await client.get()
    assert taken_back["method"] == "notifications/cancelled"
    assert taken_back["params"]["requestId"] == second["id"]
    assert "User rejected sampling request (-1)" in error_of(ended)["message"]
    # Its answer comes too late, and to nobody.
    await client.send({"jsonrpc": "2.0", "id": second["id"], "result": ACCEPTED})
    assert (await client.request("ping", request_id=9))["id"] == 9
    assert len(stage.alpha.sent) == 1


async def test_a_server_that_asks_too_much_at_once_gets_nothing(stage: Stage, client: Client) -> None:
    needs(stage, await called(stage, client), {f"k{n}": "roots/list" for n in range(MAX_OF_SERVER + 2)})
    messages = [await client.get() for _ in range(2 * MAX_OF_SERVER + 1)]
    assert sum(each.get("method") == "roots/list" for each in messages) == MAX_OF_SERVER
    assert sum(each.get("method") == "notifications/cancelled" for each in messages) == MAX_OF_SERVER
    assert error_of(messages[-1])["code"] == "InputRefused"


@cases("result", raw={"result"})
async def test_a_malformed_question_is_an_error(stage: Stage, client: Client, result: bytes) -> None:
    stage.answer(await called(stage, client), result)
    assert error_of(await client.get())["code"] == "UpstreamCallError"


@cases("result", raw={"result"})
async def test_a_result_that_quotes_the_word_answers(stage: Stage, client: Client, result: bytes) -> None:
    stage.answer(await called(stage, client), result)
    assert result in await client.line()


async def test_a_result_of_a_server_before_2026_07_28_is_not_looked_into(stage: Stage, client: Client) -> None:
    stage.alpha.is_modern = False
    result = b'{"resultType":"input_required","inputRequests":{}}'
    stage.answer(await called(stage, client), result)
    assert result in await client.line()


# --- while the client thinks -------------------------------------------------------------------------------


async def test_a_client_that_never_answers_has_as_long_as_its_call(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage(mcpServers={"alpha": {"command": "unused", "timeouts": {"callMax": 20, "call": 20}}})
    guest = await greeted(stage, nursery)
    began = trio.current_time()
    needs(stage, await called(stage, guest.client), {"who": "elicitation/create"})
    asked = await guest.client.get()
    taken_back, ended = [await guest.client.get() for _ in range(2)]
    assert taken_back["params"]["requestId"] == asked["id"]
    assert error_of(ended)["code"] == "UpstreamTimeout"
    assert trio.current_time() - began == pytest.approx(20, abs=1)
    assert guest.session.in_flight == 0


async def test_a_call_cancelled_while_its_client_is_asked_leaves_nothing(stage: Stage, guest: Guest) -> None:
    client = guest.client
    needs(stage, await called(stage, client), {"who": "elicitation/create"})
    asked = await client.get()
    await client.tell("notifications/cancelled", {"requestId": 1})
    assert (await client.get())["params"]["requestId"] == asked["id"]
    await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": ACCEPTED})
    assert (await client.request("ping", request_id=9))["id"] == 9
    assert len(stage.alpha.sent) == 1
    assert guest.session.in_flight == 0


async def test_a_server_that_went_meanwhile_is_woken_and_told(stage: Stage, client: Client) -> None:
    needs(stage, await called(stage, client), {"who": "elicitation/create"})
    asked = await client.get()
    stage.alpha.up = False
    await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": ACCEPTED})
    await stage.alpha.wait_woken()
    stage.alpha.come_up()
    assert members(await stage.alpha.wait_sent(2))["inputResponses"] == {"who": ACCEPTED}


async def test_a_tool_that_is_switched_off_meanwhile_gets_no_answers(stage: Stage, client: Client) -> None:
    needs(stage, await called(stage, client), {"who": "elicitation/create"})
    asked = await client.get()
    stage.learn(Switched(off=frozenset({("alpha", "echo")})))
    await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": ACCEPTED})
    assert error_of(await client.get())["code"] in {"ToolDisabled", "ToolChanged", "UnknownTool"}
    assert len(stage.alpha.sent) == 1
