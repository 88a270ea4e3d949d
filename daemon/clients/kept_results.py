"""Keeps results too large for a context on disk; a result that cannot be kept passes whole."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import trio
from loguru import logger

from daemon.clients.client import owner_in
from daemon.errors import InvalidArguments, ResultExpired
from daemon.protocol import UNREADABLE
from daemon.scripting.text_search import TOO_MUCH, search
from daemon.surfaces.additions import FRAME, answer, cut_result, read_from, start_of, taken_apart
from daemon.surfaces.surface import ReadResult
from daemon.wire.envelope import Buffer

MAX_BYTES = 64 * 2**20  # kept for one session; the oldest results leave first

MAX_ALL_BYTES = 1024 * 2**20  # kept for all sessions; those with the most lose their oldest results first

MAX_AGE, SWEEP_SECONDS = 3600.0, 60.0  # after its last use a result is removed, and how often they are

DISK_SECONDS = 10.0
"""Seconds that an answer waits for the disk; a result not written by then passes whole."""

SEARCH_SECONDS, SEARCHES = 20.0, 2  # of a search, with its wait for others; and searches at once

_MADE = """
PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA auto_vacuum = FULL;
CREATE TABLE kept (id TEXT PRIMARY KEY, result BLOB)
"""

Key = tuple[object, str, str]  # a session (`client.owner_in`), its profile, and the id of a result


class KeptResults:
    """The kept results of all sessions, in an unlinked file, which ends with the daemon, even if killed."""

    def __init__(self, directory: Path = Path(os.devnull)) -> None:
        self._directory, self._told = directory, False
        self._file: sqlite3.Connection | None = None
        self._kept: dict[Key, tuple[int, float]] = {}  # size and last use of each result
        self._searches = trio.CapacityLimiter(SEARCHES)
        self._disk = partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(1), abandon_on_cancel=True)

    async def run(self) -> None:
        """Remove expired results until cancelled."""
        while True:
            await trio.sleep(SWEEP_SECONDS)
            await self._disk(self._expire, trio.current_time())

    def take(self, call: Any, result: Buffer) -> bool:
        """Keep a result, then answer its call (a `calls.ClientCall`). False: the call was answered already."""
        if call.upstream is None or call.finished is not None:
            return False
        if not call.calls.is_open(call):
            if call.parked is not None:
                parked = bytes(result)
                call.parked.hold(lambda: self.take(call, parked), len(parked))
            return True
        call.finished, call.convert = bytes(result), None
        keep = partial(self.keep, call, call.finished)
        call.calls.act_after(call, keep, lambda call: call.calls.finish(call, call.finished, "ok"))
        return True

    async def keep(self, call: Any, whole: bytes) -> None:
        """Set the part of a result that the client gets; all of it if the result cannot be kept."""
        key, room = _key(call, secrets.token_hex(16)), call.calls.client.selection.most_bytes
        try:
            with trio.fail_after(DISK_SECONDS):
                call.finished = await self._disk(self._keep, key, whole, room, trio.current_time())
        except (OSError, sqlite3.Error, RuntimeError, trio.TooSlowError, *UNREADABLE) as error:
            if not self._told:
                logger.warning("a large result is passed on whole, since it cannot be kept: {!r}", error)
            self._told = True

    async def read(self, call: Any, asked: ReadResult) -> None:
        """Set the answer to `read_result` or to a read of the kept resource. Raises CallError."""
        try:
            with trio.fail_after(DISK_SECONDS):
                whole = await self._disk(self._read, _key(call, asked.id), trio.current_time())
        except (KeyError, sqlite3.Error, trio.TooSlowError):
            text = "this result is gone: results are kept for an hour, for their session. Call the tool again."
            raise ResultExpired(text) from None
        if asked.grep or asked.jq:
            found = await self._search((await self._disk(taken_apart, whole))[0], asked)
            shown = start_of(found, asked.room - FRAME)
            call.finished = answer(shown, f"{len(shown.encode())} of {len(found)} bytes found")
        else:
            call.finished = await self._disk(read_from, whole, asked)

    async def _search(self, text: bytes, asked: ReadResult) -> bytes:
        look = partial(search, text, asked.room, asked.grep, asked.jq)
        with trio.move_on_after(SEARCH_SECONDS):
            return await trio.to_thread.run_sync(look, limiter=self._searches, abandon_on_cancel=True)
        raise InvalidArguments(TOO_MUCH)

    def _opened(self) -> sqlite3.Connection:
        if self._file is None:
            handle, path = mkstemp(prefix="results-", dir=self._directory)
            os.close(handle)
            try:
                made = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                made.executescript(_MADE)
            finally:
                Path(path).unlink()
            self._file = made
        return self._file

    def _expire(self, now: float) -> None:
        for key, (_size, used) in list(self._kept.items()):
            if used <= now - MAX_AGE or getattr(key[0], "left", False):
                self._remove(key)

    def _remove(self, key: Key) -> None:
        del self._kept[key]
        with suppress(sqlite3.Error):
            self._opened().execute("DELETE FROM kept WHERE id = ?", key[-1:])

    def _keep(self, key: Key, whole: bytes, room: int, now: float) -> bytes:
        shorter = cut_result(whole, room, key[-1])
        self._expire(now)
        mine = {each: size for each, (size, _used) in self._kept.items() if each[:-1] == key[:-1]}
        while mine and sum(mine.values()) + len(whole) > MAX_BYTES:
            mine.pop(oldest := next(iter(mine)))
            self._remove(oldest)
        held = Counter[tuple[object, ...]]()
        for each, (size, _used) in self._kept.items():
            held[each[:-1]] += size
        while (total := held.total()) and total + len(whole) > MAX_ALL_BYTES:
            most = max(held, key=held.__getitem__)
            oldest = next(each for each in self._kept if each[:-1] == most)
            held[most] -= self._kept[oldest][0]
            self._remove(oldest)
        self._opened().execute("INSERT INTO kept VALUES (?, ?)", (key[-1], whole))
        self._kept[key] = len(whole), now
        return shorter

    def _read(self, key: Key, now: float) -> bytes:
        self._expire(now)
        self._kept[key] = self._kept[key][0], now
        query = "SELECT result FROM kept WHERE id = ?"
        found: tuple[bytes] = self._opened().execute(query, key[-1:]).fetchone()
        return found[0]


def _key(call: Any, result_id: str) -> Key:
    return owner_in(call.request.key, call.calls.client), call.request.profile.name, result_id
