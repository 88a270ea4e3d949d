"""What is posted, listened to and deleted under `/mcp`, in both eras."""

import base64
import json
from typing import Any

import pytest
import trio
import trio.testing
from msgspec import Raw

from daemon import protocol
from daemon.clients.doors.http import mcp
from daemon.clients.doors.http.reading import Refusal
from daemon.protocol import CAPABILITIES_KEY, MODERN_VERSION, VERSION_KEY
from daemon.wire.envelope import INVALID_PARAMS, METHOD_NOT_FOUND
from tests.unit.cases import cases
from tests.unit.clients.doors.http.answering import ALICE, BOB, POST, at_the_door, begun, message, modern

pytestmark = pytest.mark.usefixtures("autojump_clock")


async def test_a_session_begins_with_initialize_and_is_told_what_was_asked_for() -> None:
    async with at_the_door() as (endpoint, visit):
        endpoint.place = ALICE
        headers = await begun(endpoint, visit.client)
        served = endpoint.served[0]
        assert served.visitor == ALICE.visitor
        method, params = served.notifications[0]
        assert (method, json.loads(params or b"")) == (protocol.HELLO, {"profile": "default"})
        response = await visit.client.ask("POST", "/mcp", headers, message("notifications/initialized"))
        assert (response.status, response.body) == (202, b"")
        assert served.notifications[1][0] == "notifications/initialized"


async def test_an_answer_comes_as_json_and_an_error_with_its_status() -> None:
    async with at_the_door() as (endpoint, visit):
        headers, body = modern("tools/call", "a", name="x")
        await visit.client.post(headers, body)
        served = endpoint.served[0]
        assert served.asked == [(b'"a"', "tools/call")]
        assert not served.visitor.keeps
        endpoint.answer(b'"a"', b'{"content":[]}')
        response = await visit.client.response()
        assert (response.status, response.headers["content-type"]) == (200, "application/json")
        assert response.body == b'{"jsonrpc":"2.0","id":"a","result":{"content":[]}}'
        await visit.client.post(headers, body)
        served.peer.refuse(b'"a"', -32601, "no such method")
        endpoint.outbox.flush()
        response = await visit.client.response()
        assert (response.status, response.json["error"]["code"]) == (404, -32601)
        assert len(endpoint.served) == 1, "one link serves the requests of a connection"


async def test_each_client_of_a_shared_connection_has_a_link_of_its_own() -> None:
    async with at_the_door() as (endpoint, visit):
        for place in (ALICE, BOB, ALICE):
            endpoint.place = place
            headers, body = modern("tools/list", 1)
            await visit.client.post(headers, body)
            endpoint.answer(b"1", session=place is BOB)
            await visit.client.response()
        assert [each.visitor.token for each in endpoint.served] == ["alice", "bob"]


async def test_links_of_a_connection_are_bounded() -> None:
    async with at_the_door() as (endpoint, visit):
        for number in range(mcp.MAX_LINKS + 1):
            headers, body = modern("tools/list", 1)
            await visit.client.post({**headers, "mcpd-session": f"k{number}"}, body)
            endpoint.answer(b"1", session=number)
            await visit.client.response()
        await trio.testing.wait_all_tasks_blocked()
        assert [bool(each.ends) for each in endpoint.served] == [True] + [False] * mcp.MAX_LINKS


async def test_progress_makes_the_answer_a_stream_of_what_belongs_to_the_request_alone() -> None:
    async with at_the_door() as (endpoint, visit):
        headers, body = modern("tools/call", 7, name="x")
        await visit.client.post(headers, body)
        peer = endpoint.served[0].peer
        peer.notify("notifications/tools/list_changed")
        peer.notify("notifications/progress", b'{"progress":1}', b"7")
        peer.answer(b"8", b"{}")
        endpoint.answer(b"7")
        response = await visit.client.response()
        assert response.headers["content-type"] == "text/event-stream"
        assert response.body == (
            b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}\n\n'
            b'data: {"jsonrpc":"2.0","id":7,"result":{}}\n\n'
        )


async def test_the_end_of_a_connection_ends_its_links() -> None:
    async with at_the_door() as (endpoint, visit):
        headers, body = modern("tools/call", 7, name="x")
        await visit.client.post(headers, body)
        await visit.client.stream.aclose()
        await visit.ended.wait()
        endpoint.mcp.forget(visit.connection.responses)
        await trio.testing.wait_all_tasks_blocked()
        assert endpoint.served[0].ends


@cases("headers", "body", "status", "code", raw={"body"})
async def test_what_cannot_be_served_is_refused(
    headers: dict[str, str], body: bytes, status: int, code: int | None
) -> None:
    async with at_the_door() as (endpoint, visit):
        response = await visit.client.ask("POST", "/mcp", {**POST, **headers}, body)
        assert response.status == status
        assert (response.json["error"]["code"] if code else None) == code
        assert not endpoint.served


async def test_a_modern_notification_is_acknowledged_and_dropped_and_other_methods_are_not_allowed() -> None:
    async with at_the_door() as (endpoint, visit):
        assert (await visit.client.ask("POST", "/mcp", *modern("notifications/initialized"))).status == 202
        assert not endpoint.served
        response = await visit.client.ask("PUT", "/mcp", POST)
        assert (response.status, response.headers["allow"]) == (405, "GET, POST, DELETE")
        for method in ("GET", "DELETE"):
            response = await visit.client.ask(method, "/mcp", {"mcp-protocol-version": "2026-07-28"})
            assert (response.status, response.headers["allow"]) == (405, "POST")
            assert (await visit.client.ask(method, "/mcp")).status == 400


async def test_a_request_that_is_cancelled_in_a_session_gets_an_end() -> None:
    async with at_the_door() as (endpoint, visit):
        headers = await begun(endpoint, visit.client)
        await visit.client.post(headers, message("tools/call", 5, name="x"))
        async with endpoint.visiting() as other:
            cancel = message(protocol.CANCEL, requestId=5)
            assert (await other.client.ask("POST", "/mcp", headers, cancel)).status == 202
        response = await visit.client.response()
        assert (response.json["id"], response.json["error"]["code"]) == (5, mcp.CANCELLED)
        assert endpoint.served[0].notifications[-1][0] == protocol.CANCEL


async def test_an_id_that_is_in_flight_is_refused_and_its_request_goes_on() -> None:
    async with at_the_door() as (endpoint, visit):
        headers = await begun(endpoint, visit.client)
        await visit.client.post(headers, message("tools/call", 5, name="x"))
        async with endpoint.visiting() as other:
            response = await other.client.ask("POST", "/mcp", headers, message("tools/call", 5, name="y"))
            assert (response.status, response.json["error"]["code"]) == (400, -32600)
        endpoint.answer(b"5")
        assert (await visit.client.response()).json["id"] == 5


async def test_a_session_is_its_clients_own() -> None:
    async with at_the_door() as (endpoint, visit):
        headers = await begun(endpoint, visit.client)
        endpoint.place = BOB
        for method in ("GET", "DELETE"):
            assert (await visit.client.ask(method, "/mcp", headers)).status == 404
        assert (await visit.client.ask("POST", "/mcp", headers, message("tools/list", 1))).status == 404
        endpoint.place = ALICE
        assert (await visit.client.ask("DELETE", "/mcp", headers)).status == 204
        assert (await visit.client.ask("DELETE", "/mcp", headers)).status == 404
        await trio.testing.wait_all_tasks_blocked()
        assert endpoint.served[0].ends


async def test_half_characters_are_mended_as_on_every_door() -> None:
    async with at_the_door() as (endpoint, visit):
        headers = await begun(endpoint, visit.client)
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud83d"}}'
        await visit.client.post(headers, body)
        assert endpoint.served[0].requests[-1][2] == b'{"name":"\\ufffd"}'


@cases("header", "path")
def test_a_workspace_may_be_percent_encoded(header: str, path: str) -> None:
    assert mcp.with_names(ALICE, {"mcpd-workspace": header}).hello == {**ALICE.hello, "workspace": path}


def test_a_key_is_checked_where_it_is_read() -> None:
    assert mcp.with_names(ALICE, {"mcpd-session": "work"}).hello == {**ALICE.hello, "session": "work"}
    assert mcp.with_names(ALICE, {}) is ALICE
    with pytest.raises(Refusal, match="printable"):
        mcp.with_names(ALICE, {"mcpd-session": "\t"})


META = {VERSION_KEY: MODERN_VERSION, CAPABILITIES_KEY: {}}


def judged(method: str = "tools/call", headers: dict[str, str] | None = None, **params: Any) -> int | None:
    """The code of what is wrong with a request; None if nothing is."""
    sent = {"mcp-protocol-version": MODERN_VERSION, "mcp-method": method, **(headers or {})}
    body = Raw(json.dumps({"_meta": META, **params}).encode())
    fault = mcp.fault_of({name: value for name, value in sent.items() if value}, method, body)
    return None if fault is None else fault[0]


def encoded(name: str) -> str:
    return f"=?base64?{base64.b64encode(name.encode()).decode()}?="


def test_a_request_that_agrees_with_itself_passes() -> None:
    assert judged(headers={"mcp-name": "echo"}, name="echo", arguments={}) is None
    assert judged(headers={"mcp-name": encoded("écho")}, name="écho") is None
    assert judged("tools/list") is None
    assert judged("resources/read", headers={"mcp-name": "file:///a"}, uri="file:///a") is None
    # A version that nobody speaks is the session's matter.
    meta = {VERSION_KEY: "2099-01-01", CAPABILITIES_KEY: {}}
    assert judged("tools/list", headers={"mcp-protocol-version": "2099-01-01"}, _meta=meta) is None


def test_a_request_about_a_task_may_lack_the_name_but_not_contradict_it() -> None:
    assert judged("tasks/get", taskId="x") is None
    assert judged("tasks/get", {"mcp-name": "y"}, taskId="x") == mcp.HEADER_MISMATCH


def test_a_method_of_earlier_revisions_is_not_found() -> None:
    for method in ("initialize", "ping", "logging/setLevel"):
        assert judged(method) == METHOD_NOT_FOUND


@cases("headers")
def test_headers_that_contradict_the_body_are_refused(headers: dict[str, str]) -> None:
    assert judged(headers=headers, name="echo") == mcp.HEADER_MISMATCH


def test_what_says_nothing_of_its_version_or_capabilities_is_refused() -> None:
    assert judged("tools/list", _meta={VERSION_KEY: MODERN_VERSION}) == INVALID_PARAMS
    assert judged("tools/list", _meta={CAPABILITIES_KEY: {}}) == INVALID_PARAMS
    assert judged("tools/list", _meta=3) == INVALID_PARAMS
    assert judged(name=3) == INVALID_PARAMS
    fault = mcp.fault_of({}, "tools/list", None)
    assert fault is not None
    assert fault[0] == INVALID_PARAMS


TOOL = json.dumps(
    {
        "name": "t",
        "inputSchema": {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "n": {}}},
    }
).encode()


@cases("headers", "arguments", "is_right")
def test_an_argument_that_a_header_repeats_must_be_the_same(
    headers: dict[str, str], arguments: dict[str, Any], *, is_right: bool
) -> None:
    params = Raw(json.dumps({"name": "t", "arguments": arguments}).encode())
    fault = mcp.marked_fault_of(headers, {"t": TOOL}.__getitem__, params)
    assert (fault is None) is is_right
    assert mcp.marked_fault_of(headers, lambda _name: b'{"name":"t"}', params) is None


def test_a_call_that_names_no_tool_is_the_sessions_matter() -> None:
    assert judged("tools/call", arguments={}) is None

    def nothing(name: str) -> bytes:
        raise AssertionError(name)

    assert mcp.marked_fault_of({}, nothing, Raw(b'{"arguments":{}}')) is None
