"""Checks Host, Origin and token of an HTTP request before its body is read, and slows down token guessing.

The Host reveals a web page whose name resolves to this machine (DNS rebinding), the Origin any other page.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from ipaddress import IPv6Address, ip_network

import msgspec
from loguru import logger

from daemon.clients.client import Principal
from daemon.clients.doors.http.asgi import is_own_page
from daemon.clients.doors.http.reading import Head, Refusal
from daemon.clients.doors.http.valid_tokens import Tokens
from daemon.config.config_model import PORTS
from daemon.config.listen import DEFAULT_PROFILE, HttpListen, is_loopback, numeric, split_authority
from daemon.kit.waiting import keep_latest
from daemon.kit.wording import quoted
from daemon.safety.escape import visible

FIRST_DELAY, LONGEST_DELAY = 0.25, 5.0
"""Seconds by which answers to wrong tokens are delayed, from the second token on; each doubles the delay."""

FORGET_SECONDS = 600.0  # seconds without a wrong token after which an address starts over

SAY_SECONDS = 60.0  # seconds between two log lines about one address

MAX_ADDRESSES = 4096
"""Addresses remembered, the latest ones, in 1 MiB. Guessing from more addresses is not easier."""

NEIGHBOURS = 64  # leading bits of an IPv6 address that count: one site has all the rest (RFC 6177)


class Attempt(msgspec.Struct):
    """The refusals of one address."""

    failures: int = 0  # wrong tokens in a row
    failed_at: float = 0.0
    said_at: float | None = None  # the last log line
    unsaid: int = 0  # refusals since that log line


class Attempts:
    """Records refused clients by address."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, Attempt] = {}

    def __len__(self) -> int:
        return len(self._known)

    def failed(self, address: str) -> float:
        """Record a wrong token, and return the seconds by which to delay the answer."""
        attempt, now = self._of(address), self._clock()
        if now - attempt.failed_at > FORGET_SECONDS:
            attempt.failures = 0
        attempt.failures += 1
        attempt.failed_at = now
        if attempt.failures == 1:
            return 0.0
        # An unbounded exponent would overflow under a patient guesser.
        doubled = FIRST_DELAY * 2.0 ** min(attempt.failures - 2, 16)
        return min(doubled, LONGEST_DELAY)

    def say(self, address: str, text: str) -> None:
        """Log a refusal, at most once a minute for each address."""
        attempt, now = self._of(address), self._clock()
        if attempt.said_at is not None and now - attempt.said_at < SAY_SECONDS:
            attempt.unsaid += 1
            return
        more = f" (and {attempt.unsaid} refusals since the last such line)" if attempt.unsaid else ""
        attempt.said_at, attempt.unsaid = now, 0
        logger.warning("http: refused {}: {}{}", address, text, more)

    def _of(self, address: str) -> Attempt:
        key = neighbourhood(address)
        attempt = self._known.get(key) or Attempt()
        keep_latest(self._known, key, attempt, MAX_ADDRESSES)
        return attempt


def neighbourhood(address: str) -> str:
    """The part of an address that is counted: all of an IPv4 address, the first half of an IPv6 address."""
    number = numeric(address.partition("%")[0])
    if isinstance(number, IPv6Address):
        return str(ip_network((int(number), NEIGHBOURS), strict=False))
    return address if number is None else str(number)


METHODS = "GET, POST, DELETE"  # methods of a page at `/mcp`

SENT = frozenset({
    "accept", "authorization", "content-type", "last-event-id", "mcp-method", "mcp-name",
    "mcp-protocol-version", "mcp-session-id", "mcpd-session", "mcpd-workspace",
})  # fmt: skip
"""Request headers that a page may send, besides `Mcp-Param-…`."""

READ = "Mcp-Session-Id, WWW-Authenticate, Retry-After"
"""Response headers that a page may read, besides the safelisted ones."""

MAX_AGE = 600  # seconds for which a browser may cache a preflight

_SENT_WITH_A_CALL = re.compile(r"mcp-param-[a-z0-9_.-]+", re.ASCII)
"""Headers that repeat an argument of a call (MCP 2026-07-28)."""


def origin_of(text: str) -> str:
    """Normalise an Origin for comparison: in lower case, without the scheme's default port."""
    lower = text.lower()
    scheme, _, rest = lower.partition("://")
    return lower.removesuffix(f":{PORTS[scheme]}") if scheme in PORTS and rest else lower


def allowances(head: Head, origin: str) -> Mapping[str, str]:
    """The CORS headers that answer an allowed Origin, including those of a preflight."""
    headers = {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": READ, "Vary": "Origin"}
    if not is_preflight(head):
        return headers
    asked = head.headers.get("access-control-request-headers", "").lower().split(",")
    wanted = [each.strip() for each in asked if _SENT_WITH_A_CALL.fullmatch(each.strip())]
    headers["Access-Control-Allow-Methods"] = METHODS
    headers["Access-Control-Allow-Headers"] = ", ".join(sorted({*SENT, *wanted}))
    headers["Access-Control-Max-Age"] = str(MAX_AGE)
    if head.headers.get("access-control-request-private-network") == "true":
        # The operator has named this very page, so it may reach a daemon on loopback.
        headers["Access-Control-Allow-Private-Network"] = "true"
    return headers


def is_preflight(head: Head) -> bool:
    """Whether this is a browser's preflight, which carries no token."""
    return head.method == "OPTIONS" and "access-control-request-method" in head.headers


WANTED = "send a bearer token in the header `Authorization`; on the daemon's machine, {}\n"
"""Answers a missing and a wrong token alike, so that a guesser learns nothing."""


DOUBTED = (
    "an earlier daemon made this token, and it waits to be confirmed after the restart: run"
    " `mcpd token confirm NAME` (or `--default`) on the daemon's machine\n"
)  # sent only to clients with such a token


class HttpAdmission:
    """Admits requests at one listener."""

    def __init__(
        self,
        listen: HttpListen,
        tokens: Tokens,
        *,
        count: Callable[[str], None] = lambda _reason: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`count` counts a refusal by its reason (`counting.tally.HTTP_REFUSALS`)."""
        host, _ = split_authority(listen.address)
        self._loopback = host is not None and is_loopback(host)
        self._hosts = frozenset(each.lower().removesuffix(".") for each in listen.hosts)
        self._origins = frozenset(map(origin_of, listen.origins))
        self._proxies = tuple(ip_network(each, strict=False) for each in listen.trusted_proxies)
        self.tokens = tokens
        more = "`mcpd token new NAME` makes one besides those in listen.http.tokens"
        self._wanted = WANTED.format("`mcpd token` prints one" if listen.tokens is None else more)
        self._count = count
        self._attempts = Attempts(clock)

    def greet(self, head: Head) -> None:
        """Check Host and Origin before the body is read; raises Refusal (403) for foreign ones."""
        host = head.headers.get("host", "")
        if not self._is_ours(host):
            raise self._forbidden(head, "host", f"Host {_shown(host)}", "listen.http.hosts")
        origin = head.headers.get("origin")
        if origin is not None and not self._may_use(origin) and not is_own_page(head, origin):
            raise self._forbidden(head, "origin", f"Origin {_shown(origin)}", "listen.http.origins")

    def visitor(self, head: Head) -> Principal:
        """Identify a client by the token in `Authorization` alone; raises Refusal (401) without a valid one."""
        authorization = head.headers.get("authorization")
        if authorization is None:
            self._refused(head, "token_missing", "a request without a token")
            raise self._unauthorized(delay=0.0)
        scheme, _, value = authorization.partition(" ")
        found = self.tokens.match(value.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            if self.tokens.doubts(value.strip()):
                self._refused(head, "token_wrong", "a token of an earlier daemon, which waits to be confirmed")
                raise Refusal(HTTPStatus.UNAUTHORIZED, DOUBTED, headers={"WWW-Authenticate": "Bearer"})
            self._refused(head, "token_wrong", "a wrong token")
            raise self._unauthorized(self._attempts.failed(self.address(head)))
        return found

    def profile(self, visitor: Principal, wanted: str | None) -> str:
        """The profile of a request. A token for others raises Refusal (403), even if the profile is unknown."""
        if visitor.profiles is None:
            return DEFAULT_PROFILE if wanted is None else wanted
        found = next((each for each in visitor.profiles if wanted in {None, each}), None)
        if found is None:
            self._count("profile")
            text = f"this token is not for that profile. It is for: {', '.join(visitor.profiles)}\n"
            raise Refusal(HTTPStatus.FORBIDDEN, text)
        return found

    def crowded(self, head: Head, text: str) -> Refusal:
        """Report to operators that all places are taken, and return the refusal."""
        self._refused(head, "places", text)
        headers = {"retry-after": "10"}
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{text}; try again later\n", headers=headers)

    def cors(self, head: Head) -> Mapping[str, str]:
        """The headers that let an allowed page read the response."""
        origin = head.headers.get("origin")
        return {} if origin is None or not self._may_use(origin) else allowances(head, origin)

    def address(self, head: Head) -> str:
        """The client's address: behind trusted proxies, the last forwarded address that is not a proxy's."""
        found = head.peer
        if not self._proxies or not self._is_proxy(found):
            return found
        for each in reversed(head.headers.get("x-forwarded-for", "").split(",")):
            forwarded = numeric(each.strip()) or numeric(split_authority(each.strip())[0] or "")
            if forwarded is None:
                break  # anything further left may be forged
            found = str(forwarded)
            if not self._is_proxy(found):
                break
        return found

    def is_private(self, head: Head) -> bool:
        """Whether a trusted proxy says in `X-Forwarded-Proto` that the client used TLS."""
        scheme = head.headers.get("x-forwarded-proto", "").rpartition(",")[2]  # the nearest proxy's word
        return self._is_proxy(head.peer) and scheme.strip().lower() == "https"

    def _is_ours(self, host: str) -> bool:
        """Whether a Host is a configured name, or an address, which DNS rebinding cannot use."""
        name, _ = split_authority(host)
        if name is None or "," in name:
            return False
        name = name.lower().removesuffix(".")
        return name == "localhost" or name in self._hosts or numeric(name) is not None

    def _may_use(self, origin: str) -> bool:
        known = origin_of(origin)
        if known in self._origins:
            return True
        scheme, _, authority = known.partition("://")
        host, _ = split_authority(authority)
        return self._loopback and scheme in {"http", "https"} and host is not None and is_loopback(host)

    def _is_proxy(self, peer: str) -> bool:
        address = numeric(peer)
        return address is not None and any(address in network for network in self._proxies)

    def _forbidden(self, head: Head, reason: str, what: str, key: str) -> Refusal:
        self._refused(head, reason, f"{what}, which is not in {key}")
        return Refusal(
            HTTPStatus.FORBIDDEN,
            f"this {reason} is not allowed: {key} in mcpd's configuration names the allowed ones\n",
        )

    def _unauthorized(self, delay: float) -> Refusal:
        headers = {"WWW-Authenticate": "Bearer"}
        return Refusal(HTTPStatus.UNAUTHORIZED, self._wanted, headers=headers, delay=delay)

    def _refused(self, head: Head, reason: str, text: str) -> None:
        self._count(reason)
        self._attempts.say(self.address(head), text)


def _shown(value: str) -> str:
    return visible(quoted(value)) if value else "(none)"
