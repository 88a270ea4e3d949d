"""Calls of scripts are calls of a session: sent, asked about, refused, cancelled and recorded as any other."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from daemon.clients.client import Principal, local_user
from daemon.clients.script_calls import MAX_INPUTS, Scripts
from daemon.errors import Overloaded
from daemon.protocol import SESSION_KEY
from daemon.scripting.runner import ScriptOutcome
from tests.fakes_upstream import Client, Stage, error_of, tool
from tests.unit.cases import cases
from tests.unit.clients.permissions.agreeing import META, accept, answer_to, asked, greeted, reply
from tests.unit.clients.test_audited import audited, records
from tests.unit.clients.test_traced import taken, traced

READS = tool("echo", annotations={"readOnlyHint": True})


@pytest.fixture
async def scripts(nursery: trio.Nursery) -> Scripts:
    scripts = Scripts()
    nursery.start_soon(scripts.run)
    return scripts


def staged(scripts: Scripts, *rules: Any, **profile: Any) -> Stage:
    """A stage whose clients can run scripts."""
    stage = Stage(profiles={"default": {"surface": "code", "permissions": list(rules), **profile}})
    msgspec.structs.force_setattr(stage.context, "run_script", scripts.begin)
    return stage


@pytest.fixture
def stage(scripts: Scripts) -> Stage:
    return staged(scripts)


@pytest.fixture
async def client(stage: Stage, nursery: trio.Nursery) -> Client:
    return await greeted(stage, nursery)


async def run(client: Client, code: str, request_id: Any = 1, *, name: str = "run_code", **more: Any) -> None:
    inputs = {"inputs": more.pop("inputs")} if "inputs" in more else {}
    params = {"name": name, "arguments": {"code": code, **inputs}, **more}
    await client.ask("tools/call", params, request_id=request_id)


def gives(value: object) -> bytes:
    return json.dumps({"content": [], "structuredContent": value}).encode()


def value_of(message: Any) -> Any:
    result = message["result"]
    assert not result.get("isError"), result
    return result["structuredContent"]["result"]


async def test_a_script_gets_results_as_data_and_its_last_value_is_the_answer(
    stage: Stage, client: Client
) -> None:
    await run(client, "found = await call('alpha/echo', {'x': size})\nfound['y'] + 1", inputs={"size": 3})
    sent = await stage.alpha.wait_sent()
    assert sent.arguments == {"x": 3}
    stage.answer(sent, gives({"y": 41}))
    message = await answer_to(client)
    assert message["result"]["structuredContent"] == {"result": 42, "calls": 1}
    assert message["result"]["content"] == [{"type": "text", "text": "42"}]


@cases("content", "value")
async def test_content_is_parsed_as_json_if_it_is_json(
    stage: Stage, client: Client, content: Any, value: Any
) -> None:
    await run(client, "await call('alpha/echo', {})")
    stage.answer(await stage.alpha.wait_sent(), json.dumps({"content": content}).encode())
    assert value_of(await answer_to(client)) == (content if value is None else value)


async def test_calls_are_made_side_by_side(stage: Stage, client: Client) -> None:
    code = "import asyncio\nawait asyncio.gather(*[call('alpha/echo', {'x': n}) for n in range(3)])"
    await run(client, code)
    await stage.alpha.wait_sent(3)
    for sent in reversed(stage.alpha.sent):
        stage.answer(sent, gives(sent.arguments["x"] * 10))
    assert value_of(await answer_to(client)) == [0, 10, 20]


async def test_a_tool_that_fails_raises_what_a_script_can_catch(stage: Stage, client: Client) -> None:
    failed = json.dumps({"content": [{"type": "text", "text": "no such file"}], "isError": True}).encode()
    caught = "try:\n    await call('alpha/echo', {})\nexcept ToolError as error:\n    found = error.text\nfound"
    await run(client, caught)
    stage.answer(await stage.alpha.wait_sent(), failed)
    assert "no such file" in value_of(await answer_to(client))
    await run(client, "x = 1\nprint('so far')\nawait call('alpha/echo', {})", 2)
    stage.answer(await stage.alpha.wait_sent(2), failed)
    error = error_of(await answer_to(client, 2))
    assert error["code"] == "ScriptFailed"
    assert "no such file" in error["message"]
    assert "line 3" in error["message"]
    assert (error["printed"], error["calls"]) == ("so far\n", 1)
    stage.alpha.refusal = Overloaded("Wait.", bound="calls at a server")
    await run(client, caught.replace("error.text", "error.code"), 3)
    assert value_of(await answer_to(client, 3)) == "Overloaded"
    assert len({*stage.alpha.clients} - {0}) == 1, "a server counts the calls of scripts as their client's"


@cases("call", "code")
async def test_a_call_that_is_refused_is_not_sent(
    scripts: Scripts, nursery: trio.Nursery, call: str, code: str
) -> None:
    stage = staged(scripts, {"match": "beta/*", "then": "deny"})
    client = await greeted(stage, nursery)
    await run(client, f"await call({call})")
    assert code in error_of(await answer_to(client))["message"]
    assert not stage.alpha.sent


async def test_the_user_is_asked_in_the_middle_of_a_script_and_may_refuse(
    scripts: Scripts, nursery: trio.Nursery
) -> None:
    stage = staged(scripts, {"match": "alpha/add", "then": "ask"})
    client = await greeted(stage, nursery)
    await run(client, "one = await call('alpha/echo', {})\nawait call('alpha/add', {'to': one})")
    stage.answer(await stage.alpha.wait_sent(), gives(7))
    question = await asked(client)
    assert question["params"]["message"].startswith('mcpd asks: alpha/add wants to run with {"to":7}\n')
    assert len(stage.alpha.sent) == 1
    await reply(client, question, accept())
    stage.answer(await stage.alpha.wait_sent(2), gives("done"))
    assert value_of(await answer_to(client)) == "done"
    await run(client, "await call('alpha/add', {})", 2)
    await reply(client, await asked(client), accept("refuse"))
    assert "PermissionDenied" in error_of(await answer_to(client, 2))["message"]
    assert len(stage.alpha.sent) == 2


async def test_a_modern_client_is_asked_in_rounds_while_the_script_waits(
    scripts: Scripts, nursery: trio.Nursery
) -> None:
    stage = staged(scripts, {"match": "alpha/*", "then": "ask"})
    client = await stage.client(nursery)
    code = "one = await call('alpha/echo', {})\nawait call('alpha/add', {'to': one})"
    await run(client, code, _meta=META)
    for request_id, (name, value) in enumerate((("echo", 7), ("add", "done")), 2):
        result = (await answer_to(client, request_id - 1))["result"]
        assert result["resultType"] == "input_required"
        ((key, question),) = result["inputRequests"].items()
        assert f"alpha/{name} wants to run" in question["params"]["message"]
        more = {"requestState": result["requestState"], "inputResponses": {key: accept()}}
        await run(client, code, request_id, _meta=META, **more)
        stage.answer(await stage.alpha.wait_sent(request_id - 1), gives(value))
    assert value_of(await answer_to(client, 3)) == "done"
    assert len(stage.alpha.sent) == 2


async def test_a_script_that_only_reads_calls_nothing_else(scripts: Scripts, nursery: trio.Nursery) -> None:
    stage = staged(scripts, surface="full", runCode=True)
    stage.lists("alpha", READS, "add")
    client = await greeted(stage, nursery)
    # The surface has decided about this name before, for a call that may write.
    await client.ask("tools/call", {"name": "add", "arguments": {}}, request_id=9)
    stage.answer(await stage.alpha.wait_sent())
    await answer_to(client, 9)
    # So has a script that may write.
    await run(client, "await call('alpha/add', {})\nawait call('add', {})", 8)
    for sent in (2, 3):
        stage.answer(await stage.alpha.wait_sent(sent), gives(0))
    await answer_to(client, 8)
    await run(client, "await call('alpha/echo', {})", name="run_read_only_code")
    stage.answer(await stage.alpha.wait_sent(4), gives("read"))
    assert value_of(await answer_to(client)) == "read"
    for name in ("alpha/add", "add"):
        await run(client, f"await call('{name}', {{}})", 2, name="run_read_only_code")
        assert "run_read_only_code" in error_of(await answer_to(client, 2))["message"]
    assert len(stage.alpha.sent) == 4


async def test_calls_end_with_their_script_which_is_cancelled_or_whose_client_leaves(
    stage: Stage, client: Client
) -> None:
    await run(client, "await call('alpha/echo', {})\nawait call('alpha/add', {})")
    await stage.alpha.wait_sent()
    await client.tell("notifications/cancelled", {"requestId": 1})
    await stage.alpha.wait_cancelled()
    await run(client, "1", 2)
    assert value_of(await answer_to(client, 2)) == 1
    assert len(stage.alpha.sent) == 1
    await run(client, "await call('alpha/echo', {})", 3)
    await stage.alpha.wait_sent(2)
    client.close()
    await stage.alpha.wait_cancelled(2)


async def test_progress_counts_calls(stage: Stage, client: Client) -> None:
    code = "for n in range(2):\n    await call('alpha/echo', {'n': n})"
    await run(client, code, _meta={"progressToken": "p"})
    for count in (1, 2):
        stage.answer(await stage.alpha.wait_sent(count), gives(0))
        told = (await client.get())["params"]
        assert (told["progressToken"], told["progress"]) == ("p", count)
    assert value_of(await answer_to(client)) is None


async def test_what_is_too_long_or_nested_too_deeply_is_refused(client: Client) -> None:
    await run(client, "await call('alpha/' + 'x' * 100_000, {})", _meta={"progressToken": "p"})
    answer = await client.get()
    assert "UnknownTool: no tool has a name of more than 1,024 characters" in error_of(answer)["message"]
    await run(client, "1", inputs={"lists": [[]] * 100_000})
    assert error_of(await answer_to(client))["limit"] == MAX_INPUTS
    params = b'{"name":"run_code","arguments":{"code":"1","inputs":{"a":1e400}}}'
    await client.send(b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":%b}' % params)
    assert error_of(await answer_to(client, 2))["code"] == "InvalidArguments"
    await run(client, "a = 1\nfor _ in range(998):\n    a = [a]\na")
    error = error_of(await answer_to(client))
    assert (error["code"], "nested too deeply" in error["message"]) == ("ScriptFailed", True)


async def test_a_script_leaves_nothing_that_listens(stage: Stage, client: Client) -> None:
    await run(client, "await call('alpha/echo', {})")
    asked = {"mode": "url", "message": "Log in", "url": "https://a.example/", "elicitationId": "e"}
    error = {"code": -32042, "message": "log in first", "data": {"elicitations": [asked]}}
    (await stage.alpha.wait_sent()).exchange.refused(json.dumps(error).encode())
    stage.outbox.flush()
    assert "log in first" in error_of(await answer_to(client))["message"]
    assert not stage.context.subscribers.sent_to_urls


async def test_a_fault_while_a_script_is_cancelled_costs_no_other(
    scripts: Scripts, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = trio.Event(), trio.Event()

    async def fail_at_the_end() -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
            raise OSError("a fault")

    async def failing(*_: object) -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(fail_at_the_end)
            await trio.sleep_forever()

    with monkeypatch.context() as patched:
        patched.setattr(scripts.interpreter, "run", failing)
        await run(client, "1")
        await begun.wait()
        await client.tell("notifications/cancelled", {"requestId": 1})
        await ended.wait()
    await run(client, "2", 2)
    assert value_of(await answer_to(client, 2)) == 2


async def test_a_script_that_is_too_long_is_not_run_and_a_value_that_is_too_large_is_cut_and_said_so(
    scripts: Scripts, nursery: trio.Nursery
) -> None:
    client = await greeted(staged(scripts, answerTokens=500, scriptLimits={"codeBytes": 60}), nursery)
    await run(client, "1 + 1 " * 11, 9)
    assert error_of(await answer_to(client, 9))["limit"] == 60
    await run(client, "'é' * 5000")
    result = (await answer_to(client))["result"]
    assert "10,002 bytes" in result["structuredContent"]["note"]
    assert len(result["content"][0]["text"].encode()) <= 2000
    await run(client, "for n in range(2000):\n    print('x' * 10)\n'end'", 2)
    result = (await answer_to(client, 2))["result"]
    assert result["structuredContent"]["result"] == "end"
    assert len(result["content"][0]["text"].encode()) <= 2000


async def test_a_tool_that_changed_is_refused_once(stage: Stage, client: Client) -> None:
    described = {"name": "describe_tools", "arguments": {"names": ["alpha/echo", "nothing"]}}
    text = (await client.request("tools/call", described, request_id=5))["result"]["content"][0]["text"]
    assert "alpha/echo" in text
    assert "# nothing:" in text
    stage.lists("alpha", tool("echo", description="Another."), "add")
    await run(client, "await call('alpha/echo', {})")
    refused = error_of(await answer_to(client))["message"]
    assert "ToolChanged" in refused
    assert "describe_tools" in refused
    assert "error.definition" not in refused, "which a script does not see"
    await run(client, "await call('alpha/echo', {})", 2)
    stage.answer(await stage.alpha.wait_sent(), gives(1))
    assert value_of(await answer_to(client, 2)) == 1


async def test_records_of_its_calls_name_the_script_and_traces_the_name_that_it_has_called(
    scripts: Scripts, nursery: trio.Nursery, tmp_path: Path
) -> None:
    stage = audited(tmp_path, surface="code")
    for name, value in (("run_script", scripts.begin), ("tracer", traced().context.tracer)):
        msgspec.structs.force_setattr(stage.context, name, value)
    client = await greeted(stage, nursery)
    for number in (1, 2, 3):  # the second one's decision is remembered for the third
        await run(client, f"await call('alpha/echo', {{}})\n{number}", number)
        stage.answer(await stage.alpha.wait_sent(number), gives(1))
        await answer_to(client, number)
    sent = [each for each in await records(stage) if each["decision"] == "sent"]
    assert [each["tool"] for each in sent] == ["echo"] * 3
    assert [len(each) for each in {each["details"]["script"] for each in sent}] == [64] * 3
    assert [each.series[0][2] for each in taken(stage)][-2:] == ["alpha/echo", "run_code"]


async def test_without_an_interpreter_the_error_says_what_to_install(
    scripts: Scripts, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts.interpreter, "unavailable", "pip install 'mcpd-supervisor[code]'")
    stage = staged(scripts)
    client = await greeted(stage, nursery)
    await run(client, "1")
    error = error_of(await answer_to(client))
    assert error["code"] == "ScriptsUnavailable"
    assert "mcpd-supervisor[code]" in error["message"]


async def test_tools_are_found_by_what_they_do_and_only_so_many_are_described(client: Client) -> None:
    params = {"name": "search_tools", "arguments": {"query": "echo"}}
    found = (await client.request("tools/call", params))["result"]["structuredContent"]["tools"]
    assert next(iter(found)) in {"alpha/echo", "beta/echo"}
    listed = (await client.request("tools/list", {}, request_id=2))["result"]["tools"]
    names = [each["name"] for each in listed]
    assert names == ["search_tools", "describe_tools", "run_code", "run_read_only_code"]
    for count in (0, 51):
        params = {"name": "describe_tools", "arguments": {"names": [f"n{each}" for each in range(count)]}}
        error = error_of(await client.request("tools/call", params))
        assert (error["code"], "1 to 50 names" in error["message"]) == ("InvalidArguments", True)


async def test_results_that_stay_in_a_script_count_as_spared(stage: Stage, client: Client) -> None:
    await run(client, "len(await call('alpha/echo', {}))")
    stage.answer(await stage.alpha.wait_sent(), gives("x" * 8000))
    assert value_of(await answer_to(client)) == 8000
    # Half of them, as a model reads an answer in one form of two.
    assert 3500 < stage.tally.lists["code"].spared < 4100


async def test_a_script_that_runs_is_never_given_to_the_next_daemon(
    stage: Stage, nursery: trio.Nursery
) -> None:
    guest = await stage.connect(nursery)
    await run(guest.client, "await call('alpha/echo', {})")
    sent = await stage.alpha.wait_sent()
    assert guest.session.calls.give_back() == []
    stage.answer(sent, gives("done"))
    assert value_of(await answer_to(guest.client)) == "done"


@pytest.mark.parametrize("code", ["```python\n{}\n```", "\n```py\n{}```\n\n", "```\n{}\n```", "{}"])
async def test_a_fence_is_no_part_of_a_script(client: Client, code: str) -> None:
    await run(client, code.format("x = '```'\nlen(x)"))
    assert value_of(await answer_to(client)) == 3


@pytest.mark.parametrize("surface", ["category", "browse", "search", "load", "full"])
async def test_types_are_shown_wherever_scripts_run(
    scripts: Scripts, nursery: trio.Nursery, surface: str
) -> None:
    client = await greeted(staged(scripts, surface=surface, runCode=True), nursery)
    listed = (await client.request("tools/list", {}, request_id=2))["result"]["tools"]
    told = {each["name"]: each["description"] for each in listed}
    assert "describe_tools shows" in told["run_code"]
    params = {"name": "describe_tools", "arguments": {"names": ["alpha/echo"]}}
    stubs = (await client.request("tools/call", params, request_id=3))["result"]["content"][0]["text"]
    assert 'result = await call("alpha/echo", {' in stubs


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        (Principal(owner="token a: ", token="a"), Principal(owner="token a: ", token="a"), True),
        (Principal(owner="token a: ", token="a"), Principal(owner="token b: ", token="b"), False),
        (Principal(), Principal(), True),
        (local_user(os.getuid()), local_user(os.getuid()), False),
        (local_user(77777), local_user(77777), True),
    ],
)
async def test_places_are_shared_by_token_whatever_the_session(
    scripts: Scripts, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, one: Any, other: Any, is_one: bool
) -> None:
    owners: list[str] = []

    async def note(*told: Any) -> ScriptOutcome:
        owners.append(told[-1])
        return ScriptOutcome("1")

    monkeypatch.setattr(scripts.interpreter, "run", note)
    stage = staged(scripts)
    for number, principal in enumerate((one, other)):
        client = (await stage.connect(nursery, principal=principal)).client
        await run(client, "1", _meta={SESSION_KEY: f"key {number}"})
        assert value_of(await answer_to(client)) == 1
    assert (owners[0] == owners[1]) is is_one
