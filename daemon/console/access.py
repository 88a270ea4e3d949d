"""Access to the console: one-time links, sessions (as digests, bounded), and the checks of each request."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import attrs
import msgspec
from loguru import logger
from starlette.exceptions import HTTPException

from daemon.config.listen import split_authority
from daemon.console.page import Notice

if TYPE_CHECKING:
    import trio
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


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
"""Headers of every response; a response's own ones win."""

OWN_SITES = frozenset({"same-origin", "none"})
"""Sec-Fetch-Site of requests by the console's own pages, and of typed or followed addresses."""

EMBEDDED = frozenset({"iframe", "frame", "embed", "object", "fencedframe"})
"""Sec-Fetch-Dest of a page inside another one."""

FORBIDDEN = 403


def secured(application: ASGIApp) -> ASGIApp:
    """The application with `HEADERS` on every response."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = {name.decode("ascii"): value.decode("latin-1") for name, value in message["headers"]}
                headers = {**HEADERS, **named}
                message["headers"] = [
                    (name.encode(), value.encode("latin-1")) for name, value in headers.items()
                ]
            await send(message)

        await application(scope, receive, sending)

    return serve


def cookie_name(host: str, *, tls: bool) -> str:
    """Name of the cookie for a Host; holds the port, since another daemon may serve another port."""
    _name, port = split_authority(host)
    name = COOKIE if port is None else f"{COOKIE}_{port}"
    return f"__Host-{name}" if tls else name


def cookie_in(headers: Mapping[str, str], *, tls: bool) -> str:
    """The console's cookie in a request's headers; under TLS only the prefixed one, which others cannot set."""
    wanted = cookie_name(headers.get("host", ""), tls=tls)
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted:
            return value
    return ""


def set_cookie(response: Response, request: Request, value: str) -> None:
    """Set a session's cookie; an empty value removes it."""
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
    """Refuse a request of another page, unless it navigates here. Raises HTTPException: 403."""
    headers = request.headers
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
    if headers.get("sec-fetch-dest") in EMBEDDED or (site not in OWN_SITES and mode != "navigate"):
        raise HTTPException(FORBIDDEN, "Another page has asked for this one. Open it in a window of its own.")


def refuse_foreign_form(request: Request, form: Mapping[str, str], session: ConsoleSession | None) -> None:
    """Refuse a foreign page's form, or one without the session's token. Raises HTTPException: 403."""
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
"""Random bytes of a link's and a cookie's secret: 256 bits cannot be guessed."""

LINK_SECONDS = 60.0
"""Seconds that a link is valid: time to open a browser, or to copy the link into one."""

MAX_LINKS = 16
"""Valid links, the newest: each is a person about to open a browser."""

IDLE_SECONDS = 12 * 3600.0
"""Seconds without a request that end a session: a working day."""

MAX_SESSIONS = 64
"""Sessions, the last used: browsers of the few people who operate a daemon."""

MAX_NOTICES = 4
"""Notices that wait for a session's next page, the newest; each form makes one."""

BY_LINK = "a link"
"""Origin of a session that began with a link, for pages and the log."""


@attrs.define(eq=False, kw_only=True)
class ConsoleSession:
    """A signed-in browser."""

    who: str
    """The link or token of the sign-in, for pages and the log."""
    token: str = ""
    """Name of the token; empty: a link."""
    may_change: bool
    form_token: str = attrs.field(repr=False, factory=lambda: secrets.token_urlsafe(SECRET_BYTES))
    """Secret in each form of the session's pages, unknown to other sites."""
    used: float
    """Time of the last request, on the clock of `ConsoleSessions`."""
    notices: list[Notice] = attrs.field(factory=list)
    last: Notice | None = None
    """See `Viewer`."""
    typed: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict, repr=False)
    """The last kept form (`ConsoleAction.keeps`) by its page, whose template leaves out what is secret."""
    has_ended: bool = False
    waits: set[trio.CancelScope] = attrs.field(factory=set, repr=False)
    """Scopes to cancel at the end."""

    def end(self) -> None:
        """End the session and its waits."""
        self.has_ended = True
        for scope in self.waits:
            scope.cancel()

    def tell(self, notice: Notice) -> None:
        """Show a notice on the next page."""
        if notice.undo is not None:
            self.last = notice = msgspec.structs.replace(notice, key=secrets.token_urlsafe(SECRET_BYTES))
        self.notices = [*self.notices, notice][-MAX_NOTICES:]

    def take_notices(self) -> list[Notice]:
        """Return the notices, and forget them."""
        notices, self.notices = self.notices, []
        return notices


class _Link(msgspec.Struct, frozen=True):
    may_change: bool
    until: float


class ConsoleSessions:
    """The valid links, and the sessions."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._links: dict[bytes, _Link] = {}
        self._sessions: dict[bytes, ConsoleSession] = {}

    def __iter__(self) -> Iterator[ConsoleSession]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def invite(self, *, may_change: bool) -> str:
        """Make the secret of a link, which lets one browser in, once."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        self._links[_digest(secret)] = _Link(may_change, self._clock() + LINK_SECONDS)
        while len(self._links) > MAX_LINKS:
            del self._links[next(iter(self._links))]
        return secret

    def enter(self, secret: str) -> str | None:
        """Spend a link's secret; returns a cookie, or None for an invalid link."""
        link = self._links.pop(_digest(secret), None)
        if link is None or self._clock() >= link.until:
            return None
        return self.begin(BY_LINK, may_change=link.may_change)

    def begin(self, who: str, *, token: str = "", may_change: bool) -> str:
        """Begin a session; returns its cookie."""
        cookie = secrets.token_urlsafe(SECRET_BYTES)
        session = ConsoleSession(who=who, token=token, may_change=may_change, used=self._clock())
        self._sessions[_digest(cookie)] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.pop(next(iter(self._sessions))).end()
        logger.info("console: signed in by {}, {}", who, "to control" if may_change else "to read")
        return cookie

    def find(self, cookie: str) -> ConsoleSession | None:
        """The session of a cookie, now used; None if it has ended."""
        key = _digest(cookie)
        session = self._sessions.get(key)
        if session is None or self.has_ended(session):
            return None
        session.used = self._clock()
        self._sessions[key] = self._sessions.pop(key)
        return session

    def has_ended(self, session: ConsoleSession) -> bool:
        """Whether a session is over; ends one that was idle for too long."""
        if not session.has_ended and self._clock() - session.used >= IDLE_SECONDS:
            self._end(lambda each: each is session)
        return session.has_ended

    def end(self, session: ConsoleSession) -> None:
        """End a session: its user signs out."""
        self._end(lambda each: each is session)

    def revoke(self, token: str) -> int:
        """End the sessions of a revoked token; returns their number."""
        return self._end(lambda each: each.token == token)

    def end_all(self) -> int:
        """End all sessions, void all links; returns the number of sessions."""
        self._links.clear()
        return self._end(lambda _each: True)

    def _end(self, ends: Callable[[ConsoleSession], bool]) -> int:
        ended = [key for key, session in self._sessions.items() if ends(session)]
        for key in ended:
            session = self._sessions.pop(key)
            session.end()
            logger.info("console: a session has ended, signed in by {}", session.who)
        return len(ended)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()
