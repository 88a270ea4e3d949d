"""Daemons that are cut off at random moments, one after the other, and clients that load through all of them.

Each life is the whole daemon, `mcpd run`, in a process of its own, forked (`forking`): starting an interpreter
would take ten times as long as all the rest.
"""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Self

from tests.e2e.forking import FORKS
from tests.e2e.harness import RawClient
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.forking import Life
    from tests.e2e.harness import Daemon

AGAIN_SECONDS = 0.01
"""Until a client whose line broke connects again."""

CLIENTS = 3

TOOLS = 150
"""Tools of the server that stays as it is; some load them all and begin again."""


class Lives:
    """Daemons on one configuration and one state, one after the other; `FORKS` has to run."""

    def __init__(self, daemon: Daemon) -> None:
        """Prepare; no life has begun."""
        self._daemon = daemon
        self._life: Life | None = None

    @property
    def pid(self) -> int:
        """Of the one that has begun."""
        assert self._life is not None
        return self._life.pid

    def begin(self) -> None:
        """Start one; it may not be listening yet."""
        words = ["run", "--config", str(self._daemon.config)]
        self._life = FORKS.fork(words, self._daemon.environ, self._daemon.code, self._daemon.log)

    def kill(self) -> None:
        """Cut it off, and wait until it is gone."""
        assert self._life is not None
        self._life.kill()
        self._life.wait(WAIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._life is not None:
            self.kill()


class Loader(threading.Thread):
    """Loads tools under a key through all lives, and looks in each whether what was acknowledged is there."""

    def __init__(self, daemon: Daemon, key: str, seed: int) -> None:
        """Not yet."""
        super().__init__(name=key)
        self.key = key
        self.acknowledged: list[str] = []
        self.lost: set[str] = set()
        self.found = 0
        """How often something acknowledged was there in a later life."""
        self.fault: BaseException | None = None
        self._daemon = daemon
        self._random = random.Random(seed)
        self._over = threading.Event()

    def run(self) -> None:
        """Until it is stopped: connect, look, load, until the line breaks."""
        try:
            while not self._over.is_set():
                with contextlib.suppress(OSError, Cut):
                    self._converse()
                self._over.wait(AGAIN_SECONDS)
        except BaseException as fault:  # noqa: BLE001 - shown by whoever started it
            self.fault = fault

    def stop(self) -> None:
        """Stop after what is under way."""
        self._over.set()
        self.join(2 * WAIT)

    def missing(self) -> set[str]:
        """What was acknowledged, and is not in the session that comes back; also in earlier lives."""
        with self._daemon.client().hello(session=self.key) as client:
            return self.lost | (set(self.acknowledged) - set(client.listed()))

    def _converse(self) -> None:
        with Line(self._daemon.socket) as client:
            client.hello(session=self.key)
            self.lost |= set(self.acknowledged) - set(client.listed())
            self.found += len(self.acknowledged)
            while not self._over.is_set():
                names = [f"echo{self._random.randrange(TOOLS)}" for _ in range(self._random.randint(1, 3))]
                client.load(*names)
                self.acknowledged += names


@contextmanager
def loading(daemon: Daemon, seed: int) -> Iterator[list[Loader]]:
    """Clients that load while the block runs."""
    crowd = [Loader(daemon, f"session {number}", seed + number) for number in range(CLIENTS)]
    for each in crowd:
        each.start()
    try:
        yield crowd
    finally:
        for each in crowd:
            each.stop()


class Cut(Exception):
    """The daemon was killed."""


class Line(RawClient):
    """A connection whose daemon may be killed at any moment."""

    def receive(self) -> dict[str, Any]:
        """The next message; `Cut` if there is not a whole one."""
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise Cut
        message: dict[str, Any] = json.loads(line)
        return message


def sound(daemon: Daemon) -> bool:
    """Whether SQLite finds nothing wrong; it looks, and writes nothing."""
    with closing(sqlite3.connect(f"file:{daemon.state}?mode=ro", uri=True, timeout=WAIT)) as connection:
        return connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
