"""What an answer to a model must not carry: white space in JSON, `$schema`, nulls, empty fields."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SPACE = re.compile(r"\s")

_MEANT_WHEN_EMPTY = frozenset({"default", "const", "items", "additionalProperties", "contains", "not"})
"""Keywords of JSON Schema to which an empty value is a value."""

_NAMES = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose members are named by a tool's author: `$schema` may be an argument, and {} takes anything."""


def faults(answer: bytes) -> list[str]:
    """What is wrong with an answer on the wire: one JSON-RPC message whose result is a tool's.

    Text items are looked into when they are JSON; prose is a seed's own form.
    """
    result = json.loads(answer).get("result", {})
    texts = [str(item.get("text", "")) for item in result.get("content", ())]
    documents = [answer.decode(), *(text for text in texts if text.startswith(("{", "[")))]
    spaced = ["white space in JSON"] if any(map(_is_spaced, documents)) else []
    said = [result.get("structuredContent"), *(json.loads(text) for text in documents[1:])]
    return list(dict.fromkeys([*spaced, *(fault for each in said for fault in _walk(each, ""))]))


def _is_spaced(document: str) -> bool:
    return _SPACE.search(_STRING.sub("", document)) is not None


def _walk(value: Any, path: str, *, named: bool = False) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _walk(each, f"{path}[]")
    if not isinstance(value, dict):
        return
    for key, member in value.items():
        where = f"{path}.{key}".lstrip(".")
        if not named:
            yield from _member(key, member, where)
        yield from _walk(member, where, named=key in _NAMES and not named)


def _member(key: str, member: Any, where: str) -> Iterator[str]:
    if key == "$schema":
        yield f"$schema at {where}"
    elif member is None and key != "const":
        yield f"null at {where}"
    elif member in ("", [], {}) and key not in _MEANT_WHEN_EMPTY:
        yield f"empty at {where}"
