"""Calls that become tasks of the extension (SEP-2663): polled for clients without it, handed out to others."""

import json
from itertools import count
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from daemon.clients.connected_clients import ConnectedClients
from daemon.clients.requests.tasks import UNKNOWN
from daemon.errors import UpstreamUnavailable
from daemon.history.event import Event, EventKind
from daemon.protocol import CAPABILITIES_KEY, TASKS_EXTENSION
from tests.fakes_upstream import MODERN, Client, Sent, Stage, error_of
from tests.unit.cases import cases
from tests.unit.clients.inputs import ABLE, ACCEPTED, META, QUESTION
from tests.unit.clients.test_rounds import answer, called, greeted, members
from tests.unit.config.reading import config_of

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
    return sent.call.method, members(sent)


@pytest.fixture
async def client(stage: Stage, nursery: trio.Nursery, autojump_clock: MockClock) -> Client:
    """Of the handshake era."""
    return (await greeted(stage, nursery)).client


async def test_a_client_without_tasks_gets_the_result(stage: Stage, client: Client) -> None:
    await begun(stage, client)
    get = await stage.alpha.wait_sent(2)
    assert method_of(get) == ("tasks/get", {"taskId": "theirs"})
    assert TASKS_EXTENSION in json.loads(get.call.envelope[CAPABILITIES_KEY])["extensions"]
    tell(stage, get, WORKING)
    tell(stage, await stage.alpha.wait_sent(3), DONE)
    assert (await client.get())["result"] == RESULT


async def test_a_call_that_needs_tasks_is_sent_again_by_mcpd_with_tasks(stage: Stage, client: Client) -> None:
    sent = await called(stage, client)
    assert "extensions" not in json.loads(sent.call.envelope[CAPABILITIES_KEY])
    lacks: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
    refusal = json.dumps({"code": -32021, "message": "tasks", "data": lacks}).encode()
    stage.refuse(sent, refusal)
    again = await stage.alpha.wait_sent(2)
    assert members(again) == members(sent)
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


async def test_a_client_that_cancels_its_call_cancels_the_task(stage: Stage, client: Client) -> None:
    await begun(stage, client)
    await stage.alpha.wait_sent(2)
    await client.tell("notifications/cancelled", {"requestId": 1})
    assert method_of(await stage.alpha.wait_sent(3))[0] == "tasks/cancel"


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


async def called_again(stage: Stage, client: Client) -> Sent:
    """A second call that has reached its server."""
    await client.call("alpha", "echo", {"x": 1}, request_id=2, _meta=META)
    return await stage.alpha.wait_sent(2)


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
    tell(stage, await called_again(stage, polling), WORKING, taskId="second", resultType="task")
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
    assert "task" not in members(await stage.alpha.wait_sent(2))
