"""Where a store can be, and how somebody gets at it behind mcpd's back."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import attrs
import pytest

from daemon.config.state_url import StateUrl, of_file, parse
from daemon.state.postgres import PostgresDatabase
from daemon.state.sql import Database, StoreCause, StoreFault
from daemon.state.sqlite import SqliteDatabase
from daemon.state.store import Store
from tests.unit.state.postgres import Server, name_in

SLACK = 20.0
"""How many times longer than a daemon's store that of a test may take: the machine may be slow and busy."""

LITTLE = 2.0
"""As `SLACK`, where the test waits until the store gives up."""


BOUND = 60.0
"""Seconds after which a test has failed, however slow the machine: far more than what is promised."""


@contextlib.contextmanager
def failing(kind: StoreCause, *words: str) -> Iterator[None]:
    """The block fails so, within the bound, and its text has these words."""
    begun = monotonic()
    with pytest.raises(StoreFault) as fault:
        yield
    assert monotonic() - begun < BOUND
    assert fault.value.cause is kind, str(fault.value)
    for word in words:
        assert word in str(fault.value)


class Place(Protocol):
    """What both have."""

    @property
    def url(self) -> StateUrl:
        """What opens it."""
        ...

    def open(self, writer: str = "one") -> Store:
        """The store in it."""
        ...

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """What an operator can do with another program. Returns the rows of the last statement."""
        ...


def database_of(place: Place) -> Database:
    """The place's database without a store around it."""
    if place.url.path is None:
        return PostgresDatabase(place.url.parameters)
    return SqliteDatabase(place.url.path)


class Opener(Protocol):
    """Opens stores that are closed after the test."""

    def __call__(self, place: Place, writer: str = "one") -> Store: ...


@attrs.frozen
class Sqlite:
    """A file."""

    path: Path

    @property
    def url(self) -> StateUrl:
        return of_file(self.path)

    def open(self, writer: str = "one") -> Store:
        return Store.open(self.url, writer=writer)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        self.path.parent.mkdir(exist_ok=True)
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                rows = connection.execute(statement).fetchall()
            return rows


@attrs.frozen
class Postgres:
    """A database."""

    server: Server
    dsn: str
    """Its url, in words."""

    @property
    def url(self) -> StateUrl:
        return parse(self.dsn)

    @property
    def name(self) -> str:
        """The database's."""
        return name_in(self.dsn)

    def open(self, writer: str = "one") -> Store:
        return Store.open(self.url, writer=writer)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.run(*statements, database=self.name)
