"""Servers of MCP 2026-07-28 that need input, and clients of earlier revisions that are asked for it."""

import json
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from daemon.clients.asking import MAX_ROUNDS
from daemon.clients.connected_clients import ConnectedClients
from daemon.clients.input_required import FIRST_PAUSE, LONGEST_PAUSE
from daemon.clients.kept_results import KeptResults
from daemon.clients.requests.tasks import UNKNOWN
from daemon.clients.server_requests import MAX_OF_SERVER
from daemon.errors import UpstreamUnavailable
from daemon.facts import Switched
from daemon.history.event import Event, EventKind
from daemon.protocol import CAPABILITIES_KEY, TASKS_EXTENSION
from tests.fakes_upstream import MODERN, Client, Guest, Sent, Stage, error_of
from tests.unit.cases import cases
from tests.unit.clients import asking
from tests.unit.clients.inputs import ABLE, ACCEPTED, ANSWERS, META, QUESTION
from tests.unit.config.reading import config_of

STATE = rb'"\u0041 \/ opaque"'
"""A state whose bytes a decoder would change."""


async def greeted(stage: Stage, nursery: trio.Nursery, capabilities: object = ABLE) -> Guest:
    """A client that has said what it can be asked, of a modern server."""
    stage.alpha.is_modern = True
    return await asking.greeted(stage, nursery, capabilities, done=False)


async def called(stage: Stage, client: Client, number: int = 1, **params: Any) -> Sent:
    """A call that has reached its server, as this one of its requests."""
    await client.call("alpha", "echo", {"x": 1}, **params)
    return await stage.alpha.wait_sent(number)


def needs(stage: Stage, sent: Sent, requests: dict[str, str], state: bytes | None = STATE) -> None:
    """The server answers with what it needs: a method under each key."""
    asked = {key: {"method": each, "params": QUESTION} for key, each in requests.items()}
    told = b',"requestState":' + state if state is not None else b""
    stage.answer(
        sent, b'{"inputRequests":%b%b,"resultType":"input_required"}' % (json.dumps(asked).encode(), told)
    )


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
    assert sent.members == {
        "other": [1],
        "inputResponses": {"who": ACCEPTED},
        "requestState": "A / opaque",
        "name": "echo",
        "arguments": {"x": 1},
    }
    stage.answer(sent, b'{"content":[],"resultType":"complete"}')
    assert (await client.get())["result"] == {"content": [], "resultType": "complete"}
    assert guest.session.in_flight == 0
    assert stage.tally.servers["alpha"].relays == {("elicitation/create", "relayed"): 1}
    assert [(label, outcome) for _, label, _, outcome in stage.log.notes] == [("alpha/echo", "ok")]


@pytest.mark.parametrize("modern", [False, True])
async def test_what_no_user_is_to_see_ends_the_call(nursery: trio.Nursery, modern: bool) -> None:
    stage, noted = Stage(), list[Event]()
    stage.context = msgspec.structs.replace(stage.context, subscribers=ConnectedClients(noted.append))
    client = (await greeted(stage, nursery)).client
    more: dict[str, Any] = {"_meta": META} if modern else {}
    sent = await called(stage, client, **more)
    asked = {"who": {"method": "elicitation/create", "params": {**QUESTION, "url": "file:///etc/passwd"}}}
    stage.answer(sent, b'{"inputRequests":%b,"resultType":"input_required"}' % json.dumps(asked).encode())
    told = error_of(await client.get())
    assert (told["code"], "http or https" in told["message"]) == ("InputRefused", True)
    assert [(event.kind, event.server, event.details) for event in noted] == [
        (EventKind.QUESTION_REFUSED, "alpha", {"reason": "url"})
    ]


async def test_there_are_as_many_rounds_as_a_server_wants_up_to_a_bound(stage: Stage, client: Client) -> None:
    sent = await called(stage, client)
    for number in range(MAX_ROUNDS):
        needs(stage, sent, {f"k{number}": "roots/list"}, b'"%d"' % number if number % 2 else None)
        await answer(client, {"roots": []})
        sent = await stage.alpha.wait_sent(number + 2)
        said = sent.members
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
        assert "inputResponses" not in sent.members
    times.append(trio.current_time())
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == pytest.approx([FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, LONGEST_PAUSE], abs=0.01)


# --- clients that cannot, or will not ----------------------------------------------------------------------


async def test_an_elicitation_is_declined_for_who_cannot_ask(stage: Stage, nursery: trio.Nursery) -> None:
    client = (await greeted(stage, nursery, {})).client
    needs(stage, await called(stage, client), {"who": "elicitation/create"})
    sent = await stage.alpha.wait_sent(2)
    assert sent.members["inputResponses"] == {"who": {"action": "decline"}}


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
    more: dict[str, Any] = {"_meta": {**META, CAPABILITIES_KEY: capabilities}} if modern else {}
    needs(stage, await called(stage, client, **more), {"where": "roots/list"})
    sent = await stage.alpha.wait_sent(2)
    assert sent.members["inputResponses"] == {"where": {"roots": [{"uri": "file:///w", "name": "w"}]}}
    needs(stage, sent, {"what": "sampling/createMessage"})
    if modern:
        assert list((await client.get())["result"]["inputRequests"]) == ["what"]
        needs(stage, await called(stage, client, 3, **more), {})
        assert (await client.get())["result"]["inputRequests"] == {}
    else:
        assert error_of(await client.get())["code"] == "InputRefused"


async def test_roots_of_its_own_are_passed_on_as_they_are(stage: Stage, nursery: trio.Nursery) -> None:
    stage.alpha.roots = b'{"roots":[]}'
    client = (await greeted(stage, nursery)).client
    needs(stage, await called(stage, client), {"where": "roots/list"})
    await answer(client, ANSWERS["roots/list"])
    assert (await stage.alpha.wait_sent(2)).members["inputResponses"] == {"where": ANSWERS["roots/list"]}


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


async def test_a_result_that_only_speaks_of_a_task_is_none(stage: Stage, client: Client) -> None:
    result = {"content": [], "structuredContent": {"kind": "task"}}
    stage.answer(await called(stage, client), json.dumps(result).encode())
    assert (await client.get())["result"] == result


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


async def test_everything_can_be_asked_at_once(stage: Stage, client: Client) -> None:
    needs(stage, await called(stage, client), {key: key for key in ANSWERS})
    asked = [await client.get() for _ in ANSWERS]
    for message in reversed(asked):
        await client.send({"jsonrpc": "2.0", "id": message["id"], "result": ANSWERS[message["method"]]})
    assert (await stage.alpha.wait_sent(2)).members["inputResponses"] == ANSWERS


async def test_a_server_that_went_meanwhile_is_woken_and_told(stage: Stage, client: Client) -> None:
    needs(stage, await called(stage, client), {"who": "elicitation/create"})
    asked = await client.get()
    stage.alpha.up = False
    await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": ACCEPTED})
    await stage.alpha.wait_woken()
    stage.alpha.come_up()
    assert (await stage.alpha.wait_sent(2)).members["inputResponses"] == {"who": ACCEPTED}


async def test_a_tool_that_is_switched_off_meanwhile_gets_no_answers(stage: Stage, client: Client) -> None:
    needs(stage, await called(stage, client), {"who": "elicitation/create"})
    asked = await client.get()
    stage.learn(Switched(off=frozenset({("alpha", "echo")})))
    await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": ACCEPTED})
    assert error_of(await client.get())["code"] in {"ToolDisabled", "ToolChanged", "UnknownTool"}
    assert len(stage.alpha.sent) == 1


# --- results of tasks ----------------------------------------------------------------------------------------


PLAIN = {**MODERN, CAPABILITIES_KEY: ABLE}
"""The `_meta` of a client of 2026-07-28 that can be asked anything, and knows no tasks."""

WORKING: dict[str, Any] = {"taskId": "theirs", "status": "working", "ttlMs": 60_000, "pollIntervalMs": 1000}
RESULT = {"content": [{"type": "text", "text": "done"}]}
DONE = {**WORKING, "status": "completed", "result": RESULT}
ASKING = {
    **WORKING,
    "status": "input_required",
    "inputRequests": {"who": {"method": "elicitation/create", "params": QUESTION}},
}
NAMED = f"Server alpha asks: {QUESTION['message']}"


def tell(stage: Stage, sent: Sent, state: object, **more: object) -> None:
    """The server answers."""
    assert isinstance(state, dict)
    stage.answer(sent, json.dumps({**state, **more}).encode())


async def begun(stage: Stage, client: Client, **params: Any) -> None:
    """A call has become a task."""
    tell(stage, await called(stage, client, **params), WORKING, resultType="task")


def method_of(sent: Sent) -> tuple[str, Any]:
    """What a server was asked, with the members of the request."""
    return sent.call.method, sent.members


@pytest.fixture
async def client(stage: Stage, nursery: trio.Nursery, autojump_clock: MockClock) -> Client:
    """Of the handshake era."""
    return (await greeted(stage, nursery)).client


async def test_a_client_without_tasks_gets_the_result(stage: Stage, client: Client) -> None:
    await begun(stage, client, _meta={"progressToken": "p"})
    get = await stage.alpha.wait_sent(2)
    assert method_of(get) == ("tasks/get", {"taskId": "theirs"})
    assert TASKS_EXTENSION in json.loads(get.call.envelope[CAPABILITIES_KEY])["extensions"]
    tell(stage, get, WORKING)
    get = await stage.alpha.wait_sent(3)
    assert "server alpha works on a task for this call" in (await client.get())["params"]["message"]
    tell(stage, get, DONE)
    assert (await client.get())["result"] == RESULT


async def test_a_large_result_of_a_task_is_kept_as_any(nursery: trio.Nursery, tmp_path: Path) -> None:
    stage = Stage(profiles={"default": {"results": {"maxTokens": 500}}})
    msgspec.structs.force_setattr(stage.context, "results", KeptResults(tmp_path))
    client = (await greeted(stage, nursery)).client
    await begun(stage, client)
    content = [{"type": "text", "text": "some words\n" * 900}]
    tell(stage, await stage.alpha.wait_sent(2), DONE, result={"content": content})
    assert "this result is too long for a context" in (await client.get())["result"]["content"][1]["text"]
    assert len(stage.alpha.sent) == 2


async def test_a_call_that_needs_tasks_is_sent_again_by_mcpd_with_tasks(stage: Stage, client: Client) -> None:
    sent = await called(stage, client)
    assert "extensions" not in json.loads(sent.call.envelope[CAPABILITIES_KEY])
    lacks: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
    refusal = json.dumps({"code": -32021, "message": "tasks", "data": lacks}).encode()
    stage.refuse(sent, refusal)
    again = await stage.alpha.wait_sent(2)
    assert again.members == sent.members
    assert TASKS_EXTENSION in json.loads(again.call.envelope[CAPABILITIES_KEY])["extensions"]
    stage.refuse(again, refusal)
    assert error_of(await client.get())["code"] == "UpstreamCallError"
    assert len(stage.alpha.sent) == 2


@pytest.mark.parametrize("modern", [False, True])
async def test_what_a_task_asks_is_asked_once_and_answered(stage: Stage, client: Client, modern: bool) -> None:
    await begun(stage, client, **({"_meta": PLAIN} if modern else {}))
    tell(stage, await stage.alpha.wait_sent(2), ASKING)
    if modern:
        asked = (await client.get())["result"]
        assert asked["inputRequests"]["who"]["params"]["message"] == NAMED
        given = {"inputResponses": {"who": ACCEPTED, "more": 1}, "requestState": asked["requestState"]}
        await client.call("alpha", "echo", {"x": 1}, _meta=PLAIN, **given)
    else:
        assert (await answer(client))["params"]["message"] == NAMED
    update = await stage.alpha.wait_sent(3)
    assert method_of(update) == ("tasks/update", {"taskId": "theirs", "inputResponses": {"who": ACCEPTED}})
    tell(stage, update, {})
    # The server may repeat for a while what was answered.
    tell(stage, await stage.alpha.wait_sent(4), ASKING)
    tell(stage, await stage.alpha.wait_sent(5), DONE)
    assert (await client.get())["result"]["content"] == RESULT["content"]


@pytest.mark.parametrize(
    ("question", "capabilities", "said"),
    [({"url": "file:///etc/passwd"}, ABLE, "does not show to users"), ({}, {}, "lacks elicitation")],
)
async def test_a_question_that_cannot_be_asked_ends_call_and_task(
    nursery: trio.Nursery, autojump_clock: MockClock, question: Any, capabilities: Any, said: str
) -> None:
    stage, noted = Stage(), list[Event]()
    stage.context = msgspec.structs.replace(stage.context, subscribers=ConnectedClients(noted.append))
    client = (await greeted(stage, nursery)).client
    await begun(stage, client, _meta={**MODERN, CAPABILITIES_KEY: capabilities})
    who = {"method": "elicitation/create", "params": {**QUESTION, **question}}
    tell(stage, await stage.alpha.wait_sent(2), ASKING, inputRequests={"who": who})
    told = error_of(await client.get())
    assert (told["code"], said in told["message"]) == ("InputRefused", True)
    assert method_of(await stage.alpha.wait_sent(3))[0] == "tasks/cancel"
    assert [event.kind for event in noted] == [EventKind.QUESTION_REFUSED] * bool(question)


@cases("state", "said")
async def test_a_task_that_fails_fails_the_call(stage: Stage, client: Client, state: Any, said: str) -> None:
    await begun(stage, client)
    tell(stage, await stage.alpha.wait_sent(2), WORKING, **state)
    told = error_of(await client.get())
    assert (told["code"], said in told["message"]) == ("UpstreamCallError", True), told


async def test_a_task_that_takes_too_long_is_cancelled(stage: Stage, client: Client) -> None:
    await begun(stage, client)
    with trio.move_on_after(601):
        for number in count(2):
            sent = await stage.alpha.wait_sent(number)
            if sent.call.method == "tasks/get":
                tell(stage, sent, WORKING)
    told = error_of(await client.get())
    assert (told["code"], "timeouts.callMax" in told["message"]) == ("UpstreamTimeout", True)
    assert method_of(stage.alpha.sent[-1]) == ("tasks/cancel", {"taskId": "theirs"})
    # Doubled up to the server's interval: 600 s at a second apiece.
    assert len(stage.alpha.sent) == pytest.approx(600, abs=3)


@pytest.mark.parametrize("child", [True, False])
async def test_only_a_server_that_is_no_child_may_be_away_for_a_while(
    nursery: trio.Nursery, autojump_clock: MockClock, child: bool
) -> None:
    at: dict[str, object] = {"command": "unused"} if child else {"url": "http://localhost/mcp"}
    stage = Stage(config_of({"mcpServers": {"alpha": at, "beta": at}}))
    client = (await greeted(stage, nursery)).client
    await begun(stage, client)
    stage.lose(await stage.alpha.wait_sent(2), UpstreamUnavailable("server alpha is down", server="alpha"))
    if child:
        assert error_of(await client.get())["code"] == "UpstreamLost"
    else:
        tell(stage, await stage.alpha.wait_sent(3), DONE)
        assert (await client.get())["result"] == RESULT


# --- clients that have the extension ------------------------------------------------------------------------


@pytest.fixture
async def polling(stage: Stage, nursery: trio.Nursery) -> Client:
    """Of 2026-07-28, with the extension."""
    stage.alpha.is_modern = True
    return (await stage.connect(nursery)).client


async def handed_out(stage: Stage, client: Client, meta: object = META) -> str:
    """The id of a task."""
    await begun(stage, client, _meta=meta)
    result = (await client.get())["result"]
    assert result == {**WORKING, "resultType": "task", "taskId": result["taskId"]}
    assert len(result["taskId"]) == 43
    task_id: str = result["taskId"]
    return task_id


async def about(client: Client, method: str, task_id: object, **more: object) -> None:
    await client.ask(method, {"taskId": task_id, **more, "_meta": META})


@pytest.mark.parametrize("more", [{}, {"inputResponses": {"who": ACCEPTED}}])
async def test_requests_about_a_task_reach_its_server_by_the_servers_id(
    stage: Stage, polling: Client, more: Any
) -> None:
    task = await handed_out(stage, polling)
    for number, method in enumerate(("tasks/update", "tasks/cancel"), 2):
        await about(polling, method, task, **more)
        sent = await stage.alpha.wait_sent(number)
        assert method_of(sent) == (method, {**more, "taskId": "theirs"})
        tell(stage, sent, {"resultType": "complete"})
        assert (await polling.get())["result"] == {"resultType": "complete"}
    await about(polling, "tasks/get", task)
    tell(stage, await stage.alpha.wait_sent(4), ASKING)
    state = (await polling.get())["result"]
    assert (state["taskId"], state["inputRequests"]["who"]["params"]["message"]) == (task, NAMED)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_all_that_is_no_task_of_the_client_is_refused_alike(
    stage: Stage, polling: Client, nursery: trio.Nursery, method: str
) -> None:
    task = await handed_out(stage, polling)
    stranger = (await stage.connect(nursery)).client
    ids = ("theirs", "", task[:-1], task + "x", "x" * 10_000)
    for client, task_id in [(stranger, task), *((polling, each) for each in ids)]:
        await about(client, method, task_id)
        assert (await client.get())["error"] == {"code": -32602, "message": UNKNOWN}
    assert len(stage.alpha.sent) == 1


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
async def test_what_the_server_does_not_know_is_unknown(stage: Stage, polling: Client, method: str) -> None:
    task = await handed_out(stage, polling)
    await about(polling, method, task)
    sent = await stage.alpha.wait_sent(2)
    stage.refuse(sent, b'{"code":-32602,"message":"no task theirs"}')
    for _ in range(2):
        assert (await polling.get())["error"] == {"code": -32602, "message": UNKNOWN}
        await about(polling, method, task)


async def test_answers_that_the_server_refuses_leave_the_task_known(stage: Stage, polling: Client) -> None:
    task = await handed_out(stage, polling)
    for number in (2, 3):
        await about(polling, "tasks/update", task, inputResponses={"who": 7})
        stage.refuse(await stage.alpha.wait_sent(number), b'{"code":-32602,"message":"who is no answer"}')
        assert (await polling.get())["error"]["message"] == "who is no answer"


async def test_a_task_that_is_lost_with_its_server_has_failed(stage: Stage, polling: Client) -> None:
    task = await handed_out(stage, polling)
    stage.context.subscribers.lost("alpha")
    await about(polling, "tasks/get", task)
    state = (await polling.get())["result"]
    text = "the connection to server alpha was lost, and the task with it"
    assert (state["resultType"], state["status"], state["taskId"]) == ("complete", "failed", task)
    assert state["error"] == {"code": -32603, "message": text}
    await about(polling, "tasks/cancel", task)
    assert text in (await polling.get())["error"]["message"]


async def test_beyond_the_bound_mcpd_polls_for_a_client_that_would_poll(
    stage: Stage, polling: Client, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.clients.client_tasks.MAX_OWN_TASKS", 1)
    await handed_out(stage, polling)
    second = await called(stage, polling, 2, request_id=2, _meta=META)
    tell(stage, second, WORKING, taskId="second", resultType="task")
    tell(stage, await stage.alpha.wait_sent(3), DONE)
    assert (await polling.get())["result"]["content"] == RESULT["content"]


@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_a_listener_is_notified_of_each_change_until_the_task_ends(
    stage: Stage, polling: Client, autojump_clock: MockClock, status: str
) -> None:
    task = await handed_out(stage, polling)
    await polling.ask(
        "subscriptions/listen", {"notifications": {"taskIds": [task, "x"]}, "_meta": META}, request_id=9
    )
    acknowledged = (await polling.get())["params"]
    assert acknowledged["notifications"] == {"taskIds": [task]}
    for number in (2, 3):
        tell(stage, await stage.alpha.wait_sent(number), WORKING)
    tell(stage, await stage.alpha.wait_sent(4), DONE, status=status)
    told = [await polling.get() for _ in range(2)]
    assert [each["method"] for each in told] == ["notifications/tasks"] * 2
    assert [each["params"]["status"] for each in told] == ["working", status]
    assert {each["params"]["taskId"] for each in told} == {task}
    assert {each["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for each in told} == {9}
    await trio.sleep(60)
    assert len(stage.alpha.sent) == 4


@cases("method", "params")
async def test_a_client_that_has_not_declared_the_extension_is_refused(
    polling: Client, method: str, params: Any
) -> None:
    await polling.ask(method, {**params, "_meta": PLAIN})
    error = (await polling.get())["error"]
    wanted: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
    assert (error["code"], error["data"]) == (-32021, wanted)


async def test_what_tasks_had_in_2025_11_25_alone_is_gone(stage: Stage, polling: Client) -> None:
    task = await handed_out(stage, polling)
    for method in ("tasks/result", "tasks/list"):
        await about(polling, method, task)
        assert (await polling.get())["error"]["code"] == -32601
    await polling.call("alpha", "echo", {"x": 1}, task={"ttl": 5}, _meta=META)
    assert "task" not in (await stage.alpha.wait_sent(2)).members
