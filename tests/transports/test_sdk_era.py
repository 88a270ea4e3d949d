"""Envelope and headers, per era."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from daemon.errors import InvalidArguments
from daemon.model import Era
from daemon.protocol import CAPABILITIES_KEY, CLIENT_INFO_KEY, VERSION_KEY
from daemon.transports.sdk_era import Dialect, call_params
from tests.fakes_upstream import tool_call

MARKED = {"properties": {"deep": {"properties": {"x": {"type": "integer", "x-mcp-header": "Depth"}}}}}


def test_before_and_during_the_handshake_nothing_is_added() -> None:
    dialect = Dialect()
    assert dialect.stamp({"a": 1}) == {"a": 1}
    assert dialect.headers("server/discover", {}) == {}
    dialect.adopt(Era.HANDSHAKE, "2025-11-25")
    assert dialect.headers("initialize", {}) == {}


def test_the_handshake_era_names_its_version_in_a_header() -> None:
    dialect = Dialect()
    dialect.adopt(Era.HANDSHAKE, "2025-11-25")
    assert dialect.stamp({"a": 1}) == {"a": 1}
    assert dialect.headers("tools/call", {"name": "t"}) == {"mcp-protocol-version": "2025-11-25"}


def test_the_modern_era_repeats_itself() -> None:
    dialect = Dialect()
    dialect.adopt(Era.MODERN, "2026-07-28")
    params = dialect.stamp({"name": "tö", "_meta": {"mine": 1}})
    assert set(params["_meta"]) == {"mine", VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY}
    assert dialect.headers("tools/call", params) == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "=?base64?dMO2?=",
    }


def test_marked_arguments_become_headers_once_they_are_known() -> None:
    dialect = Dialect()
    dialect.adopt(Era.MODERN, "2026-07-28")
    params: dict[str, Any] = {"name": "t", "arguments": {"deep": {"x": 5}}}
    assert "mcp-param-depth" not in {name.lower() for name in dialect.headers("tools/call", params)}
    listing: dict[str, Any] = {"tools": [{"name": "t", "inputSchema": MARKED}, "odd", {"name": 1}]}
    dialect.learn(listing, msgspec.json.encode(listing))
    headers = {name.lower(): value for name, value in dialect.headers("tools/call", params).items()}
    assert headers["mcp-param-depth"] == "5"


def test_an_invalid_mark_is_ignored() -> None:
    dialect = Dialect()
    dialect.adopt(Era.MODERN, "2026-07-28")
    schema = {"properties": {"x": {"type": "object", "x-mcp-header": "No"}}}
    listing: dict[str, Any] = {"tools": [{"name": "t", "inputSchema": schema}]}
    dialect.learn(listing, msgspec.json.encode(listing))
    assert len(dialect.headers("tools/call", {"name": "t", "arguments": {"x": "y"}})) == 3


def test_the_params_of_a_call() -> None:
    call = tool_call("t", b'{"a":1.50}', meta={"k": Raw(b"[1]")}, wants_progress=True)
    assert call_params(call, 7) == {
        "name": "t",
        "arguments": {"a": 1.5},
        "_meta": {"k": [1], "progressToken": 7},
    }
    assert call_params(tool_call("t"), 7) == {"name": "t", "arguments": {}}


@pytest.mark.parametrize("arguments", [b"[]", b"{", b'{"a":"\xff"}', b'{"a":"\\ud800"}', b"1"])
def test_arguments_that_are_no_object(arguments: bytes) -> None:
    with pytest.raises(InvalidArguments):
        call_params(tool_call("t", arguments), 7)
