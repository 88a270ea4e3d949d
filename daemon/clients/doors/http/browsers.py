"""What browsers are told of the pages that may use the daemon: CORS, as the Fetch standard has it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.config.model import PORTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.clients.doors.http.head import Head

METHODS = "GET, POST, DELETE"
"""What a page may do at `/mcp`."""

SENT = frozenset({
    "accept", "authorization", "content-type", "last-event-id", "mcp-method", "mcp-name",
    "mcp-protocol-version", "mcp-session-id", "mcpd-session", "mcpd-workspace",
})  # fmt: skip
"""Headers that a page may send, besides `Mcp-Param-…`."""

READ = "Mcp-Session-Id, WWW-Authenticate, Retry-After"
"""Headers of a response that a page may read, besides those that every page may."""

MAX_AGE = 600
"""Seconds that a browser need not ask again."""

_SENT_WITH_A_CALL = re.compile(r"mcp-param-[a-z0-9_.-]+", re.ASCII)
"""Headers that repeat an argument of a call (MCP 2026-07-28)."""


def origin_of(text: str) -> str:
    """An Origin as it is compared: in lower case, without a port that its scheme implies."""
    lower = text.lower()
    scheme, _, rest = lower.partition("://")
    return lower.removesuffix(f":{PORTS[scheme]}") if scheme in PORTS and rest else lower


def allowances(head: Head, origin: str) -> Mapping[str, str]:
    """The headers for a page of an allowed Origin; those of a preflight, too, if the request is one."""
    headers = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": READ,
        "Vary": "Origin",
    }
    if not is_preflight(head):
        return headers
    asked = head.headers.get("access-control-request-headers", "").lower().split(",")
    wanted = [each.strip() for each in asked if _SENT_WITH_A_CALL.fullmatch(each.strip())]
    headers["Access-Control-Allow-Methods"] = METHODS
    headers["Access-Control-Allow-Headers"] = ", ".join(sorted({*SENT, *wanted}))
    headers["Access-Control-Max-Age"] = str(MAX_AGE)
    if head.headers.get("access-control-request-private-network") == "true":
        # A page from elsewhere and a daemon on loopback: the operator has named this very page.
        headers["Access-Control-Allow-Private-Network"] = "true"
    return headers


def is_preflight(head: Head) -> bool:
    """Whether a browser asks if it may make a request; it shows no token then."""
    return head.method == "OPTIONS" and "access-control-request-method" in head.headers
