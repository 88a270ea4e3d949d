"""A call that was admitted to a server: its exchange, which frees its place when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from daemon.errors import RequestTooLarge

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.errors import CallError
    from daemon.wire.envelope import Buffer
    from daemon.wire.requests import Exchange, PeerRequest


class Places(Protocol):
    """The places at one server, as each call that has one needs them (`upstreams.admission`)."""

    server: str
    """The name of the server."""
    output_bytes: int | None
    """Bytes of the longest answer; None is no limit."""
    asked: dict[PeerRequest, set[int]]
    """The server's open requests, with the tickets of the calls that may have caused each."""

    def ends(self, ticket: int) -> None:
        """End what the server has asked on account of this call alone: its result, if any, comes next."""

    def done(self, ticket: int) -> None:
        """Free the place of a call that has ended."""


class Admitted(Struct, eq=False):
    """An exchange that frees its place when it ends."""

    places: Places
    ticket: int
    exchange: Exchange
    key: int = 0
    """The key of its request at the connection, once it is sent."""

    def answered(self, result: Buffer) -> None:
        """Pass the result on."""
        if self.places.asked:
            self.places.ends(self.ticket)
        self.exchange.answered(result)
        self.places.done(self.ticket)

    def refused(self, error: Buffer) -> None:
        """Pass the server's error on."""
        self.places.ends(self.ticket)
        self.exchange.refused(error)
        self.places.done(self.ticket)

    def lost(self, error: CallError) -> None:
        """Pass the loss on."""
        self.places.ends(self.ticket)
        self.exchange.lost(error)
        self.places.done(self.ticket)

    def was_not_sent(self, error: CallError) -> None:
        """Pass on that the call left the line unsent; it had no place to free."""
        self.exchange.lost(error)

    def progressed(self, params: dict[str, Raw]) -> None:
        """Pass progress on."""
        self.exchange.progressed(params)

    def asked(self, request: PeerRequest) -> None:
        """Pass a request on."""
        self.exchange.asked(request)

    def notified(self, method: str, params: Raw) -> None:
        """Pass a notification on."""
        self.exchange.notified(method, params)

    @property
    def spared_until(self) -> float:
        """Until when it is not given up."""
        return self.exchange.spared_until

    @property
    def asker(self) -> object:
        """Who has made the call."""
        return self.exchange.asker

    @property
    def answerable(self) -> frozenset[str]:
        """What its client can answer."""
        return self.exchange.answerable


class SizeLimited(Admitted):
    """An admitted call whose answer must not be larger than `limits.output_bytes`."""

    def answered(self, result: Buffer) -> None:
        """Pass the result on, or the error that it is too large."""
        error = self._too_large(len(result))
        if error is None:
            super().answered(result)
        else:
            self.lost(error)

    def refused(self, error: Buffer) -> None:
        """Pass the error on, or that it is too large: the limit holds for every answer."""
        too_large = self._too_large(len(error))
        if too_large is None:
            super().refused(error)
        else:
            self.lost(too_large)

    def _too_large(self, size: int) -> RequestTooLarge | None:
        """The error in place of an answer of `size` bytes; None if it is within the limit."""
        limit, server = self.places.output_bytes, self.places.server
        if limit is None or size <= limit:
            return None
        text = (
            f"the answer has {size} bytes, over the limit of {limit} for server {server}"
            " (limits.outputBytes). The call ran; ask for less at once."
        )
        return RequestTooLarge(text, server=server, bytes=size, limit=limit)
