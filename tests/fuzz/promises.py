"""What JSON-RPC and MCP promise for a line, said by the standard library's JSON: the second opinion on ours."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from enum import StrEnum
from typing import Any

import attrs

PARSE, REQUEST, PARAMS = -32700, -32600, -32602

MAX_DEPTH = 128
"""Nesting that is taken from a client."""

SURELY_READ = 900
"""Nesting that every reader here gets to the end of: beyond, one may call it unreadable."""

MAX_ENVELOPE = 64 * 1024
"""Bytes beside the payload that are read twice."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPELT_ID = re.compile(rb'"(?:i|\\u0069)(?:d|\\u0064)"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")', re.DOTALL)


class Due(StrEnum):
    """What a line is owed."""

    NOTHING = "nothing"
    """It is skipped, counted, or taken in silence."""
    ERROR = "a JSON-RPC error"
    """Now."""
    ANSWER = "an answer"
    """Exactly one, now or later, whatever it says."""


@attrs.frozen(kw_only=True)
class Promise:
    """What must come back for one line."""

    due: Due
    codes: frozenset[int] = frozenset()
    """Of an error: any of these."""
    ids: frozenset[str] = frozenset()
    """Of the answer, as JSON; empty: whatever it is."""
    optional: bool = False
    """Whether both this and silence are right."""

    def admits(self, answer: Members) -> bool:
        """Whether an answer is the one that was promised."""
        if self.ids and canonical(answer.last("id")) not in self.ids:
            return False
        error = answer.last("error")
        return self.due is Due.ANSWER or (isinstance(error, Members) and str(error.last("code")) in self._codes)

    @property
    def _codes(self) -> set[str]:
        return {str(code) for code in self.codes}


NOTHING = Promise(due=Due.NOTHING)


class Number(str):
    """A number as it was written."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """An object, nothing lost: not the order, not a repetition."""

    def last(self, key: str, default: object = None) -> Any:
        """The value that counts for most readers."""
        return next((value for name, value in reversed(self) if name == key), default)

    def has(self, key: str) -> bool:
        """Whether there is such a member."""
        return any(name == key for name, _ in self)


def read(text: str, *, mend: bool = False) -> Any:
    """Strict JSON (RFC 8259, and no half characters).

    Args:
        text: of one value.
        mend: whether half a character that is spelt as an escape counts as U+FFFD.

    Raises:
        ValueError: it is none.
        RecursionError: it is too deep to tell.
    """
    if _SURROGATE.search(text):
        raise ValueError("half a character")
    value = _DECODER.decode(text.strip(" \t\n\r"))
    if "\\u" in text:
        if mend:
            return _with_whole_characters(value)
        _require_whole_characters(value)
    return value


def _refuse(word: str) -> Any:
    raise ValueError(word)


_DECODER = json.JSONDecoder(
    object_pairs_hook=Members, parse_int=Number, parse_float=Number, parse_constant=_refuse
)


def _require_whole_characters(value: Any) -> None:
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, Members):
            stack += [part for pair in top for part in pair]
        elif isinstance(top, list):
            stack += top
        elif isinstance(top, str) and _SURROGATE.search(top):
            raise ValueError("half a character")


def _with_whole_characters(value: Any) -> Any:
    match value:
        case Members():
            return Members((_whole(name), _with_whole_characters(each)) for name, each in value)
        case list():
            return [_with_whole_characters(each) for each in value]
        case str() if not isinstance(value, Number):
            return _whole(value)
        case _:
            return value


def _whole(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def _read(text: str, *, mend: bool) -> Any:
    """A message as a reader takes it that mends half characters, but neither an id nor what is no message."""
    try:
        return read(text)
    except ValueError:
        if not mend:
            raise
    message = read(text, mend=True)
    if not isinstance(message, Members):
        raise ValueError("half a character, and no message")
    if "\ufffd" in repr(message.last("id")) and "\\ufffd" not in text and "\ufffd" not in text:
        raise ValueError("half a character in the id")
    return message


def depth(value: Any) -> int:
    """Levels of objects and lists."""
    deepest, level = 0, [value]
    while level := [each for each in level if isinstance(each, list)]:
        deepest += 1
        level = [
            part for each in level for part in ((v for _, v in each) if isinstance(each, Members) else each)
        ]
    return deepest


def canonical(value: Any) -> str:
    """An id as JSON, to be compared; a number as it was written."""
    return str(value) if isinstance(value, Number) else json.dumps(value if isinstance(value, str) else None)


def is_id(value: Any) -> bool:
    """Whether MCP lets a request be called so: a text or a whole number."""
    if isinstance(value, Number):
        return not set(value) & set(".eE")
    return isinstance(value, str)


# --- from a client ------------------------------------------------------------------------------------------


def to_client(line: bytes, *, mend: bool = False) -> Promise:
    """What a client gets for a line: an error with the right code and id, an answer, or nothing.

    Args:
        line: what it said.
        mend: whether the reader mends half characters, and looks for the id of what it cannot read.
    """
    if not line.strip():
        return NOTHING
    return _of_json(line, mend=mend)


def _of_json(line: bytes, *, mend: bool) -> Promise:
    try:
        message = _read(line.decode(), mend=mend)
    except RecursionError:
        return Promise(due=Due.ERROR, codes=frozenset({PARSE, REQUEST}))
    except ValueError:
        ids = _spelt_ids(line) if mend else ()
        return Promise(due=Due.ERROR, codes=frozenset({PARSE}), ids=frozenset({"null", *ids}))
    if not isinstance(message, Members):
        return Promise(due=Due.ERROR, codes=_too_deep(message, REQUEST), ids=frozenset({"null"}))
    if codes := set(_faults(message)):
        return Promise(due=Due.ERROR, codes=_too_deep(message, *codes), ids=_ids_of(message))
    return _of_a_sound(line, message)


def _of_a_sound(line: bytes, message: Members) -> Promise:
    refused = Promise(due=Due.ERROR, codes=frozenset({REQUEST}), ids=frozenset({"null"}))
    if message.has("method"):
        return _of_a_request(line, message)
    answers = message.has("id") and (message.has("result") or message.has("error"))
    if answers:
        return attrs.evolve(refused, optional=True, ids=_ids_of(message)) if _is_bulky(line) else NOTHING
    return attrs.evolve(refused, ids=_ids_of(message) | {"null"})


def _of_a_request(line: bytes, message: Members) -> Promise:
    silent = message.last("method") == "subscriptions/listen"
    if message.has("id"):
        return Promise(due=Due.ANSWER, ids=_ids_of(message), optional=silent)
    if _is_bulky(line):
        return Promise(due=Due.ERROR, codes=frozenset({REQUEST}), ids=frozenset({"null"}), optional=True)
    return NOTHING


def _spelt_ids(line: bytes) -> set[str]:
    """Whatever stands behind `"id":` anywhere."""
    ids = set()
    for found in _SPELT_ID.findall(line):
        with suppress(ValueError):
            ids.add(canonical(read(found.decode())))
    return ids


def cancels(line: bytes) -> str | None:
    """The id of the request that a sound line calls off: it need not be answered any more."""
    try:
        message = _read(line.decode(), mend=True)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, Members) or message.last("method") != "notifications/cancelled":
        return None
    params = message.last("params")
    return canonical(params.last("requestId")) if isinstance(params, Members) else None


def _faults(message: Members) -> list[int]:
    codes = []
    counts = Counter(name for name, _ in message)
    method, params, request_id = message.last("method"), message.last("params"), message.last("id")
    answers = message.has("result") or message.has("error")
    if any(counts[name] > 1 for name in ("id", "method", "params", "jsonrpc")) or depth(message) > MAX_DEPTH:
        codes.append(REQUEST)
    # Each of a doubled member has to be text: the first one is looked at, too.
    texts = [value for name, value in message if name in {"jsonrpc", "method"}]
    if message.last("jsonrpc") != "2.0" or any(not _is_text(value) for value in texts):
        codes.append(REQUEST)
    if (message.has("id") and not is_id(request_id)) or (method is not None and answers):
        codes.append(REQUEST)
    if message.has("params") and not isinstance(params, Members):
        codes.append(PARAMS)
    return codes


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)


def _ids_of(message: Members) -> frozenset[str]:
    found = [value for name, value in message if name == "id"]
    ids = {canonical(value) for value in found if is_id(value)}
    return frozenset(ids | {"null"}) if len(found) != 1 or not ids else frozenset(ids)


def _too_deep(message: Any, *codes: int) -> frozenset[int]:
    return frozenset({*codes, PARSE}) if depth(message) > SURELY_READ else frozenset(codes)


def _is_bulky(line: bytes) -> bool:
    return len(line) > MAX_ENVELOPE


# --- from a server ------------------------------------------------------------------------------------------


class Said(StrEnum):
    """What a server's line is."""

    NOISE = "noise"
    """No JSON-RPC message: counted and skipped."""
    TAKEN = "taken"
    """A notification, or an answer to nobody."""
    ASKS = "asks"
    """A request to us: answered once."""
    RESULT = "result"
    """The result of the call in flight."""
    ERROR = "error"
    """Its error."""
    EITHER = "either"
    """So deep, or so broken within a text, that one may take it for what it says or for noise."""


def from_server(line: bytes, uid: int, *, mend: bool = False) -> tuple[Said, Any]:
    """What a server's line is to whoever waits for the answer to `uid`, and its result or its id.

    Args:
        line: what it said.
        uid: the id of the call in flight.
        mend: whether the reader mends half characters, and ends a call whose answer is no message.
    """
    said, value = _from_server(line, uid, mend=mend)
    if mend and said is Said.NOISE and {str(uid), f'"{uid}"'} & _spelt_ids(line):
        return Said.EITHER, None
    return said, value


def _from_server(line: bytes, uid: int, *, mend: bool) -> tuple[Said, Any]:
    try:
        line.decode()
        sound = True
    except UnicodeDecodeError:
        sound = False
    try:
        message = _read(line.decode() if sound else line.decode("latin-1"), mend=mend)
    except RecursionError:
        return Said.EITHER, None
    except ValueError:
        return Said.NOISE, None
    if not isinstance(message, Members):
        return Said.NOISE, None
    if depth(message) > SURELY_READ or not sound:
        return _doubtful(message, uid)
    return _of_a_message(message, uid)


def _doubtful(message: Members, uid: int) -> tuple[Said, Any]:
    said, value = _of_a_message(message, uid)
    return (said, value) if said is Said.NOISE else (Said.EITHER, value)


def _of_a_message(message: Members, uid: int) -> tuple[Said, Any]:
    texts = [value for name, value in message if name in {"jsonrpc", "method"}]
    if any(not _is_text(value) for value in texts):
        return Said.NOISE, None
    request_id = message.last("id")
    if message.has("method"):
        return (Said.ASKS, canonical(request_id)) if message.has("id") else (Said.TAKEN, None)
    if not message.has("id") or not (message.has("result") or message.has("error")):
        return Said.NOISE, None
    ours = (
        isinstance(request_id, str) and request_id.isascii() and request_id.isdigit() and len(request_id) < 19
    )
    if not ours or int(request_id) != uid:
        return Said.TAKEN, None
    return (
        (Said.ERROR, message.last("error")) if message.has("error") else (Said.RESULT, message.last("result"))
    )
