"""Rows that somebody has edited by hand cost themselves, never the recall."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from daemon.state.sql import Batch
from tests.unit.state.samples import server, session, summed, with_lists

if TYPE_CHECKING:
    from tests.unit.state.places import Opener, Place, Sqlite

BATCH = Batch(
    at=1.0,
    servers=(server("one", "two", name="fs"), summed(server("read", "write"))),
    sessions=(session("key", "git/read", "git/write"), session("other", "git/read")),
)


@pytest.mark.parametrize(
    ("edit", "lost"),
    [
        ("UPDATE tools SET raw = 'garbage' WHERE name = 'read'", "tool git/read: "),
        ("UPDATE tools SET raw = '{}' WHERE name = 'read'", "tool git/read: "),
        ("UPDATE tools SET raw = '' WHERE name = 'read'", "tool git/read: "),
    ],
)
def test_a_tool_that_cannot_be_read_costs_itself(place: Place, opening: Opener, edit: str, lost: str) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run(edit)
    found = store.recall()
    assert [each.startswith(lost) for each in found.unreadable] == [True]
    assert [[tool.name for tool in record.tools or ()] for record in found.servers] == [
        ["one", "two"],
        ["write"],
    ]


@pytest.mark.parametrize(
    ("edit", "lost"),
    [
        ("UPDATE lists SET definitions = 'garbage' WHERE kind = 'prompt'", "the list prompt of server git: "),
        ("UPDATE lists SET definitions = '{}' WHERE kind = 'prompt'", "the list prompt of server git: "),
        ("UPDATE lists SET definitions = '[7]' WHERE kind = 'prompt'", "prompt "),
        ("UPDATE lists SET kind = 'spell' WHERE kind = 'prompt'", "the list spell of server git: "),
    ],
)
def test_a_list_that_cannot_be_read_costs_itself(place: Place, opening: Opener, edit: str, lost: str) -> None:
    store = opening(place)
    record = with_lists(server("read"), prompt=["review"], resource=["mem://1"])
    store.keep(Batch(at=1.0, servers=(record,)))
    place.run(edit)
    found = store.recall()
    assert [each.startswith(lost) for each in found.unreadable] == [True]
    assert found.servers == (with_lists(server("read"), resource=["mem://1"]),)
    store.keep(Batch(at=2.0, servers=(attrs.evolve(record, epoch=2),)))
    assert store.recall().servers == (attrs.evolve(record, epoch=2),)


def test_a_tool_that_was_edited_is_what_it_says_now_without_its_sentence(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run("""UPDATE tools SET raw = '{"name":"read","inputSchema":{"type":"object"},"title":"x"}'
                 WHERE name = 'read'""")
    _, found = store.recall().servers
    record = BATCH.servers[1]
    assert found.tools is not None
    assert record.tools is not None
    assert found.tools[0].schema_hash != record.tools[0].schema_hash
    assert list(found.sentences) == [record.tools[1].schema_hash]


def test_two_rows_that_say_to_be_the_same_tool_are_one(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run("UPDATE tools SET raw = (SELECT raw FROM tools WHERE name = 'read') WHERE name = 'write'")
    found = store.recall()
    assert found.unreadable == ("tool git/write: its contents say that it is read, which is there already",)


def test_keywords_that_are_none_cost_the_summary(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run(
        "UPDATE servers SET keywords = '{not json'", "UPDATE tools SET keywords = '[1]' WHERE name = 'read'"
    )
    found = store.recall()
    assert found.servers[1].summary is None
    assert len(found.servers[1].sentences) == 1
    assert sorted(found.unreadable) == [
        "the summary of server git: keywords: Expected `array`, got `object`",
        "the summary of tool git/read: keywords: Expected `str`, got `int` - at `$[0]`",
    ]


def test_a_negative_epoch_costs_its_server(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run("UPDATE servers SET epoch = -1 WHERE name = 'fs'")
    found = store.recall()
    assert [record.server for record in found.servers] == ["git"]
    assert found.unreadable == ("server fs: Expected `int` >= 0 - at `$.epoch`",)


def test_a_status_that_does_not_exist_costs_that_loaded_tool(place: Place, opening: Opener) -> None:
    store = opening(place)
    store.keep(BATCH)
    place.run("UPDATE loaded_tools SET status = 'excellent' WHERE tool = 'write'")
    assert store.session("key") == session("key", "git/read")
    place.run("UPDATE loaded_tools SET version = 100, writer = 'somebody'", "UPDATE version SET value = 100")
    changes = store.changes_since(50, ["key"])
    assert changes.sessions == (session("key", "git/read"),)
    assert changes.unreadable == (
        "git/write, loaded by session key: Invalid enum value 'excellent' - at `$.status`",
    )


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE servers SET epoch = 'many' WHERE name = 'fs'",
        "UPDATE servers SET refreshed_at = 'today' WHERE name = 'fs'",
        "UPDATE servers SET fingerprint = x'00ff' WHERE name = 'fs'",
        "UPDATE servers SET name = x'00ff' WHERE name = 'fs'",
    ],
)
def test_any_type_in_any_column_of_sqlite_costs_that_server(
    sqlite_place: Sqlite, opening: Opener, edit: str
) -> None:
    store = opening(sqlite_place)
    store.keep(BATCH)
    sqlite_place.run(edit)
    found = store.recall()
    assert [record.server for record in found.servers] == ["git"]
    assert len(found.unreadable) == 1


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE tools SET summary = x'00', position = 'first', version = 'v', epoch = 'e', updated_at = 'u'",
        "UPDATE tools SET summary = CAST(x'ff41' AS TEXT) WHERE name = 'read'",
        "UPDATE tools SET raw = 7, keywords = 7, summary_generated_at = 'x'",
        "UPDATE servers SET epoch = 'many', version = 'v', summary = x'00'",
        "UPDATE sessions SET seen_at = 'late', version = 'v', client = x'00'",
        "UPDATE loaded_tools SET position = 'x', version = 'v', loaded_epoch = 'e', renamed_to = x'00'",
        "UPDATE loaded_tools SET source = 'nobody', loaded_at = 'x', invalid_reason = x'00'",
    ],
)
def test_what_was_edited_is_written_over(sqlite_place: Sqlite, opening: Opener, edit: str) -> None:
    store = opening(sqlite_place)
    store.keep(BATCH)
    sqlite_place.run(edit)
    for each in (store.recall, lambda: store.sessions(10), lambda: store.changes_since(0, ["key"])):
        each()
    store.keep(BATCH)
    found = store.recall()
    assert found.unreadable == ()
    assert [record.tools for record in found.servers] == [record.tools for record in BATCH.servers]
    assert sorted(store.sessions(10), key=lambda record: record.key) == list(BATCH.sessions)
