"""What token endpoints and their neighbours are sent and answer: who the client is, grants, error codes."""

from __future__ import annotations

import base64
import re
from urllib.parse import quote

import msgspec

MARGIN_SECONDS = 60.0
"""Before an access token ends it is renewed: time for a request to arrive, and for clocks that differ."""

MARGIN_SHARE = 0.2
"""Of a token's life, at most, is that margin: one of a minute would else be renewed for each call."""

CODE = re.compile(r"[a-z_]{1,40}")
"""What error codes look like (RFC 6749, 4.1.2.1 and 5.2); anything else is not repeated."""

MAX_TOKEN = 64 * 1024
"""Characters of a token; those with all of a company's groups in them have some ten thousand."""

_TOKEN = re.compile(r"[\x20-\x7e]+")
"""RFC 6749, appendices A.12 and A.17."""

OK = 200


class TokenGrant(msgspec.Struct):
    """What a token endpoint grants (RFC 6749, section 5.1)."""

    access_token: str
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None

    def __repr__(self) -> str:
        return "TokenGrant()"


def is_usable(*tokens: str | None) -> bool:
    """Whether tokens can be kept and sent; one that cannot would be quoted by whatever refuses to send it."""
    return all(token is None or (len(token) <= MAX_TOKEN and _TOKEN.fullmatch(token)) for token in tokens)


class _Refusal(msgspec.Struct):
    error: str


def error_code(content: bytes) -> str:
    """The error code in an answer (RFC 6749, section 5.2); empty if there is none that can be repeated."""
    try:
        code = msgspec.json.decode(content, type=_Refusal).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return code if CODE.fullmatch(code) else ""


def credentials(client_id: str, secret: str | None, method: str) -> tuple[dict[str, str], dict[str, str]]:
    """How a client shows who it is (RFC 6749, section 2.3.1): headers, and fields of the form.

    Args:
        client_id: the client's id.
        secret: its secret, if it has one.
        method: none, client_secret_post or client_secret_basic.
    """
    if secret is None or method == "none":
        return {}, {"client_id": client_id}
    if method == "client_secret_post":
        return {}, {"client_id": client_id, "client_secret": secret}
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, {}


def times(expires_in: float | str | None, now: float) -> tuple[float | None, float | None]:
    """When a token is renewed and when it ends, in seconds since the epoch; None if nobody knows.

    Args:
        expires_in: seconds, as the authorization server wrote them, which may be a string.
        now: seconds since the epoch.
    """
    try:
        seconds = float(expires_in) if expires_in is not None else None
    except ValueError:
        seconds = None
    if seconds is None or not 0 < seconds < float("inf"):
        return None, None
    return now + seconds - min(MARGIN_SECONDS, seconds * MARGIN_SHARE), now + seconds
