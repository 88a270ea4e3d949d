"""Marked arguments are found where the SDK finds them, and their values survive a header."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.shared import inbound

from daemon.catalog.definitions import encoded, marks_in


def mark(suffix: object = "X", kind: object = "string") -> dict[str, object]:
    return {"type": kind, "x-mcp-header": suffix}


MARKED = {"properties": {"deep": {"properties": {"x": mark("Depth", "integer")}}, "place": mark("Place")}}


@pytest.mark.parametrize("schema", [None, {}, {"properties": 5}, {"properties": {"a": 5}}, MARKED], ids=str)
def test_marks_are_found_where_the_sdk_finds_them(schema: Any) -> None:
    assert dict(marks_in(schema)) == inbound.x_mcp_header_map(schema)


@pytest.mark.parametrize("suffix", ["", "no token", 5, None])
def test_a_mark_that_cannot_be_a_header_is_none(suffix: object) -> None:
    assert not dict(marks_in({"properties": {"a": mark(suffix), "b": {"items": mark("Deep")}}}))


@pytest.mark.parametrize(
    "value", ["", "a", "a b", " a", "a ", "tö", "a\n", "x\ty", "=?base64?x?=", "=?base64?x"]
)
def test_a_value_survives_a_header(value: str) -> None:
    assert encoded(value) == inbound.encode_header_value(value)
    assert inbound.decode_header_value(encoded(value)) == value
