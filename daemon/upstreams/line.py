"""The line of calls that wait for a place at one server: clients take turns, of one call or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from daemon.ports import CallToSend
    from daemon.upstreams.admitted import Admitted


class InLine(msgspec.Struct, frozen=True, eq=False):
    """A call in line, and since when it is (seconds on the clock)."""

    ticket: int
    client: int
    call: CallToSend
    admitted: Admitted
    since: float


class Line:
    """Calls in line: round-robin between clients, first come, first served within one."""

    def __init__(self) -> None:
        """Begin empty."""
        self.clients: dict[int, int] = {}
        """The client of each ticket in line."""
        self._turns: dict[int, dict[int, InLine]] = {}
        """The calls of each client that has any, in the order of the clients' turns."""

    def places_of(self, client: int) -> int:
        """How many calls of a client are in line."""
        return len(self._turns.get(client, ()))

    def all(self) -> list[InLine]:
        """Every call in line."""
        return [place for places in self._turns.values() for place in places.values()]

    def join(self, place: InLine) -> None:
        """Add a call, behind the others of its client."""
        self.clients[place.ticket] = place.client
        self._turns.setdefault(place.client, {})[place.ticket] = place

    def leave(self, ticket: int) -> InLine | None:
        """Remove a call; None if it is not in line."""
        client = self.clients.pop(ticket, None)
        if client is None:
            return None
        places = self._turns[client]
        place = places.pop(ticket)
        if not places:
            del self._turns[client]
        return place

    def is_all_of(self, asker: object) -> bool:
        """Whether only one client waits, and it is this one (`Exchange.asker`)."""
        return all(place.admitted.asker is asker for place in self.all())

    def next(self, most: int = 1) -> list[InLine]:
        """Remove the oldest calls of the client whose turn it is; its next turn is after all other clients'.

        They have one asker, too: a connection may be shared by clients that nothing else tells apart.
        """
        client = next(iter(self._turns))
        places = self._turns.pop(client)
        found: list[InLine] = []
        for place in list(places.values())[:most]:
            if found and place.admitted.asker is not found[0].admitted.asker:
                break
            found.append(place)
            del places[place.ticket], self.clients[place.ticket]
        if places:
            self._turns[client] = places
        return found

    def crowd_out(self, client: int) -> InLine | None:
        """Remove the newest call of the client with the most; None if that would be no fairer than before."""
        longest = max(self._turns.values(), key=len, default=None)
        if longest is None or self.places_of(client) + 1 >= len(longest):
            return None
        return self.leave(next(reversed(longest)))
