"""Each test of the store runs on SQLite and on PostgreSQL, in a fresh place."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from daemon.state import postgres as postgresql
from daemon.state import sqlite
from daemon.state.store import Store
from tests.unit.state.places import SLACK, Opener, Place, Postgres, Sqlite
from tests.unit.state.postgres import Server, postgres

__all__ = ["opening", "place", "postgres", "postgres_place", "slack", "sqlite_place", "store"]


@pytest.fixture(autouse=True)
def slack(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives stores `SLACK` times a daemon's time, or as many times as the test says."""
    for room in (postgresql, sqlite):
        for name in [each for each in vars(room) if each.endswith("_SECONDS")]:
            seconds = getattr(room, name)
            monkeypatch.setattr(room, name, type(seconds)(seconds * getattr(request, "param", SLACK)))


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Sqlite:
    """Where a file of SQLite can be."""
    return Sqlite(tmp_path / "state" / "state.db")


@pytest.fixture
def postgres_place(postgres: Server) -> Iterator[Postgres]:
    """An empty database of the running server."""
    url = postgres.database()
    yield Postgres(postgres, url)
    postgres.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> Place:
    """One after the other."""
    name = "sqlite_place" if request.param == "sqlite" else "postgres_place"
    found: Place = request.getfixturevalue(name)
    return found


@pytest.fixture
def opening() -> Iterator[Opener]:
    """Opens stores that are closed after the test."""
    with ExitStack() as stack:

        def opened(place: Place, writer: str = "one") -> Store:
            store = place.open(writer)
            stack.callback(store.close)
            return store

        yield opened


@pytest.fixture
def store(place: Place, opening: Opener) -> Store:
    """A store in a fresh place."""
    return opening(place)
