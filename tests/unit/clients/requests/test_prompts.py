"""What clients ask about prompts: lists of all servers, and a prompt filled in by the server that has it."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec import Raw

from daemon.actors.session import OF_CONNECTIONS, OF_SESSIONS
from daemon.catalog.extensions import is_unknown, may_pass
from daemon.catalog.kinds import CHANGED, LISTS
from daemon.facts import DefinitionsListed, Switched
from daemon.model import Kind
from daemon.protocol import ASKED_OF_CLIENTS
from tests.fakes_upstream import MODERN, Client, Sent, Stage
from tests.unit.cases import rows_of

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


def params_of(sent: Sent) -> tuple[str, Any]:
    """Method and params of what a server got."""
    return sent.call.method, sent.members


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


# --- what is passed on ---------------------------------------------------------------------------------------


REFUSED = b'{"code":-32601,"message":"No such list","data":{"method":"x"}}'
SERVED = (*OF_CONNECTIONS, *OF_SESSIONS)


async def chosen(stage: Stage, nursery: trio.Nursery, *servers: str, **more: object) -> Client:
    """A client that has chosen these servers."""
    client = await stage.client(nursery)
    await client.tell("mcpd/hello", {"servers": list(servers), **more})
    return client


@pytest.fixture
async def alone(stage: Stage, nursery: trio.Nursery) -> Client:
    """A client that has chosen alpha alone."""
    return await chosen(stage, nursery, "alpha")


async def test_an_unknown_request_and_its_answer_pass_as_they_are(stage: Stage, alone: Client) -> None:
    await alone.send(
        b'{"jsonrpc":"2.0","id":"p","method":"com.example/draw","params":{"x":1.50,"name":"echo",'
        b'"_meta":{"a":1,"progressToken":7},"arguments":{"who" : "\\u00e4"}}}'
    )
    sent = await stage.alpha.wait_sent()
    assert sent.call.method == "com.example/draw"
    members = b"".join(bytes(each) for each in sent.call.params)
    assert members == b'"x":1.50,"name":"echo","arguments":{"who" : "\\u00e4"}'
    assert {key: bytes(value) for key, value in sent.call.meta.items()} == {"a": b"1"}
    stage.progress(sent, progress=1)
    assert (await alone.get())["params"] == {"progressToken": 7, "progress": 1}
    stage.answer(sent, b'{"drawn": [ 1.0 ], "x":{"y":1}}')
    assert await alone.line() == b'{"jsonrpc":"2.0","id":"p","result":{"drawn": [ 1.0 ], "x":{"y":1}}}'
    await alone.ask("com.example/draw")
    sent = await stage.alpha.wait_sent(2)
    assert params_of(sent) == ("com.example/draw", {})
    error = {"code": -32042, "message": "no", "data": {"b": [1, None]}}
    stage.refuse(sent, json.dumps(error).encode())
    assert (await alone.get())["error"] == error


async def test_a_profile_with_permissions_passes_no_unknown_request(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"default": {"permissions": [{"match": "alpha/echo", "then": "deny"}]}})
    client = await chosen(stage, nursery, "alpha")
    assert (await client.request("com.example/draw", {}))["error"]["code"] == -32601
    assert not stage.alpha.sent


@pytest.mark.parametrize("method", ["com.example/draw", "resources/com.example/draw"])
@pytest.mark.parametrize("servers", [(), ("alpha", "beta")])
async def test_where_there_are_several_servers_it_goes_to_none(
    stage: Stage, nursery: trio.Nursery, servers: tuple[str, ...], method: str
) -> None:
    client = await chosen(stage, nursery, *servers) if servers else await stage.client(nursery)
    assert (await client.request(method, {}))["error"]["code"] == -32601
    assert (await client.request(method, {"_meta": MODERN}))["error"]["code"] == -32601
    assert not stage.alpha.sent


SPELLINGS = (*(each.upper() for each in SERVED), *ASKED_OF_CLIENTS, "x" * 1_000_000)


@pytest.mark.parametrize("method", [*SPELLINGS, *rows_of(Path(__file__), "spellings")])
async def test_no_method_of_the_base_protocol_passes_in_any_spelling(
    stage: Stage, alone: Client, method: str
) -> None:
    assert not may_pass(method, SERVED)
    assert (await alone.request(method, {"name": "echo"}))["error"] == {
        "code": -32601,
        "message": "Method not found",
    }
    assert not stage.alpha.sent


async def test_a_profile_without_resources_keeps_their_family_from_passing(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"default": {"resources": False}})
    client = await chosen(stage, nursery, "alpha")
    assert (await client.request("resources/com.example/draw", {"uri": "a"}))["error"]["code"] == -32601
    await client.ask("com.example/draw", {"uri": "a"})
    assert params_of(await stage.alpha.wait_sent()) == ("com.example/draw", {"uri": "a"})


@pytest.mark.parametrize("params", [[], [1], "x", 7, {"_meta": 7}])
async def test_params_that_are_no_object_are_refused(stage: Stage, alone: Client, params: object) -> None:
    assert (await alone.request("com.example/draw", params))["error"]["code"] in {-32600, -32602}
    assert not stage.alpha.sent


@pytest.mark.parametrize("kind", list(Kind))
async def test_a_servers_refusal_of_a_list_is_its_own_where_it_is_alone(
    nursery: trio.Nursery, kind: Kind
) -> None:
    stage = Stage(listed=False)
    for server in ("alpha", "beta"):
        for each in Kind:
            refusal = REFUSED if each is kind and server == "alpha" else b""
            problem = "refused" if refusal and kind is Kind.PROMPT else ""
            stage.learn(
                DefinitionsListed(server=server, incarnation=1, kind=each, problem=problem, refusal=refusal)
            )
    alone = await chosen(stage, nursery, "alpha")
    assert (await alone.request(LISTS[kind].method))["error"] == json.loads(REFUSED)
    for servers in (("beta",), ("alpha", "beta")):
        other = await chosen(stage, nursery, *servers)
        assert (await other.request(LISTS[kind].method))["result"] == {LISTS[kind].member: []}


async def test_a_prompt_that_a_server_does_not_list_is_its_own_matter_where_it_is_alone(
    stage: Stage, nursery: trio.Nursery
) -> None:
    stage.offers("alpha", Kind.PROMPT, "greet", "off")
    stage.learn(Switched(off=frozenset({("alpha", "prompt:off")})))
    client = await chosen(stage, nursery, "alpha")
    await client.ask("prompts/get", {"name": "never"})
    assert params_of(await stage.alpha.wait_sent()) == ("prompts/get", {"name": "never"})
    client = await chosen(stage, nursery, "alpha")
    answer = await client.request("prompts/get", {"name": "off"})
    assert answer["error"]["data"]["code"] == "PromptDisabled"
    both = await chosen(stage, nursery, "alpha", "beta")
    stage.offers("beta", Kind.PROMPT)
    assert (await both.request("prompts/get", {"name": "never"}))["error"]["data"]["code"] == "UnknownPrompt"


async def test_an_unknown_notification_reaches_who_has_chosen_its_server_alone(
    stage: Stage, nursery: trio.Nursery
) -> None:
    others = [await chosen(stage, nursery, "beta"), await chosen(stage, nursery, "alpha", "beta")]
    others.append(await stage.client(nursery))
    alone = [await chosen(stage, nursery, "alpha") for _ in range(2)]
    everybody = [*others, *alone]
    for client in everybody:
        await client.request("ping")
    hear = stage.context.subscribers.hear
    hear("alpha", "notifications/com.example/drawn", Raw(b'{"x": 1.50}'), None)
    hear("gamma", "notifications/com.example/drawn", Raw(b"{}"), None)
    hear("alpha", "notifications/com.example/drawn", Raw(b'{"x":"\xff"}'), None)
    hear("alpha", "notifications/tasks", Raw(b'{"taskId":"theirs"}'), None)
    stage.outbox.flush()
    wanted = b'{"jsonrpc":"2.0","method":"notifications/com.example/drawn","params":{"x": 1.50}}'
    assert [await client.line() for client in alone] == [wanted, wanted]
    for client in everybody:
        assert "result" in await client.request("ping")


@pytest.mark.parametrize("servers", [("alpha",), ("alpha", "beta")])
async def test_what_comes_with_a_call_goes_to_the_calls_client_if_its_server_is_alone(
    stage: Stage, nursery: trio.Nursery, servers: tuple[str, ...]
) -> None:
    client = await chosen(stage, nursery, *servers)
    await client.ask("tools/call", {"name": "add" if len(servers) == 1 else "alpha__add", "arguments": {}})
    sent = await stage.alpha.wait_sent()
    sent.exchange.notified("notifications/com.example/drawn", Raw(b'{"x":1}'))
    stage.answer(sent)
    got: list[Any] = [await client.get()]
    if len(servers) == 1:
        assert got[0]["method"] == "notifications/com.example/drawn"
        got = [await client.get()]
    assert got[0]["result"] == {"content": []}


def test_notifications_that_mcpd_knows_or_that_might_be_its_own_do_not_pass_unread() -> None:
    of_mcp = ("message", "progress", "tasks", "cancelled")
    known = (
        *CHANGED,
        *(f"notifications/{each}" for each in of_mcp),
        "mcpd/unsent",
        "MCPD/hello",
        "",
        'a"b',
        "x" * 129,
    )
    assert not [each for each in known if is_unknown(each)]
    assert is_unknown("notifications/com.example/drawn")
