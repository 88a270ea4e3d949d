"""Reads tools' results: whether the tool failed and in which words, and its data."""

from __future__ import annotations

import re
from contextlib import suppress

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon import protocol

IS_ERROR = "isError"
"""The outcome in the log of a call whose tool reported an error, which is a result to the protocol."""


MAX_SEARCHED = 64 * 1024
"""Bytes of the longest result searched for `isError`, in a quarter of a millisecond; errors are shorter. A
longer result counts as a success."""

_SAYS_ERROR = re.compile(rb'"isError"\s*:\s*true')
"""Results without a match, which are most, need not be decoded."""


class _IsError(Struct):
    isError: bool = False  # noqa: N815 - the wire's name


_decode_is_error = msgspec.json.Decoder(_IsError).decode


def is_error(result: bytes | memoryview, most: int = MAX_SEARCHED) -> bool:
    """Whether a result reports an error of its tool; False above `most` bytes.

    A quoted `"isError": true` does not count: the result is decoded if the words occur.
    """
    if len(result) > most:
        return False
    # A plain search is three times faster, and most results lack the member.
    raw = bytes(result)
    if b"isError" not in raw or _SAYS_ERROR.search(raw) is None:
        return False
    said = protocol.decoded(_decode_is_error, result)
    return said is not None and said.isError


class _Block(Struct):
    text: str = ""
    type: str = "text"


class _ToolResult(Struct):
    content: list[_Block] = []
    structuredContent: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name
    isError: bool = False  # noqa: N815 - the wire's name


_decode_result = msgspec.json.Decoder(_ToolResult).decode


def text_in(result: bytes | memoryview, most: int = MAX_SEARCHED) -> str:
    """The first text of a failed result; empty if there is none, or the result is too large."""
    with suppress(*protocol.UNREADABLE):
        if memoryview(result).nbytes <= most:
            return next((each.text for each in _decode_result(result).content if each.text), "")
    return ""


class _Content(Struct):
    content: Raw = Raw(b"[]")


_decode_content = msgspec.json.Decoder(_Content).decode
_decode_raw = msgspec.json.Decoder(Raw).decode


def json_in(result: bytes) -> Raw:
    """A result as JSON: structured content, else text that is JSON, else text, with images all content.

    Not decoded: as objects, eight megabytes of empty lists would hold up the loop for a second.
    """
    said = protocol.decoded(_decode_result, result)
    if said is None or said.isError:
        return Raw(b"null")
    if said.structuredContent is not UNSET:
        return said.structuredContent
    if any(each.type != "text" for each in said.content):
        return _decode_content(result).content
    text = "\n".join(each.text for each in said.content)
    return protocol.decoded(_decode_raw, text) or Raw(msgspec.json.encode(text))


def value_in(result: bytes) -> object:
    """A result as data (`json_in`); None for an error."""
    return protocol.decoded(msgspec.json.decode, json_in(result))
