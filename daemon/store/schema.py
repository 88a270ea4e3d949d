"""The tables as queries see them. `migrations` makes them; a test compares the two.

Every row has a stamp: the version of the store that it was last written with, and by whom. That is how another
daemon on the same database learns what changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TEXT, NUMBER, REAL, BYTES = "TEXT", "BIGINT", "DOUBLE PRECISION", "{bytes}"
"""Types as both databases know them; of bytes there is a name for each."""

_STAMP = {"version": f"{NUMBER} NOT NULL", "writer": f"{TEXT} NOT NULL"}


@attrs.frozen(kw_only=True)
class Table:
    """One table."""

    name: str
    """What it is called."""
    columns: Mapping[str, str]
    """Its columns, with their types."""
    key: tuple[str, ...] = ()
    """The columns that no two rows have alike."""
    indexes: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Its indexes, with their columns."""

    @property
    def listed(self) -> str:
        """All columns, as a statement names them."""
        return ", ".join(self.columns)

    def made(self, bytes_type: str) -> Iterator[str]:
        """The statements that make it where it is missing.

        Args:
            bytes_type: what the database calls a column of bytes.
        """
        parts = [f"{name} {kind}" for name, kind in self.columns.items()]
        parts += [f"PRIMARY KEY ({', '.join(self.key)})"] if self.key else []
        made = f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(parts)})"
        yield made.replace(BYTES, bytes_type)
        for name, columns in self.indexes.items():
            yield f"CREATE INDEX IF NOT EXISTS {name} ON {self.name} ({', '.join(columns)})"


schema_version = Table(name="schema_version", columns={"version": f"{NUMBER} NOT NULL"})
"""One row: the last migration that was applied."""

counter = Table(name="version", columns={"value": f"{NUMBER} NOT NULL"})
"""One row: how many transactions have written. Writers take their turns by it."""

servers = Table(
    name="servers",
    columns={
        "name": f"{TEXT} NOT NULL",
        "fingerprint": f"{TEXT} NOT NULL",
        "epoch": f"{NUMBER} NOT NULL",
        "listed": f"{NUMBER} NOT NULL",  # 0: it never listed any tools, which is not an empty list
        "refreshed_at": f"{REAL} NOT NULL",
        "summary": TEXT,
        "keywords": TEXT,
        "summary_of": TEXT,
        "summary_generated_at": REAL,
        **_STAMP,
        "about": TEXT,
    },
    key=("name",),
)
"""Servers with their epochs and summaries, and with what they say of themselves."""

tools = Table(
    name="tools",
    columns={
        "server": f"{TEXT} NOT NULL",
        "name": f"{TEXT} NOT NULL",
        "position": f"{NUMBER} NOT NULL",
        "raw": f"{BYTES} NOT NULL",
        "schema_hash": f"{TEXT} NOT NULL",
        "epoch": f"{NUMBER} NOT NULL",
        "summary": TEXT,
        "keywords": TEXT,
        "summary_generated_at": REAL,
        "updated_at": f"{REAL} NOT NULL",
        **_STAMP,
        "since": f"{REAL} NOT NULL DEFAULT 0",  # it came later: `ALTER TABLE` needs a default
    },
    key=("server", "name"),
    indexes={"tools_by_hash": ("schema_hash",)},
)
"""Tools as their servers listed them; epoch and time are those of the last change to the row, `since` is the
time of the definition's."""

tool_names = Table(
    name="tool_names",
    columns={
        "name": f"{TEXT} NOT NULL",
        "server": f"{TEXT} NOT NULL",
        "tool": f"{TEXT} NOT NULL",
        "beside": f"{NUMBER} NOT NULL",
        "since": f"{REAL} NOT NULL",
        **_STAMP,
    },
    key=("name",),
)
"""Whose names are whose, where tools of several servers stand side by side."""

sessions = Table(
    name="sessions",
    columns={
        "key": f"{TEXT} NOT NULL",
        "client": f"{TEXT} NOT NULL",
        "created_at": f"{REAL} NOT NULL",
        "seen_at": f"{REAL} NOT NULL",
        **_STAMP,
    },
    key=("key",),
    indexes={"sessions_by_use": ("seen_at",)},
)
"""Sessions with a key."""

loaded = Table(
    name="loaded_tools",
    columns={
        "session": f"{TEXT} NOT NULL",
        "server": f"{TEXT} NOT NULL",
        "tool": f"{TEXT} NOT NULL",
        "position": f"{NUMBER} NOT NULL",
        "loaded_schema_hash": f"{TEXT} NOT NULL",
        "loaded_epoch": f"{NUMBER} NOT NULL",
        "status": f"{TEXT} NOT NULL",
        "invalid_reason": f"{TEXT} NOT NULL",
        "renamed_to": TEXT,
        "source": f"{TEXT} NOT NULL",
        "loaded_at": f"{REAL} NOT NULL",
        "updated_at": f"{REAL} NOT NULL",
        **_STAMP,
    },
    key=("session", "server", "tool"),
    indexes={
        "loaded_tools_by_verdict": (
            "server",
            "loaded_schema_hash",
            "tool",
            "status",
            "invalid_reason",
            "renamed_to",
        )
    },
)
"""What sessions have loaded, and what became of it."""

switches = Table(
    name="switches",
    columns={
        "server": f"{TEXT} NOT NULL",
        "tool": f"{TEXT} NOT NULL",
        "switched_off": f"{NUMBER} NOT NULL",  # a row stays when switched on: others must see it
        "at": f"{REAL} NOT NULL",
        **_STAMP,
    },
    key=("server", "tool"),
)
"""Operators' words about servers and tools."""

counts = Table(
    name="counts",
    columns={"name": f"{TEXT} NOT NULL", "value": f"{NUMBER} NOT NULL", "since": f"{REAL} NOT NULL"},
    key=("name",),
)
"""What daemons have counted, all together. Without stamps: nobody has to learn of it."""

STAMPED = (servers, tools, tool_names, sessions, loaded, switches)
"""The tables whose rows carry stamps."""

TABLES = {table.name: table for table in (schema_version, counter, counts, *STAMPED)}
"""All of them, by name."""
