"""Access to the console: one-time links, sessions kept as digests, and the checks of each request."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import attrs
import msgspec
from loguru import logger
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException

from daemon.audit.event_records import note_command
from daemon.config.listen import split_authority
from daemon.console.page import Notice
from daemon.kit.waiting import keep_latest

if TYPE_CHECKING:
    import trio
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from daemon.audit.audit_log import Audit

COOKIE = "mcpd_console"

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with that, browsers send `Origin: null` with forms (Fetch, 3.2), which anybody can send.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""Headers of every response, unless the response sets them itself."""

OWN_SITES = frozenset({"same-origin", "none"})
"""Sec-Fetch-Site of requests by the console's own pages, and of addresses that a user typed or followed."""

EMBEDDED = frozenset({"iframe", "frame", "embed", "object", "fencedframe"})
"""Sec-Fetch-Dest of a page that is embedded in another one."""

FORBIDDEN = 403


def secured(application: ASGIApp) -> ASGIApp:
    """Wrap an application so that every response has `HEADERS`."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await application(scope, receive, sending)

    return serve


def cookie_name(host: str, *, tls: bool) -> str:
    """The name of the cookie for a Host. It holds the port, since another daemon may serve another port."""
    _name, port = split_authority(host)
    name = COOKIE if port is None else f"{COOKIE}_{port}"
    return f"__Host-{name}" if tls else name


def cookie_in(headers: Mapping[str, str], *, tls: bool) -> str:
    """The console's cookie in a request; under TLS only the prefixed one, which other sites cannot set."""
    wanted = cookie_name(headers.get("host", ""), tls=tls)
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted:
            return value
    return ""


def set_cookie(response: Response, request: Request, value: str) -> None:
    """Set a session's cookie, or remove it for an empty value."""
    tls = request.url.scheme == "https"
    response.set_cookie(
        cookie_name(request.headers.get("host", ""), tls=tls),
        value,
        max_age=None if value else 0,
        path="/" if tls else "/ui",
        secure=tls,
        httponly=True,
        samesite="strict",
    )


def refuse_foreign(request: Request) -> None:
    """Raise HTTPException (403) for a request made by another site's page, unless it navigates here."""
    headers = request.headers
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
    if headers.get("sec-fetch-dest") in EMBEDDED or (site not in OWN_SITES and mode != "navigate"):
        raise HTTPException(
            FORBIDDEN, "A page of another site made this request. Open this page in a window of its own."
        )


def refuse_foreign_form(request: Request, form: Mapping[str, str], session: ConsoleSession | None) -> None:
    """Raise HTTPException (403) for a form of another site, or without the session's token."""
    headers = request.headers
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    is_own = origin is not None and origin.partition("://")[2].lower() == headers.get("host", "").lower()
    if not (is_own or (origin is None and site == "same-origin")) or (site or "same-origin") != "same-origin":
        raise HTTPException(
            FORBIDDEN, "This form was not sent by a page of the console. Open the console itself."
        )
    if session is not None and not hmac.compare_digest(
        form.get("form_token", "").encode(errors="surrogatepass"), session.form_token.encode()
    ):
        raise HTTPException(
            FORBIDDEN, "This form is of an earlier session, or is forged. Go back, reload the page, try again."
        )


SECRET_BYTES = 32
"""Random bytes of the secret in a link or cookie: 256 bits cannot be guessed."""

LINK_SECONDS = 60.0
"""Seconds that a link is valid: enough to open a browser, or to copy the link into one."""

MAX_LINKS = 16
"""Valid links, the newest ones: each is for a person about to open a browser."""

IDLE_SECONDS = 12 * 3600.0
"""Seconds without a request that end a session: a working day."""

MAX_SESSIONS = 64
"""Sessions, the last used ones: few people operate a daemon."""

MAX_NOTICES = 4
"""Notices that wait for a session's next page, the newest ones; each form makes one."""


@attrs.define(eq=False, kw_only=True)
class ConsoleSession:
    """A browser that has signed in."""

    who: str
    """See `audit.record.acting`."""
    token: str = ""
    """Name of the token; empty: a link."""
    may_change: bool
    form_token: str = attrs.field(repr=False, factory=lambda: secrets.token_urlsafe(SECRET_BYTES))
    """The secret in each form of the session's pages; other sites do not know it."""
    used: float
    """When the last request came, on the clock of `ConsoleSessions`."""
    notices: list[Notice] = attrs.field(factory=list)
    last: Notice | None = None
    """The last change that can be undone (`Viewer.last`)."""
    typed: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict, repr=False)
    """By page, the last form that is kept (`ConsoleAction.keeps`); the page's template leaves secrets out."""
    has_ended: bool = False
    waits: set[trio.CancelScope] = attrs.field(factory=set, repr=False)

    def end(self) -> None:
        """End the session and cancel its waits."""
        self.has_ended = True
        for scope in self.waits:
            scope.cancel()

    def tell(self, notice: Notice) -> None:
        """Show a notice on the session's next page."""
        if notice.undo is not None:
            self.last = notice = msgspec.structs.replace(notice, key=secrets.token_urlsafe(SECRET_BYTES))
        self.notices = [*self.notices, notice][-MAX_NOTICES:]

    def take_notices(self) -> list[Notice]:
        """Return the waiting notices and forget them."""
        notices, self.notices = self.notices, []
        return notices


class _Link(msgspec.Struct, frozen=True):
    who: str
    may_change: bool
    until: float


class ConsoleSessions:
    """The console's valid links and its sessions."""

    def __init__(self, clock: Callable[[], float], audit: Audit) -> None:
        self._clock, self._audit = clock, audit
        self._links: dict[bytes, _Link] = {}
        self._sessions: dict[bytes, ConsoleSession] = {}

    def __iter__(self) -> Iterator[ConsoleSession]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def invite(self, who: str, *, may_change: bool) -> str:
        """Make the secret of a link, which lets one browser in, once."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        link = _Link(who, may_change, self._clock() + LINK_SECONDS)
        keep_latest(self._links, _digest(secret), link, MAX_LINKS)
        return secret

    def enter(self, secret: str) -> str | None:
        """Use up a link's secret. Returns a cookie, or None if the link is invalid."""
        link = self._links.pop(_digest(secret), None)
        if link is None or self._clock() >= link.until:
            return None
        return self.begin(link.who, may_change=link.may_change)

    def begin(self, who: str, *, token: str = "", may_change: bool) -> str:
        """Begin a session, and return its cookie."""
        cookie = secrets.token_urlsafe(SECRET_BYTES)
        session = ConsoleSession(who=who, token=token, may_change=may_change, used=self._clock())
        self._sessions[_digest(cookie)] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.pop(next(iter(self._sessions))).end()
        logger.info("console: signed in as {}, {}", who, "to control" if may_change else "to read")
        note_command(self._audit, who, "sign-in", {"readOnly": not may_change}, "ok")
        return cookie

    def find(self, cookie: str) -> ConsoleSession | None:
        """The session of a cookie, which counts as used now; None if it has ended."""
        key = _digest(cookie)
        session = self._sessions.get(key)
        if session is None or self.has_ended(session):
            return None
        session.used = self._clock()
        self._sessions[key] = self._sessions.pop(key)
        return session

    def has_ended(self, session: ConsoleSession) -> bool:
        """Whether a session has ended; ends a session that was idle for too long."""
        if not session.has_ended and self._clock() - session.used >= IDLE_SECONDS:
            self._end(lambda each: each is session)
        return session.has_ended

    def end(self, session: ConsoleSession) -> None:
        """End a session whose user signs out."""
        self._end(lambda each: each is session)

    def revoke(self, token: str) -> int:
        """End the sessions of a revoked token, and return their number."""
        return self._end(lambda each: each.token == token)

    def end_all(self) -> int:
        """End all sessions and links, and return the number of sessions."""
        self._links.clear()
        return self._end(lambda _each: True)

    def _end(self, ends: Callable[[ConsoleSession], bool]) -> int:
        ended = [key for key, session in self._sessions.items() if ends(session)]
        for key in ended:
            session = self._sessions.pop(key)
            session.end()
            logger.info("console: a session has ended, signed in as {}", session.who)
        return len(ended)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()
