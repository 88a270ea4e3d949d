"""Cuts bytes into frames, one line each, and finds a message's id and method without decoding the message."""

from __future__ import annotations

import re

MAX_ID = 1024  # longest id that is remembered, in bytes: clients count, or use UUIDs

ENDS = 2048  # bytes at either end of a long line that may hold its id and method: twice `MAX_ID`

Seen = tuple["bytes | None", "bytes | None"]
"""A message's id and method. A notification has no id, and an answer has no method."""

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
    """The id and method of a whole line; both None if it is no JSON-RPC message."""
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
    """The id of a `tools/call` in the usual form with a numeric id: a fast path for `peek`."""
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
    """The id and method of a long line, of which only the beginning and the end after the payload are here."""
    request_id, method, _ = _head(head)
    return _kept(request_id or _tail(tail, 0)), method


def answered(line: bytes | bytearray) -> tuple[bytes, bool] | None:
    """The id that a daemon's line answers, and whether by a result (`wire.envelope.response`); else None."""
    found = _answer(line)
    return None if found is None else (found[1], found[2] == b"result")


def asked(line: bytes | bytearray) -> bytes | None:
    """The id of a daemon's request, which is its first member (`wire.envelope.request`); else None."""
    found = _asked(line)
    return found and found[1]


def uri(line: bytes) -> bytes | None:
    """The resource of a subscription as written, with its quotes."""
    found = _uri(line)
    return found and found[1]


def only_answers(lines: bytes) -> bool:
    """Whether all these whole lines of a daemon begin like answers."""
    return lines.startswith(ANSWER) and lines.count(b"\n") == lines.count(_NEXT_ANSWER) + 1


def cancelled(line: bytes) -> bytes | None:
    """The id of the request that a `notifications/cancelled` cancels."""
    found = _request_id(line)
    return found and found[1]


def acknowledged(line: bytes | bytearray) -> bytes | None:
    """The id of the subscription that a daemon's line acknowledges; None for any other line."""
    found = _subscription(line) if line.startswith(ACKNOWLEDGED) else None
    return found and found[1]


def unsent(line: bytes | bytearray) -> list[bytes] | None:
    """The ids of requests that a stopping daemon has not forwarded; None for any other line."""
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
    """The id and method before the payload, and where the rest begins; None if nothing follows."""
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
    """The id, if it is the last member or the last before the version; quotes within strings are escaped."""
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
    """The id, if answers can carry it: a string or number of at most `MAX_ID` bytes; else None."""
    if request_id is None or len(request_id) > MAX_ID or request_id[0] not in b'"-0123456789':
        return None
    return request_id


TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import TypeVar

    AnyBytes = TypeVar("AnyBytes", bytes, bytearray)

LONG_BYTES = 256 * 1024
"""Bytes of the longest line of a client that is kept until all of it is sent; longer ones pass in parts."""

Piece = tuple[bytes, bool, bool]
"""Bytes of a line, whether the line begins with them, and whether it ends with them (and its newline)."""


def cut(lines: AnyBytes) -> list[AnyBytes]:
    """Split whole lines, each with its newline."""
    if lines.find(b"\n") + 1 == len(lines):
        return [lines]
    return [line + b"\n" for line in lines.split(b"\n")[:-1]]


class Gatherer:
    """Collects a daemon's bytes into whole lines: after half a line, clients would misread the next message."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes] | list[bytearray]:
        """The lines that `data` completes, each with its newline."""
        end = data.rfind(b"\n") + 1
        if end == len(data) and not self._held:
            return cut(data)
        self._held += data[:end] if end else data
        if not end:
            return []
        whole, self._held = self._held, bytearray(data[end:])
        return cut(whole)

    @property
    def is_between(self) -> bool:
        """Whether the next byte begins a line."""
        return not self._held

    def clear(self) -> None:
        """Drop the unfinished line."""
        self._held.clear()


class Cutter:
    """Cuts a client's bytes into lines, long ones into parts."""

    def __init__(self) -> None:
        self.midway = False  # whether a long line has been passed on in part
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that can be passed on now that `data` has come."""
        end = data.find(b"\n") + 1
        if end == len(data) > 0 and self.is_between:
            return [(data, True, True)]
        pieces: list[Piece] = []
        start = 0
        while end:
            pieces.append(self._ended(data[start:end]))
            start, end = end, data.find(b"\n", end) + 1
        if start < len(data):
            self._held += data[start:] if start else data
            if self.midway or len(self._held) > LONG_BYTES:
                pieces.append((bytes(self._held), not self.midway, False))
                self._held.clear()
                self.midway = True
        return pieces

    @property
    def is_between(self) -> bool:
        """Whether the next byte begins a line."""
        return not self._held and not self.midway

    def rest(self) -> bytes:
        """Take the unfinished line, and begin a new one."""
        held = bytes(self._held)
        self._held.clear()
        self.midway = False
        return held

    def _ended(self, end: bytes) -> Piece:
        piece = bytes(self._held) + end if self._held else end
        begins = not self.midway
        self._held.clear()
        self.midway = False
        return piece, begins, True


class Outgoing:
    """Queues bytes for successive connections; a line up to `LONG_BYTES` stays until its newline is sent."""

    def __init__(self) -> None:
        self.deaf = False  # whether the other side takes nothing more, though it may still speak
        self._buffer = bytearray()
        self._sent = 0
        self._midway = False
        self.total = 0  # bytes ever queued

    def put(self, data: bytes) -> None:
        """Queue bytes."""
        self._buffer += data
        self.total += len(data)

    def pass_on(self, lines: bytes, link: socket) -> bool:
        """Queue and send whole lines without a copy, if nothing else waits. Returns True if all was sent."""
        size = len(lines)
        self.total += size
        sent = 0
        try:
            sent = link.send(lines)
        except BlockingIOError:
            pass
        except OSError:
            self.deaf = True
        if sent == size:
            return True
        self._buffer += lines
        self._sent = sent
        self._let_go()
        return False

    @property
    def unsent(self) -> int:
        """The number of queued bytes that are not sent yet."""
        return len(self._buffer) - self._sent

    @property
    def gone(self) -> int:
        """The number of bytes that are no longer kept: their lines were sent, or are too long to keep."""
        return self.total - len(self._buffer)

    def send(self, link: socket) -> bool:
        """Send as many bytes as a connection takes now. Returns True if all are sent."""
        if self.deaf:
            return False
        try:
            while self._sent < len(self._buffer):
                self._sent += link.send(memoryview(self._buffer)[self._sent :] if self._sent else self._buffer)
        except BlockingIOError:
            pass
        except OSError:
            self.deaf = True
        if self._sent == len(self._buffer) and self._buffer.endswith(b"\n"):
            self._buffer.clear()
            self._sent = 0
            self._midway = False
            return True
        self._let_go()
        return self._sent == len(self._buffer)

    def withdraw(self) -> list[bytes]:
        """Take back the lines that a lost connection did not get completely, except long ones."""
        start = self._buffer.find(b"\n") + 1 or len(self._buffer) if self._midway else 0
        lines = bytes(self._buffer[start:]).split(b"\n")[:-1]
        self._buffer.clear()
        self._sent = 0
        self._midway = self.deaf = False
        return [line + b"\n" for line in lines if len(line) <= LONG_BYTES]

    def _let_go(self) -> None:
        end = self._buffer.rfind(b"\n", 0, self._sent) + 1
        self._midway = (self._midway and not end) or self._sent - end > LONG_BYTES
        if self._midway:
            end = self._sent
        if end:
            del self._buffer[:end]
            self._sent -= end
