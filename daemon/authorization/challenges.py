"""What a server says of how it wants to be authorized: the `WWW-Authenticate` of its 401s and 403s.

Anybody may write anything there, so it is read within bounds, and only what has the form that its
specification gives it counts.
"""

from __future__ import annotations

import re

import attrs

INSUFFICIENT_SCOPE = "insufficient_scope"
"""The error of a token that does not allow what was asked (RFC 6750, section 3.1)."""

MAX_HEADER = 8 * 1024
"""Characters that are read: as long as most servers let a whole header be."""

MAX_SCOPE = 1024
"""Characters of a scope that is asked for: it becomes part of a URL that browsers open."""

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PART = re.compile(
    rf'[\s,]*(?:(?P<name>{_WORD})\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s,"]+))'
    rf"|(?P<scheme>{_WORD})(?=[\s,]|$))"
)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
"""RFC 6749, section 3.3."""


@attrs.frozen(kw_only=True)
class Challenge:
    """A challenge of the scheme Bearer (RFC 6750, section 3)."""

    error: str = ""
    """Why the token was refused; empty without one."""
    scope: str = ""
    """What a token would have to grant; empty if it does not say so, or not in a usable form."""


def bearer_challenge(header: str) -> Challenge | None:
    """The challenge of the scheme Bearer among those of a `WWW-Authenticate`; None if there is none.

    Args:
        header: the value; of several headers, all values with commas between them.
    """
    text, place = header[:MAX_HEADER], 0
    found: dict[str, str] | None = None
    within = False
    while match := _PART.match(text, place):
        place = match.end()
        if match["scheme"]:
            within = match["scheme"].lower() == "bearer" and found is None
            found = {} if within else found
        elif within and found is not None:
            quoted = match["quoted"]
            value = match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            found.setdefault(match["name"].lower(), value)
    if found is None:
        return None
    return Challenge(error=found.get("error", ""), scope=usable_scope(found.get("scope", "")))


def usable_scope(text: str) -> str:
    """A scope as it may be asked for; empty if it has another form, or is too long."""
    return text if len(text) <= MAX_SCOPE and _SCOPE.fullmatch(text) else ""


def union(*scopes: str | None) -> str | None:
    """All scopes of several lists, in order and once each; None if there are none."""
    words = [word for scope in scopes if scope for word in scope.split()]
    return " ".join(dict.fromkeys(words)) or None
