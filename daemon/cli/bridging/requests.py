"""The requests of the client that the daemon has and has not answered."""

from __future__ import annotations

MAX_OPEN = 10_000
"""Open requests at which the client is not read further: 3 MB here. Real clients have dozens."""

KEPT_BYTES = 256 * 1024
"""Of requests that can be asked again; over it they are answered instead, when the daemon goes. They are short:
what has no effect has few parameters."""

CALL = b'"tools/call"'
INITIALIZE = b'"initialize"'
LISTEN = b'"subscriptions/listen"'
PING = b'"ping"'
DISCOVER = b'"server/discover"'
TOOLS_LIST = b'"tools/list"'

WITHOUT_EFFECT = frozenset({INITIALIZE, LISTEN, PING, DISCOVER, TOOLS_LIST})
"""What changes nothing, so that another daemon may be asked again without anybody noticing."""


class Open:
    """An open request."""

    __slots__ = ("end", "id", "line", "method", "until")

    def __init__(
        self, request_id: bytes, method: bytes | None, end: int, line: bytes | None, until: float | None
    ) -> None:
        self.id = request_id
        self.method = method
        self.end = end
        """How many bytes the client had sent with it."""
        self.line = line
        """The request, if it is to be asked again; else None."""
        self.until = until
        """When it has waited long enough, if it has waited for a daemon before (seconds, monotonic)."""


class OpenRequests:
    """Open requests, by id."""

    def __init__(self) -> None:
        self.calls: dict[bytes, int] = {}
        """Calls that are noted in short, because there are so many: by id, how many bytes the client had sent
        with each. None of them is in `_open`."""
        self._open: dict[bytes, Open] = {}
        self._kept = 0

    def __len__(self) -> int:
        return len(self._open) + len(self.calls)

    def note(
        self,
        request_id: bytes,
        method: bytes | None,
        end: int,
        *,
        line: bytes = b"",
        until: float | None = None,
    ) -> None:
        """A request is on its way.

        Args:
            request_id: its id, as it was written; a client that uses one twice at a time loses the first.
            method: its method, quoted; None if it is not known.
            end: how many bytes the client had sent with it.
            line: the whole of it, empty if that was not kept.
            until: when it has waited long enough (seconds, monotonic).
        """
        self.settle(request_id)
        again = None
        if method in WITHOUT_EFFECT and line and self._kept + len(line) <= KEPT_BYTES:
            again = line
            self._kept += len(line)
        self._open[request_id] = Open(request_id, method, end, again, until)

    def note_call(self, request_id: bytes, end: int) -> None:
        """A `tools/call` is on its way; see `note`."""
        if request_id in self._open:
            self.settle(request_id)
        self.calls[request_id] = end

    def settle(self, request_id: bytes) -> Open | None:
        """A request is answered or cancelled. Returns it, if it was open."""
        end = self.calls.pop(request_id, None)
        if end is not None:
            return Open(request_id, CALL, end, None, None)
        entry = self._open.pop(request_id, None)
        if entry is not None and entry.line is not None:
            self._kept -= len(entry.line)
        return entry

    def take(self, gone: int) -> tuple[list[Open], dict[bytes, Open]]:
        """The daemon is gone: hand over everything that is open.

        Args:
            gone: how many of the client's bytes it may have got.

        Returns:
            What it may have executed, in the order it was asked, and by id what it certainly has not, because
            it did not get the end of it.
        """
        calls = (Open(request_id, CALL, end, None, None) for request_id, end in self.calls.items())
        entries = sorted((*self._open.values(), *calls), key=lambda entry: entry.end)
        self._open, self.calls, self._kept = {}, {}, 0
        doubtful = [entry for entry in entries if entry.end <= gone]
        return doubtful, {entry.id: entry for entry in entries if entry.end > gone}
