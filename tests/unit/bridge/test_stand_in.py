"""What a client is told before there is a daemon is what the daemon would say, but for the tools."""

import json
from typing import Any

import pytest
from mcp_types import CallToolResult, ListToolsResult

from daemon import errors, protocol
from daemon.bridge import requests, stand_in
from daemon.bridge.stand_in import FULL, INSTRUCTIONS, LOST, STATUS, TORN, absent, refuse
from daemon.catalog.kinds import LISTS
from daemon.clients.requests.initialize import capabilities, discover_result, initialize_result
from daemon.clients.requests.tools import list_result
from daemon.surfaces.surface import ALWAYS_LOAD
from tests.unit.cases import cases

TROUBLE = "cannot reach the daemon at /run/x.sock"
MODERN = {"_meta": {protocol.VERSION_KEY: protocol.MODERN_VERSION, protocol.CAPABILITIES_KEY: {}}}

INTRODUCTION = {"capabilities": capabilities(), "instructions": INSTRUCTIONS}

Json = dict[str, Any]


def line(method: bytes, params: object = None, request_id: bytes = b"7") -> bytes:
    body = {} if params is None else {"params": params}
    request = {"jsonrpc": "2.0", "id": json.loads(request_id), "method": json.loads(method), **body}
    return json.dumps(request).encode() + b"\n"


def answer(method: bytes, params: object = None, request_id: bytes = b"7") -> Json:
    """What a request is answered with."""
    item = requests.Item(request_id, method, line(method, params, request_id), 0.0)
    said = stand_in.answer(item, TROUBLE)
    assert said is not None
    assert said.count(b"\n") == 1
    found: Json = json.loads(said)
    assert found.pop("jsonrpc") == "2.0"
    return found


@pytest.mark.parametrize("wanted", [*protocol.HANDSHAKE_VERSIONS, protocol.MODERN_VERSION, "1999", None, ["x"]])
def test_the_handshake_is_the_daemons(wanted: object) -> None:
    said = answer(requests.INITIALIZE, {"protocolVersion": wanted})
    assert said == {"id": 7, "result": json.loads(initialize_result(wanted, INTRODUCTION))}


def test_discovery_is_the_daemons() -> None:
    assert answer(requests.DISCOVER, MODERN)["result"] == json.loads(discover_result(INTRODUCTION))


@pytest.mark.parametrize("method", [requests.DISCOVER, requests.TOOLS_LIST])
@pytest.mark.parametrize("version", ["2099-01-01", 5, ["x"]])
def test_a_version_that_the_daemon_does_not_speak_is_refused(method: bytes, version: object) -> None:
    code, message, data = protocol.unsupported(version)
    said = answer(method, {"_meta": {protocol.VERSION_KEY: version}})
    assert said["error"] == {"code": code, "message": message, "data": data}


@pytest.mark.parametrize("modern", [True, False])
def test_the_list_has_one_tool_that_says_what_is_wrong(*, modern: bool) -> None:
    result = answer(requests.TOOLS_LIST, MODERN if modern else None)["result"]
    (tool,) = ListToolsResult.model_validate(result).tools
    assert tool.name == STATUS
    assert TROUBLE in (tool.description or "")
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint
    assert result["tools"][0]["_meta"] == ALWAYS_LOAD
    empty = json.loads(list_result([], range(0), modern=modern))
    assert {**result, "tools": []} == empty


@pytest.mark.parametrize("modern", [True, False])
def test_the_other_lists_are_empty(*, modern: bool) -> None:
    members = {
        requests.PROMPTS_LIST: "prompts",
        requests.RESOURCES_LIST: "resources",
        requests.TEMPLATES_LIST: "resourceTemplates",
    }
    for method, member in members.items():
        said = answer(method, MODERN if modern else None)["result"]
        assert said == json.loads(list_result([], range(0), modern=modern, member=member))


@pytest.mark.parametrize("wanted", [True, False, None])
def test_a_subscription_is_acknowledged_as_the_daemon_would(wanted: bool | None) -> None:
    wishes = {each.wish: wanted for each in LISTS.values()}
    said = answer(requests.LISTEN, {**MODERN, "notifications": {**wishes, "other": True}}, b'"s"')
    honoured = {each: True for each in wishes if wanted}
    assert said == {
        "method": "notifications/subscriptions/acknowledged",
        "params": json.loads(protocol.of_subscription(b'"s"', notifications=honoured)),
    }
    assert answer(requests.LISTEN, MODERN)["params"]["notifications"] == {}


def test_a_ping_is_answered() -> None:
    assert answer(requests.PING, request_id=b'"p"') == {"id": "p", "result": {}}


@cases("written", raw={"written"})
def test_what_cannot_be_read_has_no_answer_of_its_own(written: bytes) -> None:
    assert stand_in.answer(requests.Item(b"7", requests.TOOLS_LIST, written, 0.0), TROUBLE) is None
    assert not stand_in.asks_for_status(written.replace(b"list", STATUS.encode()))


def test_neither_has_what_is_not_known_nor_a_notification() -> None:
    for method in (requests.CALL, b'"prompts/get"'):
        assert stand_in.answer(requests.Item(b"7", method, line(method), 0.0), TROUBLE) is None
    assert stand_in.answer(requests.Item(b"", requests.PING, line(requests.PING), 0.0), TROUBLE) is None


def test_only_a_call_of_the_tool_asks_for_it() -> None:
    assert stand_in.asks_for_status(line(requests.CALL, {"name": STATUS}))
    assert not stand_in.asks_for_status(line(requests.CALL, {"name": "echo", "arguments": {"text": STATUS}}))


@pytest.mark.parametrize(
    ("refusal", "text"), [("", "reconnect"), ("no such profile: x", "refuses this client: no such profile: x")]
)
@pytest.mark.parametrize("modern", [True, False])
def test_our_own_tool_reports_a_daemon_that_is_there(refusal: str, text: str, *, modern: bool) -> None:
    result = json.loads(stand_in.arrived(b"7", refusal, modern=modern))["result"]
    assert result["isError"] is bool(refusal)
    assert ("resultType" in result) == modern
    assert text in result["content"][0]["text"]


def test_an_error_always_has_a_reason() -> None:
    assert stand_in.reason(b'{"id":0,"error":{"code":-32602,"message":"no such profile"}}') == "no such profile"
    for odd in (b"{", b"[]", b'{"id":0,"error":null}', b'{"id":0,"error":{"message":""}}'):
        assert "log" in stand_in.reason(odd)


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("refusal", [LOST, TORN, FULL, absent('/run/"\\\n\udcff: ENOENT', 30.0)])
def test_a_refusal_has_a_code_of_the_daemon(refusal: tuple[str, str], *, modern: bool) -> None:
    said = refuse(b'"\\u00e4"', requests.CALL, refusal, modern=modern)
    assert said.startswith(b'{"jsonrpc":"2.0","id":"\\u00e4",')
    assert said.count(b"\n") == 1
    result = json.loads(said)["result"]
    assert CallToolResult.model_validate(json.loads(json.dumps(result).replace("\\udcff", "?"))).is_error
    assert ("resultType" in result) == modern
    code, text = refusal
    assert result["structuredContent"]["error"] == {"code": code, "message": text}
    assert result["content"][0]["text"] == f"{code}: {text}"
    assert getattr(errors, code).code == code
    assert ("safe to" in text) == (code == "UpstreamUnavailable")
    assert ("unknown" in text) == (code == "UpstreamLost")
    error = json.loads(refuse(b"5", requests.TOOLS_LIST, refusal, modern=modern))["error"]
    assert (error["code"], error["data"]) == (stand_in.INTERNAL_ERROR, {"code": code})
    assert text in error["message"]
