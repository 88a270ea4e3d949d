"""Calls that a user has agreed to and whose server wants them again, of clients that repeat them themselves.

A server of MCP 2026-07-28 that needs something answers with that, and a client of the same revision makes its
request again. That is the same call to its user, who was asked about it once.
"""

from __future__ import annotations

import trio

from daemon.clients.request_states import TTL
from daemon.kit.latest import keep_latest

MAX_AGREED = 1024
"""Calls that may be repeated once: as many as may wait for their clients' input."""


class AgreedCalls:
    """The calls of all clients that may each be repeated once without asking."""

    def __init__(self) -> None:
        """Begin without any."""
        self._agreed: dict[bytes, tuple[tuple[str, ...], float]] = {}

    def __len__(self) -> int:
        return len(self._agreed)

    def note(self, owner: bytes, tool: tuple[str, ...]) -> None:
        """Note that a call was answered with a need for input.

        Args:
            owner: the digest of who has called what with what (`parking.owner_of`).
            tool: what its user has agreed to.
        """
        keep_latest(self._agreed, owner, (tool, trio.current_time() + TTL), MAX_AGREED)

    def take(self, owner: bytes, tool: tuple[str, ...]) -> bool:
        """Whether such a call may be repeated, which is then used up."""
        known, until = self._agreed.pop(owner, ((), 0.0))
        return known == tool and trio.current_time() < until
