"""Which lines of servers' logs each client gets, and what is asked of the servers for it (MCP, logging).

Until 2025-11-25 a client sets a level once, and gets the lines of all servers of its profile from that level
on. One that has set none gets only those that come with its own calls: what servers say to others is not for
it. Since 2026-07-28 each request names a level, and what it lets through comes with that request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from daemon.protocol import LOG_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from daemon.clients.member import Subscriber
    from daemon.wire.requests import Exchange

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""All levels, the most talkative first (RFC 5424)."""

_RANKS = {level: rank for rank, level in enumerate(LEVELS)}


class _Leveled(Struct):
    level: str


_decode_level = msgspec.json.Decoder(str).decode
_decode_message = msgspec.json.Decoder(_Leveled).decode


def rank_of(level: Raw) -> int:
    """A level as a number, the most talkative is 0.

    Raises:
        msgspec.ValidationError: there is no such level.
    """
    found = _RANKS.get(name := _decode_level(level))
    if found is None:
        raise msgspec.ValidationError(f"there is no level {name[:20]!r}; there are: {', '.join(LEVELS)}")
    return found


def rank_in(params: Raw) -> int | None:
    """The level of a line of a log; None if it has none that is known."""
    try:
        return _RANKS.get(_decode_message(params).level)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def takes(params: Raw, *, asked: Raw | None, modern: bool, level: int | None) -> bool:
    """Whether a client gets a line that came with its own request.

    Args:
        params: the params of the notification.
        asked: the level that the request names, raw (MCP 2026-07-28); None if it names none.
        modern: whether the request is of that revision.
        level: the level that the client has set; None if it has set none.
    """
    if modern:
        level = wished_rank(asked)
    elif level is None:
        return True
    rank = rank_in(params)
    return level is not None and rank is not None and rank >= level


def wished_rank(level: Raw | None) -> int | None:
    """The level that a request names; None if it names none that is known."""
    try:
        return None if level is None else rank_of(level)
    except msgspec.MsgspecError:
        return None


def asked_level(asked: Raw | None, *, modern: bool, level: int | None) -> bytes | None:
    """The level, raw, that a modern server is asked for with a client's request (`takes`); None for none."""
    rank = wished_rank(asked) if modern else level
    return None if rank is None else msgspec.json.encode(LEVELS[rank])


class LogLevels:
    """The levels that clients have set."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """Begin without any; `changed` is called when the levels, or who has set them, change."""
        self._listening: dict[Subscriber, None] = {}
        self._by_rank: list[dict[Subscriber, None]] = [{} for _ in LEVELS]
        self._changed = changed

    def join(self, told: Subscriber) -> None:
        """Note that a client has set a level, or another one than before."""
        if told.level is None or told in self._by_rank[told.level]:
            return
        for of_rank in self._by_rank:
            of_rank.pop(told, None)
        self._by_rank[told.level][told] = self._listening[told] = None
        self._changed()

    def leave(self, told: Subscriber) -> None:
        """Forget a client."""
        if told in self._listening:
            del self._listening[told]
            for of_rank in self._by_rank:
                of_rank.pop(told, None)
            self._changed()

    def wished(self, server: str) -> str | None:
        """The most talkative level that a client has set that sees this server."""
        # The first that sees it settles it: this runs for all servers each time that a client sets a level.
        ranked = zip(LEVELS, self._by_rank, strict=True)
        return next((level for level, of_rank in ranked if any(each.sees(server) for each in of_rank)), None)

    def hear(self, server: str, params: Raw, cause: Exchange | None) -> None:
        """Take a line of a server's log to the clients that it is for.

        Args:
            server: the server.
            params: the params of the notification.
            cause: the request that the line came with: its client gets it there, or not at all.
        """
        asker = None
        if cause is not None:
            asker = cause.asker
            cause.notified(LOG_MESSAGE, params)
        if not self._listening or (rank := rank_in(params)) is None:
            return
        raw = bytes(params)
        for each in list(self._listening):
            if each.asker is not asker and each.level is not None and rank >= each.level and each.sees(server):
                each.say(LOG_MESSAGE, raw)
