"""The headers of each era, and those that a tool's schema asks for."""

import json
from typing import Any

import pytest
from mcp.shared import inbound
from msgspec import Raw

from daemon.model import Era
from daemon.upstreams.transports.failures import SESSION_HEADER, McpHeaders
from tests.unit.cases import cases
from tests.unit.catalog.test_definitions import MARKED


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


def modern(*tools: object) -> McpHeaders:
    headers = McpHeaders()
    headers.adopt(Era.MODERN, "2026-07-28")
    headers.learn(json.dumps({"tools": tools}).encode())
    return headers


def test_before_and_during_the_handshake_there_are_none() -> None:
    headers = McpHeaders()
    assert headers.of("server/discover") == {}
    headers.adopt(Era.HANDSHAKE, "2025-11-25")
    assert headers.of("initialize") == {}


def test_the_handshake_era_names_version_and_session() -> None:
    headers = McpHeaders()
    headers.adopt(Era.HANDSHAKE, "2025-11-25")
    assert headers.of("tools/call", raw({"name": "t"})) == {"mcp-protocol-version": "2025-11-25"}
    headers.session = "s1"
    assert headers.of() == {"mcp-protocol-version": "2025-11-25", SESSION_HEADER: "s1"}


@cases("method", "params", "name")
def test_the_modern_era_repeats_method_and_name(method: str, params: object, name: dict[str, str]) -> None:
    version = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    assert modern().of(method, raw(params)) == version | name


def test_marked_arguments_become_headers_once_they_are_listed() -> None:
    params = raw({"name": "t", "arguments": {"deep": {"x": 5}, "place": "hier\n"}})
    assert "mcp-param-Depth" not in modern().of("tools/call", params)
    headers = modern("odd", {"name": 1}, {"name": "t", "inputSchema": MARKED}).of("tools/call", params)
    assert (headers["mcp-param-Depth"], headers["mcp-param-Place"]) == ("5", "=?base64?aGllcgo=?=")


@pytest.mark.parametrize("listing", [b'"x-mcp-header"', b'{"x-mcp-header":1}', b'{"tools":{"x-mcp-header":1}}'])
def test_a_listing_that_is_none_teaches_nothing(listing: bytes) -> None:
    headers = modern()
    headers.learn(listing)
    assert len(headers.of("tools/call", raw({"name": "t", "arguments": {"x": 1}}))) == 3


@cases("arguments")
def test_values_are_those_that_the_sdk_would_send(arguments: dict[str, Any]) -> None:
    headers = modern({"name": "t", "inputSchema": MARKED})
    ours = headers.of("tools/call", raw({"name": "t", "arguments": arguments}))
    theirs = inbound.mcp_param_headers(inbound.x_mcp_header_map(MARKED), arguments)
    assert {name: ours[name] for name in ours if name.startswith("mcp-param-")} == {
        name.replace("Mcp-Param-", "mcp-param-"): value for name, value in theirs.items()
    }
