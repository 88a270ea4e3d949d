"""The tables have what the seed asks of them."""

from __future__ import annotations

from daemon.store import schema


def test_every_table_that_others_read_has_stamps() -> None:
    alone = {"schema_version", "version", "counts"}
    assert {table.name for table in schema.STAMPED} == schema.TABLES.keys() - alone
    for table in schema.STAMPED:
        assert {"version", "writer"} <= set(table.columns)


def test_a_session_has_loaded_a_tool_once() -> None:
    assert schema.loaded.key == ("session", "server", "tool")


def test_a_table_is_made_with_its_indexes_where_it_is_missing() -> None:
    made = list(schema.tools.made("BLOB"))
    assert made[0].startswith("CREATE TABLE IF NOT EXISTS tools (server TEXT NOT NULL, ")
    assert "raw BLOB NOT NULL" in made[0]
    assert made[0].endswith("PRIMARY KEY (server, name))")
    assert made[1:] == ["CREATE INDEX IF NOT EXISTS tools_by_hash ON tools (schema_hash)"]
