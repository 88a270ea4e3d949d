"""kill -9 at random moments while sessions load: what was acknowledged is on disk, and the file is sound.

Each life is the whole daemon, `mcpd run`, in a process of its own, forked (`forking`): starting an interpreter
would take ten times as long as all the rest.
"""

import contextlib
import json
import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from daemon.cli import control
from tests.e2e.forking import FORKS, Life
from tests.e2e.harness import Daemon, RawClient, scripted, serving
from tests.pairwise import at_night
from tests.waiting import WAIT, eventually

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


# --- kill -9 at random moments while sessions load -----------------------------------------------------------


KILLS = 100
"""Lives that are cut off in each round of a nightly run."""
LIVES_BETWEEN_CHECKS = 5
"""Lives after each of which the file is looked at; what it has is also seen by each life, as it begins."""
LONGEST_LIFE = 1.75
"""When a life is cut off, at the latest: so many times what passes until one acknowledges its first load."""
LATEST_SECONDS = 0.8
"""The same on any machine: well within the time after which a load is acknowledged though it is not on disk."""
DRY_LIVES = 10
"""After so many in which nothing was acknowledged, one is waited for until something is."""
WORDS = 5
"""Operators' words, each of which is the last one of a life."""


class Tried:
    """Whether the lives are long enough for anything to be acknowledged in them."""

    def __init__(self, crowd: list[Loader]) -> None:
        self._crowd = crowd
        self._seen = 0
        self._dry = 0

    def _count(self) -> int:
        return sum(len(each.acknowledged) for each in self._crowd)

    def is_dry(self) -> bool:
        """Asked once a life: whether in the last ones nothing was acknowledged."""
        count = self._count()
        self._dry = 0 if count > self._seen else self._dry + 1
        self._seen = count
        return self._dry > DRY_LIVES

    def has_more(self) -> bool:
        """Whether something was acknowledged since."""
        return self._count() > self._seen


@pytest.mark.parametrize(("rounds", "kills"), at_night([(1, 25), (3, KILLS)], (1, 25)))
def test_no_kill_loses_what_was_acknowledged_or_spoils_the_file(
    tmp_path: Path, rounds: int, kills: int
) -> None:
    places = [tmp_path / str(number) for number in range(rounds)]
    with ThreadPoolExecutor(rounds) as at_once:
        for each in [at_once.submit(kill_again_and_again, place, kills) for place in places]:
            each.result()


def kill_again_and_again(place: Path, kills: int) -> None:
    """One round, on a state of its own."""
    place.mkdir()
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    script = {"count": str(place / "runs"), "runs": moving()}
    servers = {"steady": scripted(tools=TOOLS), "moving": scripted(**script)}
    config = {"mcpServers": servers, "profiles": {"default": {"surface": "load"}}}
    with told(f"seed {seed}"), serving(config) as daemon:
        daemon.stop()
        with Lives(daemon) as lives, loading(daemon, seed) as crowd:
            epochs: dict[str, int] = {}
            longest = min(LATEST_SECONDS, LONGEST_LIFE * beginning(daemon, lives))
            tried = Tried(crowd)
            for kill in range(kills):
                lives.begin()
                if tried.is_dry():
                    # A machine that has become slower: this life must get to something.
                    eventually(tried.has_more, daemon.said)
                time.sleep(chance.uniform(0, longest))
                lives.kill()
                assert not [each for each in crowd if each.fault or each.lost], (kill, daemon.said()[-4000:])
                if kill % LIVES_BETWEEN_CHECKS == 0:
                    epochs = check(daemon, place, crowd, epochs)
        check(daemon, place, crowd, epochs)
        daemon.start()
        assert not [lost for each in crowd if (lost := each.missing())]
        assert not list(daemon.state.parent.glob("*corrupt*"))
        assert "internal error in mcpd" not in daemon.said()
    # Otherwise nothing was tried.
    assert sum(len(each.acknowledged) for each in crowd) > 0
    assert sum(each.found for each in crowd) > 0


@contextmanager
def told(what: str) -> Iterator[None]:
    """Say something of a failure."""
    try:
        yield
    except Exception as fault:
        fault.add_note(what)
        raise


def beginning(daemon: Daemon, lives: Lives) -> float:
    """Seconds until a life acknowledges its first load: the second one, for the first one waits for imports."""
    began = 0.0
    for _ in range(2):
        lives.begin()
        began = time.monotonic()
        eventually(lambda: has_loaded(daemon), daemon.said)
        lives.kill()
    return time.monotonic() - began


def has_loaded(daemon: Daemon) -> bool:
    """Whether a load was acknowledged.

    A line may break: a child that the life before was just starting has its socket until it begins its program.
    """
    try:
        with Line(daemon.socket) as client:
            client.hello(session="beginning")
            client.load("echo0")
    except (OSError, Cut):
        return False
    return True


def test_what_an_operator_was_told_is_switched_off_is_off_in_the_next_life() -> None:
    config = {"mcpServers": {"steady": scripted(tools=TOOLS)}}
    with serving(config) as daemon:
        daemon.stop()
        with Lives(daemon) as lives:
            for number in range(WORDS):
                lives.begin()
                eventually(lambda: said(daemon, f"steady/echo{number}"), daemon.said)  # noqa: B023 - called in this turn
                lives.kill()
        daemon.start()
        assert daemon.ask("status")["switchedOff"] == sorted(f"steady/echo{each}" for each in range(WORDS))


def said(daemon: Daemon, name: str) -> bool:
    """Whether an operator's word was taken: the daemon may not be there yet."""
    try:
        daemon.ask("switch", name=name, off=True)
    except control.DaemonUnreachable:
        return False
    return True


def moving() -> list[dict[str, Any]]:
    """A server that lists something else in each of its runs: the daemon has more to write than sessions."""
    return [{"tools": [f"moved{number}", f"moved{number + 1}"]} for number in range(2 * KILLS)]


def check(daemon: Daemon, place: Path, crowd: list[Loader], before: dict[str, int]) -> dict[str, int]:
    """Look at what a kill has left, in a copy: what recovers the file itself is to be the next daemon.

    Returns the epochs in it, which never fall.
    """
    acknowledged = {each.key: set(each.acknowledged) for each in crowd}
    copy = place / "copy.db"
    for end in ("", "-wal"):
        source = daemon.state.with_name(daemon.state.name + end)
        copy.with_name(copy.name + end).unlink(missing_ok=True)
        if source.exists():
            shutil.copyfile(source, copy.with_name(copy.name + end))
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        loaded = connection.execute("SELECT session, tool FROM loaded_tools").fetchall()
        epochs = dict(connection.execute("SELECT name, epoch FROM servers").fetchall())
    for key, tools in acknowledged.items():
        lost = tools - {tool for session, tool in loaded if session == key}
        assert not lost, f"{key} has lost {sorted(lost)}"
    assert all(epochs[name] >= epoch for name, epoch in before.items()), (before, epochs)
    return epochs
