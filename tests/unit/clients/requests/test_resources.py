"""What clients ask about resources: lists of all servers, and what is read from the server that has it."""

import json
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.catalog.kinds import LISTS
from daemon.clients.attachment import (
    LONGEST,
    MAX_LINKS,
    MAX_OWNERS,
    MAX_SEARCHED,
    linked_in,
    links_of,
    note_links,
)
from daemon.clients.requests.forwarding import MAX_URI
from daemon.facts import Switched
from daemon.model import Kind
from tests.fakes_upstream import MODERN, Client, FakeUpstream, Sent, Stage, error_of, tool
from tests.unit.cases import cases
from tests.unit.clients.inputs import META

LOGO = {"uri": "file:///logo.png", "name": "logo", "mimeType": "image/png", "size": 5.0}
BOOK = {"uriTemplate": "book://{isbn}/page/{n}", "name": "page", "x": [1]}


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.offers("alpha", Kind.RESOURCE, LOGO, "file:///both")
    stage.offers("beta", Kind.RESOURCE, "file:///both", "file:///of beta")
    stage.offers("alpha", Kind.TEMPLATE, BOOK)
    stage.offers("beta", Kind.TEMPLATE)
    return stage


def uri_in(sent: Sent) -> str:
    """What a server is asked to read."""
    assert sent.call.method == "resources/read"
    uri: str = sent.members["uri"]
    return uri


async def read(client: Client, uri: str, request_id: str = "read", /, **meta: Any) -> None:
    await client.ask("resources/read", {"uri": uri, **({"_meta": meta} if meta else {})}, request_id=request_id)


async def refusal(client: Client, uri: str, **meta: Any) -> dict[str, Any]:
    await read(client, uri, **meta)
    error: dict[str, Any] = (await client.get())["error"]
    return error


async def test_resources_and_templates_are_listed_as_their_servers_wrote_them(client: Client) -> None:
    resources = (await client.request("resources/list"))["result"]["resources"]
    assert resources[0] == LOGO
    assert [each["uri"] for each in resources] == [
        "file:///logo.png",
        "file:///both",
        "mcpd://beta/file%3A%2F%2F%2Fboth",
        "file:///of beta",
    ]
    assert (await client.request("resources/templates/list"))["result"] == {"resourceTemplates": [BOOK]}
    modern = (await client.request("resources/templates/list", {"_meta": MODERN}))["result"]
    assert modern == {
        "resultType": "complete",
        "resourceTemplates": [BOOK],
        "ttlMs": 0,
        "cacheScope": "private",
    }


@cases("asked", "server", "own")
async def test_a_resource_is_read_from_its_server_under_the_servers_uri_and_all_else_as_it_was(
    client: Client, stage: Stage, asked: str, server: str, own: str
) -> None:
    await client.send(
        b'{"jsonrpc":"2.0","id":"read","method":"resources/read","params":{"a":1.50,"uri":%b,"b":{ },'
        b'"_meta":{"c":1}}}' % json.dumps(asked).replace("/", r"\/").encode()
    )
    sent = await stage.upstreams[server].wait_sent()
    assert uri_in(sent) == own
    assert b"".join(map(bytes, sent.call.params)).startswith(b'"a":1.50,"b":{ },"uri":')
    assert set(sent.call.meta) == {"c"}
    stage.answer(sent, b'{"contents": [ {"uri":"x","text":"\\u00e4"} ]}')
    line = await client.line()
    assert line == b'{"jsonrpc":"2.0","id":"read","result":{"contents": [ {"uri":"x","text":"\\u00e4"} ]}}'


async def test_what_a_modern_client_reads_from_an_older_server_says_that_it_is_not_to_be_cached(
    client: Client, stage: Stage
) -> None:
    results = (
        (b'{"contents":[]}', b'{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[]}'),
        (b'{"resultType":"complete","ttlMs":9}', b'{"resultType":"complete","ttlMs":9}'),
    )
    for number, (said, told) in enumerate(results, 1):
        await read(client, "file:///logo.png", **MODERN)
        stage.answer(await stage.alpha.wait_sent(number), said)
        assert await client.line() == b'{"jsonrpc":"2.0","id":"read","result":%b}' % told


@pytest.mark.parametrize(
    "uri", ["file:///none", "", "no uri", "file:///x\u202e", "x" * MAX_URI, "mcpd://gamma/a%3Ab"]
)
async def test_an_unknown_resource_is_refused_as_the_clients_revision_has_it(client: Client, uri: str) -> None:
    for meta, code in (({}, -32002), (MODERN, -32602)):
        error = await refusal(client, uri, **meta)
        assert error["code"] == code
        assert error["data"] == {"code": "UnknownResource", "uri": uri}
        assert "resources/list" in error["message"]
        assert "mcpd://SERVER/" in error["message"]
        assert "\u202e" not in error["message"]
        assert len(error["message"]) < 500


@pytest.mark.parametrize(
    "params", [None, {}, {"uri": 7}, {"uri": None}, {"uri": ["a"]}, {"uri": "x" * (MAX_URI + 1)}]
)
async def test_a_request_that_names_no_resource_is_refused(client: Client, params: object) -> None:
    error = (await client.request("resources/read", params))["error"]
    assert error["code"] == -32602
    assert "uri" in error["message"]
    assert len(error["message"]) < 500


@pytest.mark.parametrize("asked", ["file:///logo.png", "mcpd://alpha/file%3A%2F%2F%2Flogo.png"])
async def test_a_resource_that_is_switched_off_says_so(stage: Stage, nursery: trio.Nursery, asked: str) -> None:
    stage.learn(Switched(off=frozenset({("alpha", "resource:file:///logo.png")})))
    client = await stage.client(nursery)
    listed = (await client.request("resources/list"))["result"]["resources"]
    assert LOGO not in listed
    error = await refusal(client, asked)
    assert (error["code"], error["data"]["code"]) == (-32002, "ResourceDisabled")
    assert "alpha" in error["message"]


@cases("what", "method", "params", "last")
async def test_a_list_that_may_have_it_is_waited_for(
    nursery: trio.Nursery, what: str, method: str, params: dict[str, Any], last: str
) -> None:
    stage = Stage()
    for server in ("alpha", "beta"):
        for kind in LISTS:
            if (server, kind) != ("beta", last):
                stage.offers(server, kind)
    client = await stage.client(nursery)
    await client.ask(method, params)
    assert (await client.request("ping"))["result"] == {}
    stage.offers("beta", Kind(last), {LISTS[Kind(last)].key: "note:1", "name": "note:1"})
    assert (await stage.upstreams["beta"].wait_sent()).call.method == method


# --- what a result has linked to ---------------------------------------------------------------------------

LINK = '{"type":"resource_link","uri":"%s","name":"l"}'
EMBEDDED = '{"type":"resource","resource":{"uri":"%s","text":"t"}}'


async def call_linking(stage: Stage, client: Client, upstream: FakeUpstream, block: str, **params: Any) -> None:
    """Have a server answer a call with something that names a resource."""
    upstream.has_resources = True
    before = len(upstream.sent)
    await client.call(upstream.name, "echo", {}, request_id="call", **params)
    sent = await upstream.wait_sent(before + 1)
    stage.answer(sent, b'{"content":[{"type":"text","text":"t"},%b]}' % block.encode())
    await client.get()


@pytest.mark.parametrize("block", [LINK, EMBEDDED])
async def test_what_a_result_links_to_is_read_from_its_server(client: Client, stage: Stage, block: str) -> None:
    beta = stage.upstreams["beta"]
    assert "error" in await client.request("resources/read", {"uri": "made:up"})
    await call_linking(stage, client, beta, block % "made:up")
    await read(client, "made:up")
    assert uri_in(await beta.wait_sent(2)) == "made:up"


async def test_an_app_whose_page_was_read_calls_the_tools_of_its_own_server(nursery: trio.Nursery) -> None:
    stage = Stage()
    shows = tool("show", _meta={"ui": {"resourceUri": "ui://app/page.html"}})
    for server in ("alpha", "beta"):
        stage.lists(server, shows, "refresh")
        stage.offers(server, Kind.RESOURCE, f"ui://{server}/page.html")
        stage.offers(server, Kind.TEMPLATE)
    client = await stage.client(nursery)
    refresh = {"name": "refresh", "arguments": {}, "_meta": META}
    assert error_of(await client.request("tools/call", refresh))["code"] == "UnknownTool"
    await read(client, "ui://beta/page.html", **META)
    beta = stage.upstreams["beta"]
    stage.answer(await beta.wait_sent(), b'{"contents":[]}')
    await client.get()
    await client.ask("tools/call", refresh)
    assert (await beta.wait_sent(2)).tool == "refresh"


async def test_what_two_list_is_read_from_the_one_that_linked_it_last(client: Client, stage: Stage) -> None:
    for upstream in (stage.upstreams["beta"], stage.alpha):
        await call_linking(stage, client, upstream, LINK % "file:///both")
        await read(client, "file:///both", upstream.name)
        assert uri_in(await upstream.wait_sent(2)) == "file:///both"


async def test_links_are_the_sessions_own(stage: Stage, nursery: trio.Nursery) -> None:
    one, other = await stage.client(nursery), await stage.client(nursery)
    await call_linking(stage, one, stage.alpha, LINK % "made:up")
    assert (await refusal(other, "made:up"))["data"]["code"] == "UnknownResource"
    key = {"mcpd/session": "shared"}
    await call_linking(stage, one, stage.alpha, LINK % "made:too", _meta=key)
    assert (await refusal(other, "made:too"))["data"]["code"] == "UnknownResource"
    await read(other, "made:too", **key)
    assert uri_in(await stage.alpha.wait_sent(3)) == "made:too"


async def test_what_a_resource_or_a_prompt_names_is_a_link_too(stage: Stage, nursery: trio.Nursery) -> None:
    stage.offers("alpha", Kind.PROMPT, "p")
    stage.offers("beta", Kind.PROMPT)
    stage.alpha.has_resources = True
    client = await stage.client(nursery)
    await read(client, "file:///logo.png")
    stage.answer(await stage.alpha.wait_sent(), b'{"contents":[{"uri":"in:it","text":""}]}')
    await client.get()
    await client.ask("prompts/get", {"name": "p"})
    message = b'{"messages":[{"role":"user","content":%b}]}' % (EMBEDDED % "in:prompt").encode()
    stage.answer(await stage.alpha.wait_sent(2), message)
    await client.get()
    for number, uri in enumerate(("in:it", "in:prompt"), 3):
        await read(client, uri, uri)
        assert uri_in(await stage.alpha.wait_sent(number)) == uri


async def test_a_profile_without_resources_neither_declares_nor_serves_them(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"default": {"resources": False, "prompts": False}})
    client = await stage.client(nursery)
    declared = (await client.request("initialize", {}))["result"]["capabilities"]
    assert set(declared) == {"tools", "logging"}
    methods = ("resources/list", "resources/templates/list", "resources/read", "completion/complete")
    for method in methods:
        assert (await client.request(method, {"uri": "a:b"}))["error"]["code"] == -32601


TEXT = {"type": "text", "text": 'as in {"type":"resource_link","uri":"quoted:"}'}


def found(result: Any) -> tuple[str, ...]:
    return linked_in(json.dumps(result).encode())


def link(uri: object) -> dict[str, object]:
    return {"type": "resource_link", "uri": uri, "name": "x"}


@cases("result", "uris")
def test_links_are_what_the_specification_calls_so(result: Any, uris: list[str]) -> None:
    assert found(result) == tuple(uris)


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)
    )
)
def test_no_result_breaks_the_search(value: Any) -> None:
    for member in ("content", "contents", "messages"):
        assert isinstance(found({member: value, "x": "resource_link", "contents_": 1}), tuple)


def test_no_bytes_break_the_search() -> None:
    for raw in (b'{"content":[{"type":"resource', b'"resource', b'\xff"resource', b"[" * 9 + b'"resource'):
        assert linked_in(raw) == linked_in(memoryview(raw)) == linked_in(Raw(raw)) == ()


def test_a_long_result_is_not_looked_through() -> None:
    text = {"type": "text", "text": ""}
    result = {"content": [link("a:"), text]}
    room = MAX_SEARCHED - len(json.dumps(result))
    for more, uris in ((0, ("a:",)), (1, ())):
        text["text"] = "x" * (room + more)
        assert found(result) == uris
    assert found({"content": [link("x" * LONGEST), link("b:")]}) == ("b:",)


def test_the_newest_links_are_remembered() -> None:
    links = dict[str, str]()
    note_links(links, "alpha", [f"{number}:" for number in range(MAX_LINKS)])
    note_links(links, "beta", ["0:"])
    note_links(links, "gamma", ["new:"])
    assert len(links) == MAX_LINKS
    assert "1:" not in links
    assert (links["0:"], links["2:"], links["new:"]) == ("beta", "alpha", "gamma")
    assert len(found({"content": [link(f"{number}:") for number in range(2 * MAX_LINKS)]})) == MAX_LINKS


def test_visitors_without_sessions_share_nothing_with_others() -> None:
    principals = dict[tuple[str, str], dict[str, str]]()
    first = links_of(principals, "token ci: ", "default")
    note_links(first, "alpha", ["a:"])
    assert links_of(principals, "token ci: ", "default") is first
    assert not links_of(principals, "token ci: ", "other")
    assert not links_of(principals, "", "default")
    for number in range(MAX_OWNERS):
        links_of(principals, "token ci: ", "default")
        links_of(principals, f"{number}", "default")
    assert links_of(principals, "token ci: ", "default") is first
    assert not links_of(principals, "0", "default")
