"""The client's open requests: those sent to the daemon, and those that wait for a daemon."""

from __future__ import annotations

MAX_OPEN = 10_000  # Open requests above which the client is not read: 3 MB of memory. Real clients have dozens.

KEPT_CALL_BYTES = 256 * 1024  # bytes of open requests above which no call is kept: calls are seldom sent again

KEPT_BYTES = 512 * 1024
"""Bytes above which no request is kept; calls leave room for others. Others fail with the daemon."""

CALL = b'"tools/call"'
INITIALIZE = b'"initialize"'
LISTEN = b'"subscriptions/listen"'
PING = b'"ping"'
DISCOVER = b'"server/discover"'
TOOLS_LIST = b'"tools/list"'
PROMPTS_LIST = b'"prompts/list"'
RESOURCES_LIST = b'"resources/list"'
TEMPLATES_LIST = b'"resources/templates/list"'
COMPLETE = b'"completion/complete"'
SET_LEVEL = b'"logging/setLevel"'
SUBSCRIBE = b'"resources/subscribe"'
UNSUBSCRIBE = b'"resources/unsubscribe"'

READING = frozenset({PROMPTS_LIST, RESOURCES_LIST, TEMPLATES_LIST, b'"prompts/get"', b'"resources/read"'})
"""Methods that read prompts and resources."""

SETTING = frozenset({SET_LEVEL, SUBSCRIBE, UNSUBSCRIBE})
"""Methods that change only what the daemon knows of this client."""

WITHOUT_EFFECT = READING | SETTING | {INITIALIZE, LISTEN, PING, DISCOVER, TOOLS_LIST, COMPLETE}
"""Methods without lasting effects: nobody notices if the next daemon is asked again."""

WAIT_SECONDS = 30.0
"""Seconds to wait for a daemon. A restart takes 2 s, a system update perhaps 20 s; clients wait 60 s."""

WAITING_BYTES = 1024 * 1024
"""Bytes of all waiting lines, counting `EACH_BYTES` for each; above it, a request is refused at once."""

EACH_BYTES = 512  # overhead of a waiting line, which bounds short lines at two thousand


class Item:
    """A line of the client that is not answered yet."""

    __slots__ = ("end", "id", "line", "method", "until")

    def __init__(
        self, request_id: bytes, method: bytes | None, line: bytes, until: float, end: int = 0
    ) -> None:
        self.id = request_id  # empty if no answer is expected
        self.method = method
        self.line = line  # empty if it was sent and not kept
        self.until = until  # its deadline (seconds, monotonic); 0 if it has never waited for a daemon
        self.end = end  # offset of its end among the client's bytes, once sent


class OpenRequests:
    """The requests that were sent and are not answered, by id."""

    def __init__(self) -> None:
        self.calls: dict[bytes, tuple[bytes, int]] = {}
        """Calls, the most frequent requests, by id: the line, empty if not kept, and the offset of its end."""
        self.kept = 0  # bytes of kept lines
        self._open: dict[bytes, Item] = {}

    def __len__(self) -> int:
        return len(self._open) + len(self.calls)

    def note(
        self,
        request_id: bytes,
        method: bytes | None,
        end: int,
        *,
        line: bytes = b"",
        until: float = 0.0,
    ) -> None:
        """Record a request that is being sent. If its id is in use, the earlier request is forgotten.

        `end` is the offset of its end among the client's bytes; `until` is its deadline (seconds, monotonic).
        """
        self.settle(request_id)
        most = KEPT_CALL_BYTES if method == CALL else KEPT_BYTES if method in WITHOUT_EFFECT else 0
        again = line if self.kept + len(line) <= most else b""
        self.kept += len(again)
        self._open[request_id] = Item(request_id, method, again, until, end)

    def note_call(self, request_id: bytes, end: int, line: bytes) -> None:
        """Record a `tools/call` that is being sent, as `note` does."""
        if request_id in self._open or request_id in self.calls:
            self.settle(request_id)
        again = line if self.kept + len(line) <= KEPT_CALL_BYTES else b""
        self.kept += len(again)
        self.calls[request_id] = again, end

    def settle(self, request_id: bytes) -> Item | None:
        """Close a request that was answered or cancelled, and return it if it was open."""
        call = self.calls.pop(request_id, None)
        entry = self._open.pop(request_id, None) if call is None else _call(request_id, *call)
        if entry is not None:
            self.kept -= len(entry.line)
        return entry

    def take(self, gone: int, unsent: set[bytes]) -> tuple[list[Item], dict[bytes, Item]]:
        """Hand over all open requests of a daemon that has ended and may have had `gone` bytes.

        `unsent` are ids that it has reported as not forwarded. Returns the requests that it may have executed,
        in order, and by id those that it has certainly not.
        """
        calls = (_call(request_id, *call) for request_id, call in self.calls.items())
        entries = sorted((*self._open.values(), *calls), key=lambda entry: entry.end)
        self._open, self.calls, self.kept = {}, {}, 0
        doubtful = [entry for entry in entries if entry.end <= gone and entry.id not in unsent]
        return doubtful, {entry.id: entry for entry in entries if entry.end > gone or entry.id in unsent}


def _call(request_id: bytes, line: bytes, end: int) -> Item:
    return Item(request_id, CALL, line, 0.0, end)


class Waiting:
    """Lines that wait for a daemon, oldest first."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._size = 0

    def put(self, item: Item) -> bool:
        """Keep a line. Returns False if there is no room."""
        size = len(item.line) + EACH_BYTES
        if self._size + size > WAITING_BYTES:
            return False
        self._size += size
        self._items.append(item)
        return True

    def cancel(self, request_id: bytes) -> None:
        """Forget a request."""
        self._keep([item for item in self._items if item.id != request_id])

    def take(self) -> list[Item]:
        """Hand over all lines."""
        items = self._items
        self._keep([])
        return items

    def expired(self, now: float) -> list[Item]:
        """Hand over the lines that have waited long enough."""
        expired = [item for item in self._items if item.until <= now]
        if expired:
            self._keep([item for item in self._items if item.until > now])
        return expired

    def deadline(self) -> float | None:
        """The next deadline (seconds, monotonic); None if nothing waits."""
        return min((item.until for item in self._items), default=None)

    def _keep(self, items: list[Item]) -> None:
        self._items = items
        self._size = sum(len(item.line) + EACH_BYTES for item in items)
