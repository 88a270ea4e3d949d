"""Completion: asked of the server that has what is referred to, in that server's own words."""

import json

import pytest

from daemon.model import Kind
from tests.fakes_upstream import MODERN, Client, Stage
from tests.unit.cases import cases

TEMPLATE = "note://{id}"
"""How beta's template of that name is listed."""


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    for server in ("alpha", "beta"):
        stage.offers(server, Kind.PROMPT, "ask")
        stage.offers(server, Kind.RESOURCE, "note://1")
        stage.offers(server, Kind.TEMPLATE, TEMPLATE)
    return stage


@cases("ref", "server", "own", raw={"ref"})
async def test_a_completion_is_asked_of_its_server_and_only_the_name_is_replaced(
    client: Client, stage: Stage, ref: bytes, server: str, own: dict[str, str]
) -> None:
    rest = b'"argument":{"name":"who","value":"\\u00e4"},"context":{"arguments":{"x" : "y"}}'
    params = b'{"ref":{"title":"T\\u0041",%b},%b}' % (ref, rest)
    await client.send(b'{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":%b}' % params)
    sent = await stage.upstreams[server].wait_sent()
    said = b"".join(map(bytes, sent.call.params))
    assert sent.call.method == "completion/complete"
    assert said.startswith(rest + b',"ref":{"title":"T\\u0041",')
    assert json.loads(b"{%b}" % said)["ref"] == {"title": "TA", **own}
    stage.answer(sent, b'{"completion":{"values":["a"] ,"hasMore":false}}')
    assert await client.line() == (
        b'{"jsonrpc":"2.0","id":1,"result":{"completion":{"values":["a"] ,"hasMore":false}}}'
    )


@pytest.mark.parametrize("modern", [True, False])
async def test_a_server_that_completes_nothing_has_none(client: Client, stage: Stage, *, modern: bool) -> None:
    params = {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "x", "value": ""}}
    await client.ask("completion/complete", {**params, "_meta": MODERN} if modern else params)
    stage.refuse(await stage.alpha.wait_sent(), b'{"code":-32601,"message":"Method not found"}')
    kind = {"resultType": "complete"} if modern else {}
    assert (await client.get())["result"] == {**kind, "completion": {"values": []}}


@cases("ref", "code")
async def test_what_refers_to_nothing_is_refused(client: Client, ref: object, code: int) -> None:
    params = {} if ref is None else {"ref": ref}
    assert (await client.request("completion/complete", params))["error"]["code"] == code
