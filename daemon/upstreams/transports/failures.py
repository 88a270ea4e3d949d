"""The cause of a failed HTTP request, and its effect on call and connection; also the headers of requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2
import msgspec
import trio
from msgspec import UNSET, Raw, UnsetType

from daemon import causes, errors
from daemon.catalog.definitions import MARK, Marks, encoded, marked_headers, marks_in
from daemon.causes import Cause, Datum
from daemon.host.sockets import reason
from daemon.model import Era
from daemon.protocol import NAMED_BY, decode_named, decoded
from daemon.upstreams.transports.network import is_untrusted, opening_error
from daemon.wire import envelope
from daemon.wire.envelope import read_error

SESSION_HEADER = "mcp-session-id"


class McpHeaders:
    """Makes the headers of messages to one server, from its era and its listed tools."""

    def __init__(self) -> None:
        self.is_modern = False
        self.session = ""
        """The session id that the server gave mcpd; empty if it gave none."""
        self._version = ""
        self._marks: dict[str, Marks] = {}

    def adopt(self, era: Era, version: str) -> None:
        """Use the headers of this era and protocol version from now on."""
        self.is_modern = era is Era.MODERN
        self._version = version

    def of(self, method: str = "", params: Raw | UnsetType = UNSET) -> dict[str, str]:
        """The headers of a message; empty for `initialize`, which negotiates the version."""
        if not self._version or method == "initialize":
            return {}
        headers = {"mcp-protocol-version": self._version}
        if self.session:
            headers[SESSION_HEADER] = self.session
        if self.is_modern and method:
            headers["mcp-method"] = method
            if method in NAMED_BY and params is not UNSET:
                headers |= self._named(NAMED_BY[method], params)
        return headers

    def _named(self, member: str, params: Raw) -> dict[str, str]:
        given = decoded(decode_named, params)
        if given is None:
            return {}
        marks = self._marks.get(given.name, {})
        marked = {} if given.arguments is UNSET or not marks else marked_headers(marks, given.arguments)
        return {"mcp-name": encoded(getattr(given, member)), **marked}

    def learn(self, listing: bytes) -> None:
        """Remember which arguments a call repeats in headers; `listing` is the raw result of `tools/list`."""
        if not self.is_modern or MARK.encode() not in listing:
            return
        listed = decoded(msgspec.json.decode, listing)
        tools = listed.get("tools") if isinstance(listed, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                self._marks[tool["name"]] = dict(marks_in(tool.get("inputSchema")))


RETRY_AFTER_MOST = 300.0
"""Longest Retry-After that counts, in seconds: a server that asks for a day is tried after five minutes."""

SERVER_ERROR = -32000
"""The first code that JSON-RPC leaves to servers; the TypeScript SDK uses it for an unknown session."""

PERHAPS_OVER = frozenset({None, SERVER_ERROR, envelope.INVALID_REQUEST})
"""Codes with which HTTP 400 may mean an unknown session, among other things; None without a JSON-RPC error."""

NOT_CONNECTED = frozenset(
    {
        Cause.NAME_NOT_FOUND,
        Cause.REFUSED,
        Cause.UNREACHABLE,
        Cause.CONNECT_TIMEOUT,
        Cause.CANNOT_CONNECT,
        Cause.NOT_TLS,
    }
)
"""Causes that mean no connection was made, so nothing was sent."""

_UNTRUSTED = frozenset({Cause.TLS_UNTRUSTED, Cause.TLS_EXPIRED, Cause.TLS_NAME})

NOT_RUN = (
    NOT_CONNECTED
    | _UNTRUSTED
    | frozenset({Cause.BUSY, Cause.UNAUTHORIZED, Cause.FORBIDDEN, Cause.SESSION_OVER})
    | frozenset({Cause.LOGIN_NEEDED, Cause.SCOPE_MISSING, Cause.LOGIN_REFUSED, Cause.LOGIN_NOT_RENEWED})
)
"""Causes after which a call is safe to repeat; after any other it may have run."""

_STATUSES = frozenset(
    {
        httpx2.codes.CONTENT_TOO_LARGE,
        httpx2.codes.TOO_MANY_REQUESTS,
        httpx2.codes.SERVICE_UNAVAILABLE,
        httpx2.codes.BAD_GATEWAY,
        httpx2.codes.GATEWAY_TIMEOUT,
    }
)
"""Statuses about the request itself; any other error status counts as the server's own answer."""

_ENDS: dict[Cause, type[errors.RunError]] = {
    **dict.fromkeys(_UNTRUSTED, errors.CannotStart),
    Cause.UNAUTHORIZED: errors.NeedsAuth,
    Cause.FORBIDDEN: errors.NeedsAuth,
    Cause.LOGIN_REFUSED: errors.NeedsAuth,
    **dict.fromkeys(causes.CURED_BY_LOGIN, errors.NeedsAuth),
}
_FATAL = _UNTRUSTED | {Cause.UNAUTHORIZED, Cause.LOGIN_NEEDED, Cause.LOGIN_REFUSED, Cause.SESSION_OVER}
_FATAL_TO_OURS = {
    Cause.FORBIDDEN,
    Cause.SCOPE_MISSING,
    Cause.LOGIN_NOT_RENEWED,
    Cause.BUSY,
    Cause.GATEWAY,
    Cause.NOT_MCP,
}

UNREACHABLE_CALLS = 3
"""Calls in a row that fail to connect before the server counts as down: one failure may be a restart."""


class Failure(msgspec.Struct, frozen=True):
    """Why one request got no answer."""

    cause: Cause
    text: str
    """The failure with the server's host and port."""
    data: Mapping[str, Datum] = msgspec.field(default_factory=dict)
    """The data of the cause."""
    wait: float = 0.0
    """Seconds for which the server wants no requests; 0 if it did not say."""
    helps: str = ""
    """The remedy without which another call is pointless; empty if none is needed."""

    def for_call(self) -> errors.CallError:
        """The error for the caller."""
        if self.cause is Cause.MESSAGE_TOO_LARGE:
            return errors.RequestTooLarge(self.text)
        if self.wait:
            text = f"{self.text}. The call was not run: try again after that time, or use another tool."
            return errors.UpstreamUnavailable(text, retryAfterMs=round(self.wait * 1000))
        if self.helps:
            return errors.UpstreamUnavailable(
                f"{self.text}. The call was not run. {self.helps}.", cause=self.cause
            )
        if self.cause in NOT_RUN:
            return errors.UpstreamUnavailable(f"{self.text}. The call was not run: it is safe to try again.")
        return errors.UpstreamLost(f"{self.text}; whether the call ran is unknown")

    def for_run(self) -> errors.RunError:
        """The error for the supervisor, if this failure ends the connection."""
        if self.wait:
            return errors.Busy(self.text, self.cause, wait=self.wait, **self.data)
        return _ENDS.get(self.cause, errors.ConnectionLost)(self.text, self.cause, **self.data)


class LoginFailed(httpx2.TransportError):
    """A request that was not sent, or not run, because there is no valid login."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class LinkState:
    """Whether a server behind HTTP is reachable, and the error that ended its connection.

    401, an ended login, an untrusted certificate or the end of the session always end the connection. A failure
    to connect or to renew the login, 403, 429, 502, 503 and 504 end it if they hit a request of mcpd itself;
    for calls, only `UNREACHABLE_CALLS` in a row do. Retry-After holds calls and pings. Times: trio's clock.
    """

    def __init__(self) -> None:
        self.last_heard = self.busy_until = -math.inf
        self.end: errors.RunError | None = None
        self.ended = trio.Event()
        self._unreachable = 0

    def heard(self) -> None:
        """Note a sign of life; while Retry-After lasts, the server may be silent."""
        self.last_heard = max(trio.current_time(), self.busy_until)
        self._unreachable = 0

    def end_with(self, end: errors.RunError) -> None:
        """End the connection; later reasons are ignored."""
        if self.end is None:
            self.end = end
            self.ended.set()

    def judge(self, failure: Failure, *, own: bool) -> errors.RunError | None:
        """Note a failed request (`own`: mcpd's, not a call); return the error if it ends the connection."""
        if failure.wait:
            self.busy_until = max(self.busy_until, trio.current_time() + failure.wait)
            self.last_heard = max(self.last_heard, self.busy_until)
        fatal = failure.cause in _FATAL or (own and failure.cause in _FATAL_TO_OURS)
        if failure.data.get("status") == httpx2.codes.FORBIDDEN:
            fatal &= own
        if failure.cause in NOT_CONNECTED:
            self._unreachable += 1
            fatal = own or self._unreachable >= UNREACHABLE_CALLS
        if not fatal:
            return None
        end = failure.for_run()
        self.end_with(end)
        return end


def of_error(error: Exception, place: str) -> Failure:
    """The failure for a network error; only after an error before sending it is certain that nothing ran."""
    if isinstance(error, LoginFailed):
        return error.failure
    if isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        text = f"cannot connect to {place}: no connection in time"
        return Failure(Cause.CONNECT_TIMEOUT, text, {"place": place})
    if is_untrusted(error) or isinstance(
        error, httpx2.ConnectError | httpx2.ProxyError | httpx2.UnsupportedProtocol
    ):
        end = opening_error(error, place).reason
        return Failure(end.cause or Cause.CANNOT_CONNECT, end.text, end.data)
    why = reason(error)
    return Failure(Cause.CONNECTION_LOST, f"the connection to {place} broke: {why}", {"place": place})


def of_status(response: httpx2.Response, place: str, *, session_over: bool = False) -> Failure | None:
    """The failure for an HTTP status; None if the status counts as an ordinary answer."""
    status = response.status_code
    text = f"{place} answered HTTP {status} {response.reason_phrase}".rstrip()
    if status == httpx2.codes.UNAUTHORIZED:
        return unauthorized(place)
    data: dict[str, Datum] = {"place": place, "status": status}
    if status == httpx2.codes.FORBIDDEN:
        text = f"{place} does not allow the request with these credentials (HTTP {status})"
        return Failure(Cause.FORBIDDEN, text, data)
    if session_over:
        return session_ended(place, status)
    if status not in _STATUSES:
        return None
    cause = causes.of_status(status)
    if cause is Cause.BUSY and (asked := retry_after(response.headers, datetime.now(UTC))):
        wait = min(asked, RETRY_AFTER_MOST)
        more = f" (it asks for {asked:.0f} s)" if asked > wait else ""
        return Failure(cause, f"{text}, retry after {wait:g} s{more}", data, wait)
    return Failure(cause, text, data)


def unauthorized(place: str) -> Failure:
    """The failure for HTTP 401."""
    text = f"{place} requires credentials that mcpd did not send (HTTP 401)"
    return Failure(Cause.UNAUTHORIZED, text, {"place": place, "status": int(httpx2.codes.UNAUTHORIZED)})


def session_ended(place: str, status: int) -> Failure:
    """The failure for a session that the server no longer knows: the request has not run."""
    text = f"the server ended the session (HTTP {status} from {place})"
    return Failure(Cause.SESSION_OVER, text, {"place": place, "status": status})


def ends_session(response: httpx2.Response, body: bytes) -> bool | None:
    """Whether an HTTP error says that the server does not know the session; None if that is uncertain.

    The specification has 404; with -32601 that means "no such method" (2026-07-28). Servers also answer 410, or
    400 with -32000 (TypeScript SDK), -32600 or no JSON-RPC error (Python SDKs), which may be about the request.
    """
    if SESSION_HEADER not in response.request.headers:
        return False
    code = code_in(body)
    if response.status_code == httpx2.codes.NOT_FOUND:
        return code != envelope.METHOD_NOT_FOUND
    if response.status_code == httpx2.codes.BAD_REQUEST:
        return None if code in PERHAPS_OVER else False
    return response.status_code == httpx2.codes.GONE


def code_in(body: bytes) -> int | None:
    """The code of a JSON-RPC error response; None if the body is no such response."""
    error = error_in(body)
    return None if error is None else read_error(error)[0]


def error_in(body: bytes) -> Raw | None:
    """The error object of a JSON-RPC error response; None if the body is no such response."""
    try:
        error = envelope.decode(body).error
    except envelope.BadMessage:
        return None
    return error if error is not UNSET and bytes(error).startswith(b"{") else None


def retry_after(headers: httpx2.Headers, now: datetime) -> float:
    """The seconds of Retry-After, 0 if missing or past; dates count by the server's clock (RFC 9110)."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text[:_DIGITS])
    due, base = _date(text), _date(headers.get("date", "")) or now
    seconds = 0.0 if due is None else (due - base).total_seconds()
    return max(0.0, math.ceil(seconds))


_DIGITS = 12
"""Most digits read of a number of seconds; longer numbers are useless."""


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
