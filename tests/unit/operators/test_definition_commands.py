"""What operators are shown of prompts, resources and templates: where they come from, and whether they work."""

import json
from typing import Any

import msgspec
import pytest
import trio

from daemon.errors import ResourceDisabled, UnknownResource
from daemon.facts import Switched
from daemon.model import Kind
from daemon.operators.definition_commands import LocateParams, listed, locate, problems
from daemon.states import ServerState
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.operators.offering import offer
from tests.unit.operators.stage import OperatorStage, operator_context


def told(stage: Stage, kind: Kind) -> list[dict[str, Any]]:
    context = operator_context(stage)
    rows: list[dict[str, Any]] = json.loads(msgspec.json.encode(listed(context, context.catalog.servers, kind)))
    return rows


def test_each_says_what_clients_call_it_and_whether_it_works() -> None:
    stage = Stage()
    offer(stage, "alpha", Kind.PROMPT, "review", title="Review")
    offer(stage, "beta", Kind.PROMPT, "review", "plan")
    stage.becomes("beta", ServerState.BACKOFF)
    stage.learn(Switched(off=frozenset({("alpha", "prompt:review")})))
    review, other, plan = told(stage, Kind.PROMPT)
    assert review == {
        "server": "alpha",
        "name": "review",
        "offeredAs": "review",
        "enabled": False,
        "available": False,
        "definition": {"name": "review", "title": "Review"},
    }
    assert (other["offeredAs"], other["enabled"], other["available"]) == ("beta__review", True, False)
    assert plan["offeredAs"] == "plan"


def test_only_servers_of_which_there_is_something_to_tell_are_named() -> None:
    stage = Stage()
    context = operator_context(stage)
    assert problems(context, context.catalog.servers, (Kind.PROMPT,)) == {}
    offer(stage, "alpha", Kind.PROMPT, "x", quarantined={"y": f"no name: ghp_{'a1B2' * 9}"})
    offer(stage, "beta", Kind.RESOURCE, problem="it took too long")
    found = problems(context, context.catalog.servers, (Kind.PROMPT, Kind.RESOURCE))
    assert {name: (each["problem"], each["quarantined"]) for name, each in found.items()} == {
        "alpha": ("", {"y": "no name: [redacted]"}),
        "beta": ("it took too long", {}),
    }
    assert list(problems(context, context.catalog.servers, (Kind.PROMPT,))) == ["alpha"]
    stage.becomes("beta", ServerState.FAILED)
    assert problems(context, context.catalog.servers, (Kind.PROMPT,))["beta"]["known"] is False


async def test_prompts_resources_and_templates_are_told_with_their_servers(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    offer(daemon.stage, "alpha", Kind.PROMPT, "review")
    client = await daemon.connect(nursery)
    answer = (await client.request("prompts"))["result"]
    assert [each["name"] for each in answer["prompts"]] == ["review"]
    assert set(answer) == {"prompts", "servers"}
    assert set(answer["servers"]["alpha"]) == {"state", "reason", "known", "problem", "quarantined"}
    assert (await client.request("prompts", {"server": "beta"}))["result"] == {"prompts": [], "servers": {}}
    assert "Did you mean beta?" in (await client.request("prompts", {"server": "bta"}))["error"]["message"]
    offer(daemon.stage, "alpha", Kind.RESOURCE, "file:///a")
    offer(daemon.stage, "beta", Kind.TEMPLATE, "x:{y}")
    answer = (await client.request("resources"))["result"]
    assert [each["uri"] for each in answer["resources"]] == ["file:///a"]
    assert [each["uri"] for each in answer["templates"]] == ["x:{y}"]
    assert list(answer["servers"]) == ["alpha", "beta"]
    assert (await client.request("resources", {"server": "beta"}))["result"]["resources"] == []


async def test_a_prompt_and_a_resource_are_passed_on_unopened(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    offer(daemon.stage, "alpha", Kind.PROMPT, "review", arguments=[{"name": "branch", "required": True}])
    client = await daemon.connect(nursery)
    await client.ask("prompt", {"server": "alpha", "name": "review", "arguments": {"branch": "main"}})
    sent = await daemon.alpha.wait_sent()
    assert sent.call.method == "prompts/get"
    members = json.loads(b"{%b}" % b"".join(sent.call.params))
    assert members == {"name": "review", "arguments": {"branch": "main"}}
    daemon.stage.answer(sent, b'{ "messages":[] }')
    assert await client.line() == b'{"jsonrpc":"2.0","id":1,"result":{ "messages":[] }}'
    await client.ask("read", {"server": "alpha", "uri": 'x:"y"'})
    sent = await daemon.alpha.wait_sent(2)
    assert sent.call.method == "resources/read"
    assert json.loads(b"{%b}" % b"".join(sent.call.params)) == {"uri": 'x:"y"'}
    daemon.stage.answer(sent, b'{ "contents":[] }')
    assert await client.line() == b'{"jsonrpc":"2.0","id":1,"result":{ "contents":[] }}'


@cases("name", "arguments", "said")
async def test_what_cannot_work_is_refused_before_it_is_sent(
    nursery: trio.Nursery, name: str, arguments: dict[str, str], said: str
) -> None:
    daemon = OperatorStage()
    described = [{"name": "branch", "required": True}, {"name": "style"}]
    offer(daemon.stage, "alpha", Kind.PROMPT, "review", "off", arguments=described)
    daemon.stage.learn(Switched(off=frozenset({("alpha", "prompt:off")})))
    client = await daemon.connect(nursery)
    answer = await client.request("prompt", {"server": "alpha", "name": name, "arguments": arguments})
    assert said in answer["error"]["message"]
    assert not daemon.alpha.sent


async def test_a_server_that_has_not_listed_is_asked_all_the_same(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    client = await daemon.connect(nursery)
    await client.ask("prompt", {"server": "alpha", "name": "any"})
    daemon.stage.refuse(await daemon.alpha.wait_sent(), b'{"code":-32602,"message":"no such prompt"}')
    assert "no such prompt (-32602)" in (await client.get())["error"]["message"]


async def test_what_is_switched_off_is_not_read(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    daemon.stage.learn(Switched(off=frozenset({("alpha", "resource:x:y")})))
    client = await daemon.connect(nursery)
    answer = await client.request("read", {"server": "alpha", "uri": "x:y"})
    assert "`mcpd enable alpha/resource:x:y`" in answer["error"]["message"]
    daemon.stage.learn(Switched(off=frozenset({("alpha", "")})))
    answer = await client.request("read", {"server": "alpha", "uri": "x:z"})
    assert "server alpha is switched off; `mcpd enable alpha`" in answer["error"]["message"]
    assert not daemon.alpha.sent


async def place(stage: Stage, uri: str) -> dict[str, object]:
    return await locate(operator_context(stage), LocateParams(uri))


async def test_a_uri_is_read_where_a_client_would_read_it_and_profiles_hide_nothing() -> None:
    stage = Stage(profiles={"default": {"resources": False}})
    offer(stage, "alpha", Kind.RESOURCE, "file:///a")
    offer(stage, "beta", Kind.RESOURCE, "file:///a", "file:///b")
    offer(stage, "beta", Kind.TEMPLATE, "notes://{day}")
    assert await place(stage, "file:///a") == {"server": "alpha", "uri": "file:///a"}
    assert await place(stage, "file:///b") == {"server": "beta", "uri": "file:///b"}
    assert await place(stage, "notes://monday") == {"server": "beta", "uri": "notes://monday"}
    assert await place(stage, "mcpd://beta/file%3A%2F%2F%2Fa") == {"server": "beta", "uri": "file:///a"}


async def test_what_may_be_anybodys_is_refused_with_the_closest() -> None:
    stage = Stage()
    offer(stage, "alpha", Kind.RESOURCE, "file:///notes")
    offer(stage, "beta", Kind.RESOURCE, "file:///b")
    with pytest.raises(UnknownResource, match=r"Did you mean file:///notes .*`mcpd read SERVER/URI`"):
        await place(stage, "file:///nots")


async def test_what_is_switched_off_is_said_to_be_and_how_it_is_switched_on() -> None:
    stage = Stage()
    offer(stage, "alpha", Kind.RESOURCE, "file:///a", "file:///b")
    offer(stage, "beta", Kind.RESOURCE, "file:///c")
    stage.learn(Switched(off=frozenset({("alpha", "resource:file:///a")})))
    with pytest.raises(ResourceDisabled, match="`mcpd enable alpha/resource:file:///a`"):
        await place(stage, "file:///a")
    with pytest.raises(UnknownResource) as refused:
        await place(stage, "file:///nots")
    assert "file:///a" not in str(refused.value)
