"""What clients ask about prompts: lists of all servers, and a prompt filled in by the server that has it."""

import json
from typing import Any

import pytest
import trio

from daemon.facts import Switched
from daemon.model import Kind
from tests.fakes_upstream import MODERN, Client, Stage

GREET = {"name": "greet", "title": "Say hello", "arguments": [{"name": "who", "x": 1.0}], "icons": []}


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.offers("alpha", Kind.PROMPT, GREET, "same")
    stage.offers("beta", Kind.PROMPT, "same", "other")
    for server in ("alpha", "beta"):
        for kind in (Kind.RESOURCE, Kind.TEMPLATE):
            stage.offers(server, kind)
    return stage


async def names(client: Client, method: str = "prompts/list", member: str = "prompts") -> list[str]:
    found = (await client.request(method))["result"]
    assert set(found) == {member}
    return [each["name"] for each in found[member]]


def params_of(sent: Any) -> tuple[str, Any]:
    """Method and params of what a server got."""
    return sent.call.method, json.loads(b"{%b}" % b"".join(bytes(part) for part in sent.call.params))


async def test_the_prompts_of_all_servers_are_listed_as_they_wrote_them(client: Client) -> None:
    listed = (await client.request("prompts/list"))["result"]["prompts"]
    assert listed[0] == GREET
    assert [each["name"] for each in listed] == ["greet", "same", "beta__same", "other"]
    modern = (await client.request("prompts/list", {"_meta": MODERN}))["result"]
    assert modern == {"resultType": "complete", "prompts": listed, "ttlMs": 0, "cacheScope": "private"}


async def test_a_request_for_prompts_waits_for_who_has_not_listed_any(nursery: trio.Nursery) -> None:
    stage = Stage()
    stage.offers("beta", Kind.PROMPT)
    client = await stage.client(nursery)
    await client.ask("prompts/list")
    await stage.alpha.wait_woken()
    stage.offers("alpha", Kind.PROMPT, "late")
    assert [each["name"] for each in (await client.get())["result"]["prompts"]] == ["late"]


@pytest.mark.parametrize(
    ("called", "server", "own"), [("greet", "alpha", "greet"), ("beta__same", "beta", "same")]
)
async def test_a_prompt_goes_to_its_server_under_the_servers_name_and_all_else_as_it_was(
    client: Client, stage: Stage, called: str, server: str, own: str
) -> None:
    line = (
        b'{"jsonrpc":"2.0","id":"p","method":"prompts/get","params":{"x":1.50,"name":"%b",'
        b'"arguments":{"who" : "\\u00e4"},"_meta":{"a":1,"progressToken":7}}}' % called.encode()
    )
    await client.send(line)
    sent = await stage.upstreams[server].wait_sent()
    assert b"".join(bytes(each) for each in sent.call.params) == (
        b'"x":1.50,"name":"%b","arguments":{"who" : "\\u00e4"}' % own.encode()
    )
    assert sent.call.method == "prompts/get"
    assert {key: bytes(value) for key, value in sent.call.meta.items()} == {"a": b"1"}
    assert sent.call.wants_progress
    stage.progress(sent, progress=1)
    assert (await client.get())["params"] == {"progressToken": 7, "progress": 1}
    stage.answer(sent, b'{"messages": [ 1.0 ], "x":{"y":1}}')
    assert await client.line() == b'{"jsonrpc":"2.0","id":"p","result":{"messages": [ 1.0 ], "x":{"y":1}}}'


async def test_the_servers_error_is_the_answer(client: Client, stage: Stage) -> None:
    stage.context.redact.hide(["hunter2-secret-value"])
    await client.ask("prompts/get", {"name": "greet"})
    error = {"code": -32602, "message": "who: hunter2-secret-value", "data": {"missing": ["who"]}}
    stage.refuse(await stage.alpha.wait_sent(), json.dumps(error).encode())
    assert (await client.get())["error"] == {**error, "message": "who: [redacted]"}


@pytest.mark.parametrize("name", ["gret", "", "x" * 10_000, "gr\u202eeet", "alpha/never"])
async def test_an_unknown_prompt_is_refused_with_what_there_is(client: Client, name: str) -> None:
    error = (await client.request("prompts/get", {"name": name}))["error"]
    assert error["code"] == -32602
    assert error["data"]["code"] == "UnknownPrompt"
    assert "prompts/list" in error["message"]
    assert "\u202e" not in error["message"]
    assert len(error["message"]) < 500
    if name == "gret":
        assert error["data"]["closest"] == ["greet"]


@pytest.mark.parametrize("params", [None, {}, {"name": 7}, {"name": None}, {"name": ["greet"]}])
async def test_a_request_that_names_no_prompt_is_refused(client: Client, params: object) -> None:
    error = (await client.request("prompts/get", params))["error"]
    assert error["code"] == -32602
    assert "name" in error["message"]


async def test_a_prompt_that_is_switched_off_is_not_listed(stage: Stage, nursery: trio.Nursery) -> None:
    stage.learn(Switched(off=frozenset({("alpha", "prompt:greet")})))
    client = await stage.client(nursery)
    assert "greet" not in await names(client)
    error = (await client.request("prompts/get", {"name": "greet"}))["error"]
    assert (error["code"], error["data"]["code"]) == (-32602, "PromptDisabled")
    assert "alpha" in error["message"]
    assert stage.alpha.sent == []


async def test_the_command_for_a_prompt_that_is_switched_off_is_one_word_of_a_shell(
    nursery: trio.Nursery,
) -> None:
    stage, name = Stage(), "greet;$(id)"
    stage.offers("alpha", Kind.PROMPT, name)
    stage.learn(Switched(off=frozenset({("alpha", f"prompt:{name}")})))
    client = await stage.client(nursery)
    error = (await client.request("prompts/get", {"name": name}))["error"]
    assert f"`mcpd enable 'alpha/prompt:{name}'`" in error["message"]


async def test_a_profile_without_prompts_neither_declares_nor_serves_them(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"default": {"prompts": False}})
    stage.offers("alpha", Kind.PROMPT, "greet")
    client = await stage.client(nursery)
    declared = (await client.request("initialize", {}))["result"]["capabilities"]
    assert "prompts" not in declared
    assert {"resources", "completions"} < declared.keys()
    for method in ("prompts/list", "prompts/get"):
        error = (await client.request(method, {"name": "greet"}))["error"]
        assert error["code"] == -32601
        assert "resources/list" in error["message"]
        assert error["message"].count("prompts") == 1


async def test_a_prompt_of_mcpds_own_has_every_tool_in_words(client: Client, stage: Stage) -> None:
    found = (await client.request("prompts/get", {"name": "mcpd_tools"}))["result"]
    text = found["messages"][0]["content"]["text"]
    assert "## echo\nDoes echo.\nArguments (JSON Schema): {" in text
    modern = (await client.request("prompts/get", {"name": "mcpd_tools", "_meta": MODERN}))["result"]
    assert modern["resultType"] == "complete"
    assert modern["messages"] == found["messages"]
    assert "mcpd_tools" not in await names(client)
    # A server that has one of that name is not hidden by it.
    stage.offers("alpha", Kind.PROMPT, "mcpd_tools")
    await client.ask("prompts/get", {"name": "mcpd_tools"})
    assert params_of(await stage.alpha.wait_sent())[1]["name"] == "mcpd_tools"
