"""What the client has sent while there was no daemon: within a bound, and not for ever."""

from __future__ import annotations

WAIT_SECONDS = 30.0
"""How long a request waits for a daemon. A restart takes one or two seconds, an update of the whole machine's
packages perhaps twenty; clients give a request up after 60."""

WAITING_BYTES = 1024 * 1024
"""What waits, together with `EACH_BYTES` for each: over it, a request is refused at once."""

EACH_BYTES = 512
"""What a waiting line costs besides its bytes: so short ones have a bound as well, of two thousand."""


class Item:
    """A line that waits."""

    __slots__ = ("id", "line", "method", "until")

    def __init__(self, request_id: bytes | None, method: bytes | None, line: bytes, until: float) -> None:
        self.id = request_id
        """None: nobody waits for an answer."""
        self.method = method
        self.line = line
        self.until = until
        """When it has waited long enough (seconds, monotonic)."""


class Waiting:
    """Lines in the order in which they came."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._size = 0

    def put(self, item: Item) -> bool:
        """Keep a line. False: there is no room for it."""
        size = len(item.line) + EACH_BYTES
        if self._size + size > WAITING_BYTES:
            return False
        self._size += size
        self._items.append(item)
        return True

    def cancel(self, request_id: bytes) -> None:
        """Forget a request, if it is here."""
        self._keep([item for item in self._items if item.id != request_id])

    def take(self) -> list[Item]:
        """Hand over everything."""
        items = self._items
        self._keep([])
        return items

    def expired(self, now: float) -> list[Item]:
        """Hand over what has waited long enough."""
        expired = [item for item in self._items if item.until <= now]
        if expired:
            self._keep([item for item in self._items if item.until > now])
        return expired

    def deadline(self) -> float | None:
        """When the next one has waited long enough (seconds, monotonic); None: nothing waits."""
        return min((item.until for item in self._items), default=None)

    def _keep(self, items: list[Item]) -> None:
        self._items = items
        self._size = sum(len(item.line) + EACH_BYTES for item in items)
