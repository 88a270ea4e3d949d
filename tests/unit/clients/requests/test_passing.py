"""What passes unread between a client and the one server that it has chosen, and what does not."""

import json
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
from tests.fakes_upstream import MODERN, Client, Stage
from tests.unit.clients.requests.test_prompts import params_of

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


@pytest.mark.parametrize(
    "method",
    [
        *(each.upper() for each in SERVED),
        *ASKED_OF_CLIENTS,
        "Tasks/Update",
        "notifications/cancelled",
        "Notifications/x",
        "mcpd/hello",
        "MCPD/unsent",
        "notifications",
        "",
        " tools/call",
        "tools/call\\u0000",
        'x","method":"tools/call","x":"',
        "x\r\nMcp-Method: y",
        "m\u00e9thode",
        "x" * 129,
        "x" * 1_000_000,
    ],
)
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


@pytest.mark.parametrize(
    "method",
    [
        *CHANGED,
        "notifications/message",
        "notifications/progress",
        "notifications/tasks",
        "notifications/cancelled",
    ],
)
def test_notifications_that_mcpd_knows_do_not_pass_unread(method: str) -> None:
    assert not is_unknown(method)


@pytest.mark.parametrize("method", ["mcpd/unsent", "MCPD/hello", "", 'a"b', "x" * 129])
def test_what_might_be_taken_for_mcpds_own_does_not_pass(method: str) -> None:
    assert not is_unknown(method)
    assert is_unknown("notifications/com.example/drawn")
