"""Headers and body of a request of MCP 2026-07-28 must say the same."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from msgspec import Raw

from daemon.clients.doors.http.mcp import HEADER_MISMATCH, fault_of, marked_fault_of
from daemon.protocol import CAPABILITIES_KEY, MODERN_VERSION, VERSION_KEY
from daemon.wire.envelope import INVALID_PARAMS, METHOD_NOT_FOUND
from tests.unit.cases import cases

META = {VERSION_KEY: MODERN_VERSION, CAPABILITIES_KEY: {}}


def judged(method: str = "tools/call", headers: dict[str, str] | None = None, **params: Any) -> int | None:
    """The code of what is wrong with a request; None if nothing is."""
    sent = {"mcp-protocol-version": MODERN_VERSION, "mcp-method": method, **(headers or {})}
    body = Raw(json.dumps({"_meta": META, **params}).encode())
    fault = fault_of({name: value for name, value in sent.items() if value}, method, body)
    return None if fault is None else fault[0]


def encoded(name: str) -> str:
    return f"=?base64?{base64.b64encode(name.encode()).decode()}?="


def test_a_request_that_agrees_with_itself_passes() -> None:
    assert judged(headers={"mcp-name": "echo"}, name="echo", arguments={}) is None
    assert judged(headers={"mcp-name": encoded("écho")}, name="écho") is None
    assert judged("tools/list") is None
    assert judged("resources/read", headers={"mcp-name": "file:///a"}, uri="file:///a") is None


@cases("headers")
def test_headers_that_contradict_the_body_are_refused(headers: dict[str, str]) -> None:
    assert judged(headers=headers, name="echo") == HEADER_MISMATCH


def test_what_says_nothing_of_its_version_or_capabilities_is_refused() -> None:
    assert judged("tools/list", _meta={VERSION_KEY: MODERN_VERSION}) == INVALID_PARAMS
    assert judged("tools/list", _meta={CAPABILITIES_KEY: {}}) == INVALID_PARAMS
    assert judged("tools/list", _meta=3) == INVALID_PARAMS
    assert judged(name=3) == INVALID_PARAMS
    fault = fault_of({}, "tools/list", None)
    assert fault is not None
    assert fault[0] == INVALID_PARAMS


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel"])
def test_a_method_of_earlier_revisions_is_not_found(method: str) -> None:
    assert judged(method) == METHOD_NOT_FOUND


def test_a_version_that_nobody_speaks_is_the_sessions_matter() -> None:
    meta = {VERSION_KEY: "2099-01-01", CAPABILITIES_KEY: {}}
    assert judged("tools/list", headers={"mcp-protocol-version": "2099-01-01"}, _meta=meta) is None


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
    fault = marked_fault_of(headers, {"t": TOOL}.__getitem__, params)
    assert (fault is None) is is_right
    assert marked_fault_of(headers, lambda _name: b'{"name":"t"}', params) is None


def test_a_call_that_names_no_tool_is_the_sessions_matter() -> None:
    assert judged("tools/call", arguments={}) is None

    def nothing(name: str) -> bytes:
        raise AssertionError(name)

    assert marked_fault_of({}, nothing, Raw(b'{"arguments":{}}')) is None
