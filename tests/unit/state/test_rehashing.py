"""An update of mcpd that hashes tools another way changes no tool for anybody."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from daemon.catalog.definitions import canonical, hashes, tools_digest
from daemon.state.migrations import STEPS, migrate
from tests.unit.state.places import database_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.state.sql import Database
    from tests.unit.state.places import Place

LOG: dict[str, Any] = {
    "name": "log",
    "inputSchema": {"type": "object"},
    "icons": [{"src": "i"}],
    "_meta": {"b": 1, "a": 2},
}
ADD: dict[str, Any] = {"name": "add", "title": "Add", "inputSchema": {"type": "object"}, "annotations": {}}

COUNTED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


def old_hash(tool: dict[str, Any]) -> str:
    """As schema 1 had it."""
    return hashlib.sha256(canonical({name: tool[name] for name in COUNTED if name in tool})).hexdigest()


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    """A store of schema 1 with a server of two tools."""
    place.run("SELECT 1")
    made = database_of(place)
    with made.transaction(writes=True) as transaction:
        migrate(transaction, "here", STEPS[:1])
        stamp = "1, 'a'"
        digest = tools_digest(map(old_hash, (LOG, ADD)))
        transaction.change(
            f"INSERT INTO servers VALUES ('git', 'f', 3, 1, 0, 'Does git.', '[]', '{digest}', 1, {stamp})"
        )
        for position, tool in enumerate((LOG, ADD)):
            keep = (
                "INSERT INTO tools VALUES"
                f" ('git', :name, :at, :raw, :hash, 3, 'Does it.', '[]', 1, 5.0, {stamp})"
            )
            values = {"name": tool["name"], "at": position, "raw": msgspec.json.encode(tool)}
            transaction.change(keep, {**values, "hash": old_hash(tool)})
        for key, digest in (("now", old_hash(LOG)), ("then", "0" * 64)):
            loaded = (
                "INSERT INTO loaded_tools VALUES"
                f" (:key, 'git', 'log', 0, :hash, 3, 'valid', '', NULL, 'manual', 1, 0, {stamp})"
            )
            transaction.change(loaded, {"key": key, "hash": digest})
    yield made
    made.close()


def test_what_is_stored_of_a_tool_goes_by_its_new_hash(database: Database, place: Place) -> None:
    with database.transaction(writes=True) as transaction:
        migrate(transaction, "here")
    new = {tool["name"]: hashes(tool)[0] for tool in (LOG, ADD)}
    assert dict(place.run("SELECT name, schema_hash FROM tools")) == new
    assert new["log"] != old_hash(LOG)
    assert place.run("SELECT summary_of FROM servers") == [(tools_digest(new.values()),)]
    loaded = dict(place.run("SELECT session, loaded_schema_hash FROM loaded_tools"))
    assert loaded == {"now": new["log"], "then": "0" * 64}


def test_a_server_is_as_it_was_for_the_daemon_that_comes(database: Database, place: Place) -> None:
    with database.transaction(writes=True) as transaction:
        migrate(transaction, "here")
    store = place.open()
    (record,) = store.recall().servers
    store.close()
    assert record.tools is not None
    assert record.epoch == 3
    assert set(record.sentences) == {tool.schema_hash for tool in record.tools}
    assert record.summary is not None
    assert record.summary.of == tools_digest(tool.schema_hash for tool in record.tools)


@pytest.mark.parametrize("raw", [b"[]", b"{", b"\xff", b"[" * 100_000])
def test_what_somebody_has_edited_stays_as_it_is(database: Database, place: Place, raw: bytes) -> None:
    with database.transaction(writes=True) as transaction:
        transaction.change("UPDATE tools SET raw = :raw WHERE name = 'log'", {"raw": raw})
        migrate(transaction, "here")
    assert dict(place.run("SELECT name, schema_hash FROM tools"))["log"] == old_hash(LOG)
