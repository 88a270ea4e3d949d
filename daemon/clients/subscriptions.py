"""The notifications that one client is told without having asked something, and its subscriptions to them.

A client that shook hands is told of every change. One of MCP 2026-07-28 is told what it asked for in a
`subscriptions/listen`, which stays open, under the id of that request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon import protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daemon.catalog.kinds import ListOf
    from daemon.wire.outbox import Outbox
    from daemon.wire.peer import Peer

MAX_SUBSCRIPTIONS = 16
"""Open `subscriptions/listen` of one client: each gets every notification that it asked for, and one is all
that a client needs."""


class Subscriptions:
    """What one client has subscribed to."""

    def __init__(self, peer: Peer, outbox: Outbox) -> None:
        """Begin with a client that is told nothing.

        Args:
            peer: the client's end, which is notified.
            outbox: flushed after each notification.
        """
        self.handshaken = False
        """Whether the client has sent `initialize`: then it is notified without having subscribed."""
        self._peer = peer
        self._outbox = outbox
        self.open: dict[bytes, Mapping[str, object]] = {}
        """By their ids, what they were promised; always the same object, which each call is compared with."""

    @property
    def is_full(self) -> bool:
        """Whether the client has as many subscriptions as it may have."""
        return len(self.open) >= MAX_SUBSCRIPTIONS

    def add(self, request_id: bytes, honoured: Mapping[str, object]) -> None:
        """Tell this subscription, too.

        Args:
            request_id: the id of the `subscriptions/listen`, raw.
            honoured: the members of its filter that it was promised (MCP, `SubscriptionFilter`).
        """
        self.open[request_id] = honoured

    def end(self, request_id: bytes) -> None:
        """End a subscription, if there is one with this id."""
        self.open.pop(request_id, None)

    def end_all(self) -> None:
        """Answer all subscriptions: the daemon ends them (MCP 2026-07-28)."""
        ended = list(self.open)
        self.open.clear()
        for each in ended:
            self._peer.answer(each, protocol.of_subscription(each, resultType="complete"))
        self._outbox.flush()

    def hears(self, wish: str) -> bool:
        """Whether the client is told of what this member of a filter asks for."""
        return self.handshaken or any(self.asking(wish))

    def asking(self, wish: str) -> Iterator[bytes]:
        """The ids of the subscriptions that were promised what this member of a filter asks for."""
        return (each for each, honoured in self.open.items() if honoured.get(wish))

    def announce(self, changed: ListOf) -> None:
        """Tell the client that a list has changed, wherever it is told that."""
        if self.handshaken:
            self._peer.notify(changed.changed)
        for each in self.asking(changed.wish):
            self._peer.notify(changed.changed, protocol.of_subscription(each), each)
        self._outbox.flush()
