"""MCP over HTTP, in both eras: POST, GET and DELETE under `/mcp`.

`MCP-Protocol-Version` selects the Streamable HTTP of 2025-11-25 or 2026-07-28; clients before 2025-06-18
send none. Modern headers repeat the body: load balancers route by the headers, servers act by the body.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

import attrs
import msgspec
from msgspec import UNSET, Raw

from daemon import protocol
from daemon.catalog.definitions import MARK, marked_headers, marks_in
from daemon.clients.client import Principal
from daemon.clients.doors.http import http_sessions
from daemon.clients.doors.http.http_connection import HttpExchange, ResponseWriter
from daemon.clients.doors.http.http_sessions import Place
from daemon.clients.doors.http.reading import Refusal
from daemon.clients.sessions import fault_of_key
from daemon.wire import envelope
from daemon.wire.envelope import BadMessage, Envelope, Line, as_line, mended
from daemon.wire.outbox import Link, Outbox

VERSION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"

HEADER_MISMATCH = -32020  # JSON-RPC code for headers that contradict the body

GONE = frozenset({"initialize", "ping", *protocol.DROPPED})

_ENCODED = re.compile(r"=\?base64\?(.*)\?=")


def fault_of(headers: Mapping[str, str], method: str, params: Raw | None) -> tuple[int, str] | None:
    """The fault of a request's headers as a JSON-RPC error, or None. The session checks the version."""
    try:
        meta = protocol.meta_of(params)
        missing = [key for key in (protocol.VERSION_KEY, protocol.CAPABILITIES_KEY) if key not in meta]
        if missing:
            return envelope.INVALID_PARAMS, f"Invalid params: _meta lacks {' and '.join(missing)}"
        version = msgspec.json.decode(meta[protocol.VERSION_KEY])
        named = protocol.decode_named(params or b"{}") if method in protocol.NAMED_BY else None
    except protocol.UNREADABLE as error:
        return envelope.INVALID_PARAMS, f"Invalid params: {error}"
    for header, expected in ((VERSION_HEADER, version), (METHOD_HEADER, method)):
        if headers.get(header) != expected:
            return HEADER_MISMATCH, f"Header mismatch: {header} differs from the body"
    member = protocol.NAMED_BY.get(method, "")
    name = "" if named is None else getattr(named, member)
    # FastMCP's client and server do without the header in requests about tasks.
    required = member != "taskId" or NAME_HEADER in headers
    if name and required and _header_value(headers.get(NAME_HEADER)) != name:
        return HEADER_MISMATCH, f"Header mismatch: {NAME_HEADER} is not params.{member}"
    if method in GONE:
        return envelope.METHOD_NOT_FOUND, f"Method not found: {method} ({protocol.MODERN_VERSION} has none)"
    return None


def marked_fault_of(
    headers: Mapping[str, str], definition: Callable[[str], bytes], params: Raw
) -> tuple[int, str] | None:
    """The fault of headers that repeat arguments, or None; most schemas mark none, so nothing is decoded."""
    called = protocol.decode_named(params)
    tool = definition(called.name) if called.name else b""
    if MARK.encode() not in tool:
        return None
    marks = dict(marks_in(msgspec.json.decode(tool).get("inputSchema")))
    arguments = called.arguments
    repeated = {} if arguments is UNSET else marked_headers(marks, arguments)
    wanted = {name.lower(): value for name, value in repeated.items()}
    for name in (f"mcp-param-{suffix}".lower() for suffix in marks.values()):
        if _header_value(headers.get(name)) != _header_value(wanted.get(name)):
            return HEADER_MISMATCH, f"Header mismatch: {name} differs from the argument that it repeats"
    return None


def _header_value(value: str | None) -> str | None:
    found = None if value is None else _ENCODED.fullmatch(value)
    if found is None:
        return value
    try:
        raw = base64.b64decode(found[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == found[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


SESSION_HEADER = "mcp-session-id"
KEY_HEADER = "mcpd-session"
WORKSPACE_HEADER = "mcpd-workspace"

MAX_LINKS = 4  # links of one connection in MCP 2026-07-28: one for each client behind a balancer

PRIMED_SINCE = "2025-11-25"  # the first revision whose clients understand an event without data

CANCELLED = -32800  # JSON-RPC code of the answer to a cancelled request, whose response must end somehow

MAX_ACCEPTS = 64  # cached `Accept` headers: clients of a kind send the same

POSTING = ("application/json", "text/event-stream")

_ModernLink = http_sessions.ExchangeLink[http_sessions.PostReply]


@attrs.define(eq=False, repr=False)
class McpEndpoint:
    """Answers the requests under `/mcp`."""

    _start: Callable[[Link, Principal, Callable[[], None]], None]
    """Serves a link in a task, and calls the third argument at the end."""
    _outbox: Outbox = attrs.field(kw_only=True)
    _places: int = attrs.field(kw_only=True)
    """The most sessions that may be open."""
    _definition: Callable[[Place, str], bytes] = attrs.field(kw_only=True)
    """Returns the raw definition of a place's tool by name; empty if there is none."""
    sessions: http_sessions.HttpSessions = attrs.field(init=False)
    _links: dict[ResponseWriter, dict[object, _ModernLink]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.sessions = http_sessions.HttpSessions(self._start, self._outbox, self._places)

    def serve(self, exchange: HttpExchange, place: Place) -> None:
        """Answer an admitted request, now or after its body, or raise Refusal."""
        method, headers = exchange.head.method, exchange.head.headers
        place = with_names(place, headers)
        if method == "POST":
            _require_post(exchange)
            exchange.on_body = partial(self._post, exchange, place)
        elif _is_modern(headers.get(VERSION_HEADER)) or method not in {"GET", "DELETE"}:
            allowed = "POST" if _is_modern(headers.get(VERSION_HEADER)) else "GET, POST, DELETE"
            text = f"{method} is not served here\n"
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, text, headers={"allow": allowed})
        else:
            act = self._listen if method == "GET" else self._delete
            exchange.on_body = partial(act, exchange, place)

    def forget(self, connection: ResponseWriter) -> None:
        """End the links of a connection that has ended."""
        for link in self._links.pop(connection, {}).values():
            link.end()

    def _post(self, exchange: HttpExchange, place: Place, body: bytes) -> None:
        line: Line = as_line(body)
        headers = exchange.head.headers
        version = headers.get(VERSION_HEADER)
        try:
            message, line = _decoded(line)
        except BadMessage as fault:
            _refuse(exchange, fault.request_id, fault.code, fault.message)
            return
        if _is_modern(version) or (
            version is None and SESSION_HEADER not in headers and _is_enveloped(message)
        ):
            self._post_modern(exchange, place, message, line)
        else:
            self._post_in_session(exchange, place, message, line)

    def _post_modern(self, exchange: HttpExchange, place: Place, message: Envelope, line: Line) -> None:
        if message.id is UNSET or message.method is UNSET:
            self._drop_modern(exchange, message)
            return
        request_id = bytes(message.id)
        params = None if message.params is UNSET else message.params
        fault = fault_of(exchange.head.headers, message.method, params)
        if fault is None and params is not None and message.method == protocol.CALL_TOOL:
            definition = partial(self._definition, place)
            fault = marked_fault_of(exchange.head.headers, definition, params)
        if fault is not None:
            _refuse(exchange, request_id, *fault)
            return
        link = self._link(exchange, place)
        link.replies[request_id] = http_sessions.PostReply(exchange)
        link.post(message, line)

    def _drop_modern(self, exchange: HttpExchange, message: Envelope) -> None:
        """Acknowledge a notification, which MCP 2026-07-28 ignores; refuse an answer."""
        version = exchange.head.headers.get(VERSION_HEADER)
        if message.method is UNSET:
            text = (
                "Invalid Request: in this revision servers send no requests, so a client has nothing to answer"
            )
            _refuse(exchange, b"null", envelope.INVALID_REQUEST, text)
        elif version != protocol.MODERN_VERSION:
            _refuse(exchange, b"null", *protocol.unsupported(version))
        else:
            exchange.respond(HTTPStatus.ACCEPTED)

    def _link(self, exchange: HttpExchange, place: Place) -> _ModernLink:
        links, names = self._links.setdefault(exchange.responses, {}), (place, place.key, place.workspace)
        known = links.pop(names, None)
        if known is None or known.is_over:
            while len(links) >= MAX_LINKS:
                links.pop(next(iter(links))).end()
            known = http_sessions.ExchangeLink(self._outbox, place.hello)
            self._start(known, attrs.evolve(place.visitor, keeps=False), known.end)
        links[names] = known
        return known

    def _post_in_session(self, exchange: HttpExchange, place: Place, message: Envelope, line: Line) -> None:
        session_id = exchange.head.headers.get(SESSION_HEADER)
        if session_id is not None:
            session = self.sessions.find(session_id, place)
        elif message.method == "initialize" and message.id is not UNSET:
            session = self.sessions.begin(place)
            exchange.headers = {**exchange.headers, "mcp-session-id": session.id}
        else:
            text = "there is no Mcp-Session-Id: send initialize first, and then the id from its answer\n"
            raise Refusal(HTTPStatus.BAD_REQUEST, text)
        if message.method is UNSET and (message.id is UNSET or message.result is message.error is UNSET):
            text = "Invalid Request: neither a request, a notification nor an answer"
            _refuse(exchange, envelope.id_of(message), envelope.INVALID_REQUEST, text)
            return
        if message.method is UNSET or message.id is UNSET:
            session.post(message, line)
            if message.method == protocol.CANCEL:
                self._end_cancelled(session.replies, message)
            exchange.respond(HTTPStatus.ACCEPTED)
            return
        if _expect(session, exchange, bytes(message.id)):
            session.post(message, line)

    def _end_cancelled(self, replies: dict[bytes, http_sessions.ResumableReply], message: Envelope) -> None:
        request_id = protocol.cancelled_id(message.params if isinstance(message.params, Raw) else Raw(b"{}"))
        reply = replies.pop(request_id, None)
        if reply is not None:
            reply.answer(envelope.error_response(request_id, CANCELLED, "Request cancelled"))

    def _listen(self, exchange: HttpExchange, place: Place, _body: bytes) -> None:
        headers = exchange.head.headers
        session = self.sessions.find(_session_id(headers.get(SESSION_HEADER)), place)
        if not _accepts(headers.get("accept"), "text/event-stream"):
            raise Refusal(HTTPStatus.NOT_ACCEPTABLE, "GET opens a stream: accept text/event-stream\n")
        session.listen(exchange, headers.get("last-event-id"))

    def _delete(self, exchange: HttpExchange, place: Place, _body: bytes) -> None:
        session_id = _session_id(exchange.head.headers.get(SESSION_HEADER))
        self.sessions.end(self.sessions.find(session_id, place))
        exchange.respond(HTTPStatus.NO_CONTENT)


def with_names(place: Place, headers: Mapping[str, str]) -> Place:
    """The place with the session key and workspace in the headers; raises Refusal for an invalid key."""
    key, workspace = headers.get(KEY_HEADER), headers.get(WORKSPACE_HEADER)
    if key is not None and (fault := fault_of_key(key)):
        raise Refusal(HTTPStatus.BAD_REQUEST, f"Mcpd-Session: {fault}\n")
    if key is workspace is None:
        return place
    return attrs.evolve(place, key=key, workspace=None if workspace is None else path_in(workspace))


def path_in(header: str) -> str:
    """The path in a header: percent-encoded UTF-8, or else Latin-1."""
    raw = unquote_to_bytes(header.encode("latin-1"))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _expect(session: http_sessions.HttpSession, exchange: HttpExchange, request_id: bytes) -> bool:
    """Await the session's answer to a request. Returns False if the request's id is in use."""
    if request_id in session.replies:
        _refuse(exchange, request_id, envelope.INVALID_REQUEST, protocol.already_in_flight(request_id))
        return False
    primes = (exchange.head.headers.get(VERSION_HEADER) or "") >= PRIMED_SINCE
    session.replies[request_id] = http_sessions.ResumableReply(exchange, session.log, primes=primes)
    return True


def _decoded(line: Line) -> tuple[Envelope, Line]:
    try:
        return envelope.decode_strictly(line), line
    except BadMessage as fault:
        whole = mended(line) if fault.code == envelope.PARSE_ERROR else None
        if whole is None:
            raise
        return envelope.decode_strictly(whole), whole


def _refuse(exchange: HttpExchange, request_id: bytes, code: int, message: str, data: object = None) -> None:
    frame = envelope.error_response(request_id, code, message, data)
    exchange.respond(http_sessions.STATUSES.get(code, HTTPStatus.BAD_REQUEST), frame, http_sessions.JSON)


def _is_modern(version: str | None) -> bool:
    return version is not None and version not in protocol.HANDSHAKE_VERSIONS


def _is_enveloped(message: Envelope) -> bool:
    meta = None if message.params is UNSET else protocol.decoded(protocol.meta_of, message.params)
    return meta is not None and protocol.VERSION_KEY in meta


def _session_id(given: str | None) -> str:
    if given is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "there is no Mcp-Session-Id: send initialize first\n")
    return given


def _require_post(exchange: HttpExchange) -> None:
    headers = exchange.head.headers
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json\n")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "compressed bodies are not accepted\n")
    if not all(_accepts(headers.get("accept"), kind) for kind in POSTING):
        raise Refusal(HTTPStatus.NOT_ACCEPTABLE, f"Accept must name {' and '.join(POSTING)}\n")


@lru_cache(maxsize=MAX_ACCEPTS)
def _accepts(header: str | None, kind: str) -> bool:
    """Whether an `Accept` header allows a media type (RFC 9110, 12.5.1); without the header all are allowed."""
    if header is None:
        return True
    named = {each.partition(";")[0].strip().lower() for each in header.split(",")}
    return bool(named & {kind, kind.partition("/")[0] + "/*", "*/*"})
