"""The same fixtures as the unit tests of this folder have."""

from tests.unit.state.conftest import opening, place, postgres, postgres_place, slack, sqlite_place, store

__all__ = ["opening", "place", "postgres", "postgres_place", "slack", "sqlite_place", "store"]
