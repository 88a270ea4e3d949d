"""Failed attempts by address: how long the next answer is held back, and what the log says of them."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_network
from typing import TYPE_CHECKING

import msgspec
from loguru import logger

from daemon.config.listen import numeric

if TYPE_CHECKING:
    from collections.abc import Callable

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
