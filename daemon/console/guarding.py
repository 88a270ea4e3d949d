"""What keeps other pages out of the console: headers of responses, cookies, and where requests come from.

Sources: Content Security Policy Level 3, Fetch Metadata Request Headers, RFC 6265bis (SameSite, `__Host-`).
Cookies know no ports, and neither does SameSite: a page of another program on this machine is `same-site`.
So requests are judged by Origin and Sec-Fetch-Site, too, and forms carry a token.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from daemon.config.addresses import split_authority

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from daemon.console.access import ConsoleSession

COOKIE = "mcpd_console"
"""How the cookie's name begins; see `cookie_name`."""

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
"""Headers of every response; a response's own ones come first."""

OURS = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site of what our own pages ask for, and of what a person types or follows."""

EMBEDDED = frozenset({"iframe", "frame", "embed", "object", "fencedframe"})
"""Values of Sec-Fetch-Dest of a page inside another one."""

FORBIDDEN = 403


def secured(application: ASGIApp) -> ASGIApp:
    """The same application, whose responses all carry `HEADERS`."""

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
    """The name of the console's cookie at a Host, with its port: the next daemon there has another one."""
    _name, port = split_authority(host)
    name = COOKIE if port is None else f"{COOKIE}_{port}"
    return f"__Host-{name}" if tls else name


def cookie_in(headers: Mapping[str, str], *, tls: bool) -> str:
    """The cookie of the console that a request's headers carry; empty if there is none.

    Under TLS only that with the prefix counts: any page of the same host, also without TLS, can set the other.
    """
    wanted = cookie_name(headers.get("host", ""), tls=tls)
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted:
            return value
    return ""


def set_cookie(response: Response, request: Request, value: str) -> None:
    """Have the browser keep a session's cookie; an empty value removes it."""
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
    """Refuse what another page asks for, except to be left for one of ours.

    Raises:
        HTTPException: 403.
    """
    headers = request.headers
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
    if headers.get("sec-fetch-dest") in EMBEDDED or (site not in OURS and mode != "navigate"):
        raise HTTPException(FORBIDDEN, "Another page has asked for this one. Open it in a window of its own.")


def refuse_foreign_form(request: Request, form: Mapping[str, str], session: ConsoleSession | None) -> None:
    """Refuse a form that none of our pages has sent, or, with a session, none that the session was given.

    Raises:
        HTTPException: 403.
    """
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
