"""The tables have what the seed asks of them."""

from __future__ import annotations

from daemon.store import schema


def test_every_table_that_others_read_has_stamps() -> None:
    alone = {schema.schema_version, schema.counter}
    assert set(schema.STAMPED) == set(schema.metadata.tables.values()) - alone
    for table in schema.STAMPED:
        assert {"version", "writer"} <= set(table.c.keys())


def test_a_session_has_loaded_a_tool_once() -> None:
    assert [column.name for column in schema.loaded.primary_key] == ["session", "server", "tool"]
