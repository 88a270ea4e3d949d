"""Finds the id and the method of a message, as raw bytes, without reading the rest."""

from __future__ import annotations

import re

MAX_ID = 1024  # longest id that is remembered, in bytes: clients count, or use UUIDs

ENDS = 2048  # bytes at either end of a long line that may hold its id and method: twice `MAX_ID`

Seen = tuple["bytes | None", "bytes | None"]
"""Id and method of a message. A notification has no id, an answer no method."""

_SCALAR = rb'("[^"\\]*(?:\\.[^"\\]*)*"|[-+.\w]+)'
_COUNTED = 32  # bytes at the end of a line that may hold a number as SDKs write it

_TEXT = rb'"[^"\\]*"'
_usual = re.compile(rb'\{(?:"jsonrpc":"2\.0",)?(?:"id":([0-9]+|%b),)?"method":(%b)' % (_TEXT, _TEXT)).match
_member = re.compile(rb'\s*[{,]\s*"(id|method|jsonrpc)"\s*:\s*' + _SCALAR + rb"(?=\s*[,}])", re.DOTALL).match
_outcome = re.compile(rb'\s*,\s*"(?:result|error)"\s*:').match
_over = re.compile(rb"\s*\}\s*\Z").match
_last = re.compile(
    rb'"id"\s*:\s*' + _SCALAR + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"[^"\\]*"\s*)?\}\s*\Z', re.DOTALL
).match
_token = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}:,"]|[^][{}:,"\s]+', re.DOTALL).finditer
_answer = re.compile(rb'\{"jsonrpc":"2\.0","id":' + _SCALAR + rb',"(result|error)":', re.DOTALL).match
_asked = re.compile(rb'\{"jsonrpc":"2\.0","id":' + _SCALAR + rb',"method":', re.DOTALL).match
_uri = re.compile(rb'"uri"\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*")', re.DOTALL).search
_request_id = re.compile(rb'"requestId"\s*:\s*' + _SCALAR, re.DOTALL).search
_scalars = re.compile(_SCALAR, re.DOTALL).findall
_subscription = re.compile(rb'"io\.modelcontextprotocol/subscriptionId"\s*:\s*' + _SCALAR, re.DOTALL).search

ANSWER = b'{"jsonrpc":"2.0","id":'
_NEXT_ANSWER = b"\n" + ANSWER
_OUTCOMES = (b',"result":', b',"error":')
_CALL = b'{"method":"tools/call",'
_CALL_AFTER_ID = b',"method":"tools/call",'
ACKNOWLEDGED = b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"'
UNSENT = b'{"jsonrpc":"2.0","method":"mcpd/unsent","params":{"ids":['


def peek(line: bytes) -> Seen:
    """Id and method of a whole line; neither if it is not a JSON-RPC message."""
    usual = _usual(line)
    if usual is not None:
        request_id, method = usual.groups()
        if request_id is not None or method.startswith(b'"notifications/'):
            return _kept(request_id), method
        at = line.rfind(b',"id":', -_COUNTED)
        if at > 0 and line[at + 6 : -2].isdigit() and line.endswith(b"}\n"):
            return line[at + 6 : -2], method
    return _peek_anywhere(line)


def plain_call(line: bytes) -> bytes | None:
    """The id of a `tools/call` with a numeric id in the usual form: a fast path for `peek`."""
    if line.startswith(_CALL):
        at = line.rfind(b',"id":', -_COUNTED)
        request_id = line[at + 6 : -2] if at > 0 and line.endswith(b"}\n") else b""
    else:
        at = line.find(_CALL_AFTER_ID, len(ANSWER), len(ANSWER) + _COUNTED)
        request_id = line[len(ANSWER) : at] if at > 0 and line.startswith(ANSWER) else b""
    return request_id if request_id.isdigit() else None


def plain_answer(line: bytes) -> bytes | None:
    """The numeric id of the request that a daemon's line answers: a fast path for `answered`."""
    at = line.find(b",", len(ANSWER), len(ANSWER) + _COUNTED)
    request_id = line[len(ANSWER) : at]
    plain = request_id.isdigit() and line.startswith(ANSWER) and line.startswith(_OUTCOMES, at)
    return request_id if plain else None


def peek_ends(head: bytes, tail: bytes) -> Seen:
    """Id and method of a long line, from its first bytes and from those after the payload."""
    request_id, method, _ = _head(head)
    return _kept(request_id or _tail(tail, 0)), method


def answered(line: bytes | bytearray) -> tuple[bytes, bool] | None:
    """The id that a daemon's line answers, and whether with a result (`wire.envelope.response`); else None."""
    found = _answer(line)
    return None if found is None else (found[1], found[2] == b"result")


def asked(line: bytes | bytearray) -> bytes | None:
    """The id of a daemon's request to the client, which comes first (`wire.envelope.request`); else None."""
    found = _asked(line)
    return found and found[1]


def uri(line: bytes) -> bytes | None:
    """The resource of a subscription, as written, quotes included."""
    found = _uri(line)
    return found and found[1]


def only_answers(lines: bytes) -> bool:
    """Whether each of a daemon's whole lines begins as its answers do."""
    return lines.startswith(ANSWER) and lines.count(b"\n") == lines.count(_NEXT_ANSWER) + 1


def cancelled(line: bytes) -> bytes | None:
    """The id of the request that a `notifications/cancelled` withdraws."""
    found = _request_id(line)
    return found and found[1]


def acknowledged(line: bytes | bytearray) -> bytes | None:
    """The id of the subscription that a daemon's line acknowledges; None for any other line."""
    found = _subscription(line) if line.startswith(ACKNOWLEDGED) else None
    return found and found[1]


def unsent(line: bytes | bytearray) -> list[bytes] | None:
    """Ids of requests that a stopping daemon has not forwarded; None for any other line."""
    return _scalars(line, len(UNSENT)) if line.startswith(UNSENT) else None


def _peek_anywhere(line: bytes) -> Seen:
    request_id, method, at = _head(line)
    if request_id is None or method is None:
        if at is None or (method is not None and method.startswith(b'"notifications/')):
            return request_id, method
        if method is None or (request_id := _tail(line, at)) is None:
            request_id, method = _walk(line)
    return _kept(request_id), method


def _head(line: bytes) -> tuple[bytes | None, bytes | None, int | None]:
    """Id and method before the payload, and the offset of the rest; None if nothing follows."""
    request_id = method = None
    at = 0
    while found := _member(line, at):
        at = found.end()
        if found[1] == b"id":
            request_id = found[2]
        elif found[1] == b"method":
            method = found[2]
        if request_id is not None and method is not None:
            return request_id, method, at
    whole = _over(line, at) or (request_id is not None and _outcome(line, at))
    return request_id, method, None if whole else at


def _tail(line: bytes, start: int) -> bytes | None:
    """The id, if it is the last member, or the last before the version: in a string the quote is escaped."""
    at = line.rfind(b'"id"', max(start, len(line) - ENDS))
    comma = line.rfind(b",", start, at) if at > 0 else -1
    found = _last(line, at) if comma >= 0 and not line[comma + 1 : at].strip() else None
    return found and found[1]


def _walk(line: bytes) -> Seen:
    members: dict[bytes, bytes] = {}
    depth, name, last = 0, b"", b""
    for found in _token(line):
        token = found[0]
        if token == b'"' or (depth == 0 and token != b"{"):
            # An unterminated string, or not an object: the daemon will refuse the line anyway.
            break
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
        elif depth == 1 and token == b":":
            name = last
        elif depth == 1 and token == b",":
            name = b""
        elif depth == 1 and name:
            members[name] = token
        elif depth == 1:
            last = token
    return members.get(b'"id"'), members.get(b'"method"')


def _kept(request_id: bytes | None) -> bytes | None:
    """The id if an answer can carry it: a string or number of at most `MAX_ID` bytes; else None."""
    if request_id is None or len(request_id) > MAX_ID or request_id[0] not in b'"-0123456789':
        return None
    return request_id
