"""The states that mcpd gives to clients of MCP 2026-07-28 whose calls wait for their input.

A state is a secret that is good for one request. It is known by its digest, and counts only together with the
digest of its owner: the client that it was given to, and the request that it belongs to. There are so many at
a time, and each for so long.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

PREFIX = "mcpd.parked."
"""How our states begin, and no server's: those of the SDKs begin with a version or are base64."""

STATE_BYTES = 32
"""Random bytes of a state: 256 bits cannot be guessed."""

TTL = 600.0
"""Seconds that a client has for its answers: as long as a call may take in all unless configured otherwise
(`timeouts.callMax`), and as the SDK of MCP has it."""

CHECK_SECONDS = 1.0
"""Seconds between looks for what has expired, while there are any states."""

MAX_STATES = 1024
"""Calls of all clients that wait for input: as many as there may be clients (`limits.connections`)."""

MAX_OF_CLIENT = 64
"""Those of one client; over HTTP all that show the same token and name no session are one."""

MAX_OF_SERVER = 32
"""Those of one server: half of the calls that it may have in flight unless configured otherwise, since each
keeps its place there."""

MAX_HELD_BYTES = 64 * 1024 * 1024
"""Bytes of answers that came while their calls waited: four of the largest that a server may send."""


class AwaitsClient(Protocol):
    """A call that waits for its client to bring its state back."""

    owner: bytes
    """A digest of who may bring it, and with what request."""
    client: Hashable
    """Whose it is, as far as anything tells clients apart."""
    server: str | None
    """The server that waits; None if mcpd itself does."""
    held: int
    """The bytes of the answer that has come meanwhile."""

    @property
    def resume(self) -> Callable[..., bool]:
        """Goes on with the client's new call and the responses that it brings; returns whether that is all."""

    def give_up(self, reason: str) -> None:
        """End it: its client will not come back."""


class _Given(msgspec.Struct, frozen=True):
    waiting: AwaitsClient
    until: float
    """When it expires, in seconds on trio's clock."""


class RequestStates:
    """All states that were given out and are still good."""

    def __init__(self) -> None:
        """Begin without any."""
        self._given: dict[bytes, _Given] = {}
        """By their digests, oldest first."""
        self._any = trio.Event()

    def __len__(self) -> int:
        return len(self._given)

    def give(self, waiting: AwaitsClient) -> str | None:
        """A state for a call; None if too many are waiting already."""
        others = self.waiting()
        if (
            len(others) >= MAX_STATES
            or sum(each.client == waiting.client for each in others) >= MAX_OF_CLIENT
            or sum(each.server == waiting.server is not None for each in others) >= MAX_OF_SERVER
        ):
            return None
        state = PREFIX + secrets.token_urlsafe(STATE_BYTES)
        self._given[_digest(state)] = _Given(waiting, trio.current_time() + TTL)
        self._any.set()
        return state

    def waiting(self) -> list[AwaitsClient]:
        """Everything that waits for a client, oldest first."""
        return [each.waiting for each in self._given.values()]

    def find(self, state: str, owner: bytes) -> AwaitsClient | None:
        """The call that a state stands for; None if it is not good for that owner, for whatever reason."""
        given = self._given.get(_digest(state))
        if given is None or trio.current_time() >= given.until:
            return None
        return given.waiting if hmac.compare_digest(given.waiting.owner, owner) else None

    def use(self, state: str) -> None:
        """Use a state up."""
        del self._given[_digest(state)]

    def may_hold(self, size: int) -> bool:
        """Whether an answer of so many bytes may be kept until its client is back."""
        return sum(each.waiting.held for each in self._given.values()) + size <= MAX_HELD_BYTES

    def leave(self, client: Hashable) -> None:
        """End what waits for a client that is gone."""
        for digest, given in list(self._given.items()):
            if given.waiting.client == client:
                self._give_up(digest, "the client is gone")

    async def run(self, flush: Callable[[], None]) -> None:
        """End what has expired, until cancelled; `flush` writes the frames that this queues."""
        while True:
            await self._any.wait()
            self._any = trio.Event()
            while self._given:
                await trio.sleep(CHECK_SECONDS)
                self.expire()
                flush()

    def expire(self) -> None:
        """End what has expired by now."""
        now = trio.current_time()
        for digest, given in list(self._given.items()):
            if now < given.until:
                break
            self._give_up(digest, f"the client has not answered within {TTL:g} s")

    def _give_up(self, digest: bytes, reason: str) -> None:
        self._given.pop(digest).waiting.give_up(reason)


def _digest(state: str) -> bytes:
    return hashlib.sha256(state.encode(errors="replace")).digest()
