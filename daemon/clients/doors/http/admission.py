"""Admission over HTTP: which Host and Origin a request may name, and who shows a token that counts.

A web page whose own name was made to resolve to this machine (DNS rebinding) is known by the Host that its
browser sends, any other page by its Origin; both are looked at before the body is read. Whoever shows wrong
tokens is answered later and later, by address.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from http import HTTPStatus
from ipaddress import IPv6Address, ip_network
from typing import TYPE_CHECKING

import msgspec
from loguru import logger

from daemon.clients.doors.http.asgi import is_own_page
from daemon.clients.doors.http.exchange import Refusal
from daemon.config.config_model import PORTS
from daemon.config.listen import DEFAULT_PROFILE, is_loopback, numeric, split_authority
from daemon.kit.wording import quoted
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.clients.client import Principal
    from daemon.clients.doors.http.reading import Head
    from daemon.clients.doors.http.valid_tokens import Tokens
    from daemon.config.listen import HttpListen


FIRST_DELAY, LONGEST_DELAY = 0.25, 5.0
"""Seconds that the answer to a second wrong token is held back, doubled with each further one; and at most. The
first is answered at once: a client with an old token is no attacker."""

FORGET_SECONDS = 600.0
"""Seconds without a wrong token after which an address begins anew."""

SAY_SECONDS = 60.0
"""Seconds between two log lines about one address."""

MAX_ADDRESSES = 4096
"""Most addresses that are remembered, the latest: 1 MiB. Who has more begins anew with each, and has as
much to guess."""

NEIGHBOURS = 64
"""Bits of an IPv6 address that count: whoever has one has all that begin with these (RFC 6177)."""


class Attempt(msgspec.Struct):
    """What is remembered of one address."""

    failures: int = 0
    """Wrong tokens in a row."""
    failed_at: float = 0.0
    """When it showed the last of them."""
    said_at: float | None = None
    """When the log was last told of it."""
    unsaid: int = 0
    """Refusals that the log was not told of since."""


class Attempts:
    """Remembers who was refused."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start with nobody.

        Args:
            clock: returns monotonic seconds.
        """
        self._clock = clock
        self._known: OrderedDict[str, Attempt] = OrderedDict()

    def __len__(self) -> int:
        """How many addresses are remembered."""
        return len(self._known)

    def failed(self, address: str) -> float:
        """Note a wrong token; returns the seconds that its answer is held back."""
        attempt, now = self._of(address), self._clock()
        if now - attempt.failed_at > FORGET_SECONDS:
            attempt.failures = 0
        attempt.failures += 1
        attempt.failed_at = now
        if attempt.failures == 1:
            return 0.0
        # Without the bound of the exponent, a patient guesser would make the number too large to be one.
        doubled = FIRST_DELAY * 2.0 ** min(attempt.failures - 2, 16)
        return min(doubled, LONGEST_DELAY)

    def say(self, address: str, text: str) -> None:
        """Log a refusal, at most once a minute for each address."""
        attempt, now = self._of(address), self._clock()
        if attempt.said_at is not None and now - attempt.said_at < SAY_SECONDS:
            attempt.unsaid += 1
            return
        more = f" (and {attempt.unsaid} refusals since this was last said)" if attempt.unsaid else ""
        attempt.said_at, attempt.unsaid = now, 0
        logger.warning("http: refused {}: {}{}", address, text, more)

    def _of(self, address: str) -> Attempt:
        key = neighbourhood(address)
        attempt = self._known.get(key)
        if attempt is None:
            attempt = self._known[key] = Attempt()
            if len(self._known) > MAX_ADDRESSES:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return attempt


def neighbourhood(address: str) -> str:
    """The address as it is counted: all of an IPv4 address, the first half of an IPv6 one."""
    number = numeric(address.partition("%")[0])
    if isinstance(number, IPv6Address):
        return str(ip_network((int(number), NEIGHBOURS), strict=False))
    return address if number is None else str(number)


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


WANTED = "show a bearer token, in `Authorization`: on the daemon's machine `mcpd token` prints one\n"
"""Said without a token and with a wrong one alike, so that nobody learns which he has."""


DOUBTED = (
    "an earlier daemon made this token, and nothing vouches for it since the daemon has started again: on the"
    " daemon's machine `mcpd token confirm NAME` (or `--default`) lets it in\n"
)
"""Said to whoever shows such a token, and to nobody else."""


class HttpAdmission:
    """Decides who may come in through one listener."""

    def __init__(
        self,
        listen: HttpListen,
        tokens: Tokens,
        *,
        count: Callable[[str], None] = lambda _reason: None,
        loopback: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with nobody known.

        Args:
            listen: the configuration.
            tokens: the tokens that count.
            count: counts a refusal, by its reason (`counting.tally.HTTP_REFUSALS`).
            loopback: whether only this machine reaches the listener; None: what the configured address says.
            clock: returns monotonic seconds.
        """
        host, _ = split_authority(listen.address)
        self._loopback = bool(host) and is_loopback(str(host)) if loopback is None else loopback
        self._hosts = frozenset(each.lower().removesuffix(".") for each in listen.hosts)
        self._origins = frozenset(map(origin_of, listen.origins))
        self._proxies = tuple(ip_network(each, strict=False) for each in listen.trusted_proxies)
        self.tokens = tokens
        """The tokens that count."""
        self._count = count
        self._attempts = Attempts(clock)
        self._last_host: str | None = None
        """The Host that was let in last: most requests name the same one."""

    def greet(self, head: Head) -> None:
        """Look at Host and Origin, before the body is read.

        Raises:
            Refusal: 403, one of them is not ours.
        """
        host = head.headers.get("host", "")
        if host != self._last_host:
            if not self._is_ours(host):
                raise self._forbidden(head, "host", f"Host {_shown(host)}", "listen.http.hosts")
            self._last_host = host
        origin = head.headers.get("origin")
        if origin is not None and not self._may_use(origin) and not is_own_page(head, origin):
            raise self._forbidden(head, "origin", f"Origin {_shown(origin)}", "listen.http.origins")

    def visitor(self, head: Head) -> Principal:
        """Who makes a request, by the token in its `Authorization` and nothing else.

        Raises:
            Refusal: 401, there is no token, or a wrong one.
        """
        authorization = head.headers.get("authorization")
        if authorization is None:
            self._refused(head, "token_missing", "a request without a token")
            raise _unauthorized(delay=0.0)
        scheme, _, value = authorization.partition(" ")
        found = self.tokens.match(value.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            if self.tokens.doubts(value.strip()):
                self._refused(head, "token_wrong", "a token of an earlier daemon, which waits to be confirmed")
                raise Refusal(HTTPStatus.UNAUTHORIZED, DOUBTED, headers={"WWW-Authenticate": "Bearer"})
            self._refused(head, "token_wrong", "a wrong token")
            raise _unauthorized(self._attempts.failed(self.address(head)))
        return found

    def profile(self, visitor: Principal, wanted: str | None) -> str:
        """The profile that a request gets.

        Args:
            visitor: who makes it.
            wanted: the profile that its path names; None if it names none.

        Raises:
            Refusal: 403, the token is not for this profile, whether or not there is one of that name.
        """
        if visitor.profiles is None:
            return DEFAULT_PROFILE if wanted is None else wanted
        found = next((each for each in visitor.profiles if wanted in {None, each}), None)
        if found is None:
            self._count("profile")
            text = f"this token is not for that profile. It is for: {', '.join(visitor.profiles)}\n"
            raise Refusal(HTTPStatus.FORBIDDEN, text)
        return found

    def crowded(self, head: Head, text: str) -> Refusal:
        """The refusal of a request for which there is no place, told to operators."""
        self._refused(head, "places", text)
        headers = {"retry-after": "10"}
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{text}; try again later\n", headers=headers)

    def cors(self, head: Head) -> Mapping[str, str]:
        """The headers that let a browser's page read the response, for a request that `greet` has let in."""
        origin = head.headers.get("origin")
        return {} if origin is None or not self._may_use(origin) else allowances(head, origin)

    def address(self, head: Head) -> str:
        """The client's address: behind trusted proxies, the last one that they have not added themselves."""
        found = head.peer
        if not self._proxies or not self._is_proxy(found):
            return found
        for each in reversed(head.headers.get("x-forwarded-for", "").split(",")):
            told = numeric(each.strip()) or numeric(split_authority(each.strip())[0] or "")
            if told is None:
                break  # what stands before it can be anybody's word
            found = str(told)
            if not self._is_proxy(found):
                break
        return found

    def is_private(self, head: Head) -> bool:
        """Whether a request came by TLS to a trusted proxy, which says so in `X-Forwarded-Proto`."""
        told = head.headers.get("x-forwarded-proto", "").rpartition(",")[2]  # what the nearest has added
        return self._is_proxy(head.peer) and told.strip().lower() == "https"

    def _is_ours(self, host: str) -> bool:
        """Whether a Host is a known name, or an address: nobody can make that resolve to this machine."""
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
        self._refused(head, reason, f"{what}, which {key} does not have")
        return Refusal(HTTPStatus.FORBIDDEN, f"this {reason} is not one of the daemon's: {key} names them\n")

    def _refused(self, head: Head, reason: str, text: str) -> None:
        self._count(reason)
        self._attempts.say(self.address(head), text)


def _unauthorized(delay: float) -> Refusal:
    return Refusal(HTTPStatus.UNAUTHORIZED, WANTED, headers={"WWW-Authenticate": "Bearer"}, delay=delay)


def _shown(value: str) -> str:
    return visible(quoted(value)) if value else "(none)"
