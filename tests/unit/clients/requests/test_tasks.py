"""Calls that are to become tasks, and what their clients ask about them: forwarded, the ids exchanged."""

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from daemon.errors import UpstreamLost
from tests.fakes_upstream import Client, Stage, tool
from tests.unit.clients.inputs import raw

TASK = {"taskId": "theirs", "status": "working", "createdAt": "now", "lastUpdatedAt": "now", "ttl": 3_600_000}


async def begin(stage: Stage, client: Client, result: object = None) -> Any:
    """Call a tool as a task; return what the client is answered."""
    count = len(stage.alpha.sent)
    await client.call("alpha", "echo", {"x": 1}, request_id="c", task={"ttl": 5})
    sent = await stage.alpha.wait_sent(count + 1)
    assert sent.members == {"task": {"ttl": 5}, "name": "echo", "arguments": {"x": 1}}
    stage.answer(sent, json.dumps(result or {"task": TASK, "more": [1]}).encode())
    return await client.get()


async def task_of(stage: Stage, client: Client) -> str:
    found: str = (await begin(stage, client))["result"]["task"]["taskId"]
    return found


async def test_a_task_gets_an_id_of_ours_through_a_meta_tool_too(stage: Stage, client: Client) -> None:
    result = (await begin(stage, client))["result"]
    assert result == {"task": {**TASK, "taskId": result["task"]["taskId"]}, "more": [1]}
    assert result["task"]["taskId"] != "theirs"


async def test_a_server_that_knows_no_tasks_answers_at_once(stage: Stage, client: Client) -> None:
    assert (await begin(stage, client, {"content": []}))["result"] == {"content": []}


async def test_a_task_that_is_refused_or_lost_is_an_error_of_the_protocol(stage: Stage, client: Client) -> None:
    for number in (1, 2):
        await client.call("alpha", "echo", request_id="c", task={})
        sent = await stage.alpha.wait_sent(number)
        if number == 1:
            stage.refuse(sent, b'{"code":-32601,"message":"no tasks"}')
        else:
            stage.lose(sent, UpstreamLost("gone"))
        assert (await client.get())["error"]["code"] == (-32601 if number == 1 else -32603)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/result"])
async def test_what_is_asked_about_a_task_goes_to_its_server(
    stage: Stage, nursery: trio.Nursery, method: str
) -> None:
    client, other = await stage.client(nursery), await stage.client(nursery)
    task_id = await task_of(stage, client)
    for asking, asked in ((other, task_id), (client, "theirs"), (client, 7)):
        assert (await asking.request(method, {"taskId": asked}))["error"]["code"] == -32602
    await client.ask(method, {"taskId": task_id, "x": 1, "_meta": {"progressToken": "p"}}, request_id="t")
    sent = await stage.alpha.wait_sent(2)
    assert (sent.call.method, sent.members) == (method, {"taskId": "theirs", "x": 1})
    stage.progress(sent, progress=1)
    assert (await client.get())["params"] == {"progressToken": "p", "progress": 1}
    related = {"io.modelcontextprotocol/related-task": {"taskId": "theirs"}}
    stage.answer(sent, json.dumps({**TASK, "_meta": related}).encode())
    result = (await client.get())["result"]
    assert result["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": task_id}}
    assert result["taskId"] == ("theirs" if method == "tasks/result" else task_id)


async def test_changes_of_a_task_are_told_to_the_connection_that_last_asked_about_it(
    stage: Stage, nursery: trio.Nursery
) -> None:
    first, second = await stage.client(nursery), await stage.client(nursery)
    key = {"mcpd/session": "shared"}
    await first.call("alpha", "echo", task={}, _meta=key)
    stage.answer(await stage.alpha.wait_sent(), json.dumps({"task": TASK}).encode())
    task_id = (await first.get())["result"]["task"]["taskId"]
    await second.ask("tasks/get", {"taskId": task_id, "_meta": key})
    stage.answer(await stage.alpha.wait_sent(2), json.dumps(TASK).encode())
    await second.get()
    stage.context.subscribers.hear("alpha", "notifications/tasks/status", raw(TASK), None)
    stage.outbox.flush()
    assert (await second.get())["params"]["taskId"] == task_id


async def test_a_task_of_2025_11_25_takes_no_answers(stage: Stage, client: Client) -> None:
    asked = {"taskId": await task_of(stage, client), "inputResponses": {}}
    assert (await client.request("tasks/update", asked))["error"]["code"] == -32602
    assert len(stage.alpha.sent) == 1


async def test_a_result_is_waited_for_as_long_as_the_task_is_kept(stage: Stage, client: Client) -> None:
    task_id = await task_of(stage, client)
    for number, method in enumerate(("tasks/result", "tasks/get")):
        await client.ask(method, {"taskId": task_id}, request_id=method)
        sent = await stage.alpha.wait_sent(2 + number)
        assert (sent.exchange.spared_until > trio.current_time() + 3000) is (method == "tasks/result")


async def test_tasks_are_listed_as_their_servers_say_they_are(
    stage: Stage, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    client, other = await stage.client(nursery), await stage.client(nursery)
    task_id = await task_of(stage, client)
    await client.ask("tasks/list", request_id="l")
    sent = await stage.alpha.wait_sent(2)
    assert (sent.call.method, sent.members) == ("tasks/get", {"taskId": "theirs"})
    stage.answer(sent, json.dumps({**TASK, "status": "completed"}).encode())
    assert (await client.get())["result"] == {"tasks": [{**TASK, "taskId": task_id, "status": "completed"}]}
    assert (await other.request("tasks/list"))["result"] == {"tasks": []}
    other_task = {"task": {**TASK, "taskId": "others"}}
    second = (await begin(stage, client, other_task))["result"]["task"]["taskId"]
    # Its server does not answer: what is known is told.
    found = (await client.request("tasks/list"))["result"]["tasks"]
    assert {each["taskId"]: each["status"] for each in found} == {task_id: "completed", second: "working"}


@pytest.mark.parametrize(
    ("support", "declared"), [("required", True), ("optional", True), ("forbidden", False), (7, False)]
)
async def test_tasks_are_declared_where_a_server_has_them(
    stage: Stage, nursery: trio.Nursery, support: object, *, declared: bool
) -> None:
    schema = {"type": "object", "default": {"taskSupport": "optional"}}
    stage.lists("beta", tool("slow", execution={"taskSupport": support}, inputSchema=schema))
    client = await stage.client(nursery)
    result = (await client.request("initialize", {"protocolVersion": "2025-11-25"}))["result"]
    assert ("tasks" in result["capabilities"]) is declared


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/result"])
async def test_a_server_that_has_not_introduced_itself_may_have_tasks(client: Client, method: str) -> None:
    """A changed server keeps its tasks: a client must not be told that there are none."""
    await client.tell("mcpd/hello", {"servers": ["alpha"]})
    assert (await client.request(method, {"taskId": "x"}))["error"]["code"] == -32602
