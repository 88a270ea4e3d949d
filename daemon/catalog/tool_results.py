"""Reads tools' results: whether the tool failed and in which words, its data, and what `grep` or `jq` finds.

A search is a process with limits, which can open no file: a program of jq could read any.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from contextlib import suppress

import msgspec
import re2
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon import protocol
from daemon.kit.later import later

jq = later("jq")  # of an extra

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
    """Whether a result reports an error; decoded only if the words occur. False above `most` bytes."""
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
    """A result as raw JSON: structured content, else text (as JSON if it is), with images all content."""
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


SECONDS, MEMORY = 5, 512 * 1024 * 1024  # of a processor, and bytes: 16 MiB of JSON take jq some 300 MiB
END = b"\0"  # the last byte printed, by a search that has come to its end, or to that of its room
MAX_LINE, BEFORE = 400, 100  # bytes shown of a longer line that matches, and those of them before the match

if __name__ == "__main__":
    room, pattern, program = json.loads(sys.stdin.buffer.readline())
    compiled, offset = jq.compile if program else None, 0
    for limit, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    for value in compiled(program).input_text(sys.stdin.read()) if compiled else ():
        room -= sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
        if room < 0:
            break
    for number, line in enumerate(sys.stdin.buffer, 1):
        if room > 0 and (match := re2.search(pattern.encode(), line)):
            begin = max(0, match.start() - BEFORE) if len(line) > MAX_LINE else 0
            shown = line[begin : begin + MAX_LINE].decode(errors="ignore").rstrip("\n")
            room -= sys.stdout.write(f"{number}:{offset + begin}:{shown}\n")
        offset += len(line)
    sys.stdout.write(END.decode())
