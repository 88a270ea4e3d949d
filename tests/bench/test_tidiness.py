"""The benchmark's eye for what an answer should not carry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.tidiness import faults


def answer(structured: object, text: str = "prose", **dumps: Any) -> bytes:
    result = {"content": [{"type": "text", "text": text}], "structuredContent": structured}
    message = {"jsonrpc": "2.0", "id": 1, "result": result}
    return json.dumps(message, **({"separators": (",", ":")} | dumps)).encode()


def schema(**members: Any) -> dict[str, Any]:
    return {"tools": {"a": {"inputSchema": {"type": "object", **members}}}}


@pytest.mark.parametrize(
    "structured",
    [
        schema(properties={"path": {"type": "string", "description": 'with  spaces, and "quotes": {}'}}),
        schema(properties={"$schema": {"type": "string"}, "anything": {}}),
        schema(properties={"path": {"default": "", "items": {}, "const": None}}),
        schema(additionalProperties={}),
        {"active": False, "total": 0},
    ],
)
def test_what_means_something_is_no_fault(structured: object) -> None:
    assert faults(answer(structured, text=json.dumps(structured, separators=(",", ":")))) == []


@pytest.mark.parametrize(
    ("structured", "fault"),
    [
        (schema(**{"$schema": "x"}), "$schema at tools.a.inputSchema.$schema"),
        (schema(properties={}), "empty at tools.a.inputSchema.properties"),
        (schema(required=[]), "empty at tools.a.inputSchema.required"),
        (
            schema(properties={"p": {"default": None}}),
            "null at tools.a.inputSchema.properties.p.default",
        ),
        (
            schema(properties={"p": {"anyOf": [{"title": ""}]}}),
            "empty at tools.a.inputSchema.properties.p.anyOf[].title",
        ),
        (
            schema(properties={"properties": {"$schema": "x"}}),
            "$schema at tools.a.inputSchema.properties.properties.$schema",
        ),
        ({"meta": {"nextCursor": None}}, "null at meta.nextCursor"),
    ],
)
def test_what_says_nothing_is_named_with_its_place(structured: object, fault: str) -> None:
    assert faults(answer(structured)) == [fault]


def test_white_space_counts_on_the_wire_and_in_a_text_that_is_json() -> None:
    assert faults(answer({"a": 1}, indent=1)) == faults(answer({"a": 1}, text='{"a": 1}'))
    assert faults(answer({"a": 1}, text='{"a": 1}')) == ["white space in JSON"]


def test_a_text_that_is_json_is_looked_into_like_the_rest() -> None:
    assert faults(answer({"a": 1}, text='{"a":null}')) == ["null at a"]
