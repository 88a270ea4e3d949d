"""The tables as queries see them. `migrations` makes them; a test compares the two.

Every row has a stamp: the version of the store that it was last written with, and by whom. That is how another
daemon on the same database learns what changed.
"""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()


def _stamp() -> tuple[sa.Column[int], sa.Column[str]]:
    return sa.Column("version", sa.BigInteger, nullable=False), sa.Column("writer", sa.Text, nullable=False)


schema_version = sa.Table("schema_version", metadata, sa.Column("version", sa.BigInteger, nullable=False))
"""One row: the last migration that was applied."""

counter = sa.Table("version", metadata, sa.Column("value", sa.BigInteger, nullable=False))
"""One row: how many transactions have written. Writers take their turns by it."""

servers = sa.Table(
    "servers",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column(
        "listed", sa.BigInteger, nullable=False
    ),  # 0: it never listed any tools, which is not an empty list
    sa.Column("refreshed_at", sa.Double, nullable=False),
    sa.Column("summary", sa.Text),
    sa.Column("keywords", sa.Text),
    sa.Column("summary_of", sa.Text),
    sa.Column("summary_generated_at", sa.Double),
    *_stamp(),
)
"""Servers with their epochs and summaries."""

tools = sa.Table(
    "tools",
    metadata,
    sa.Column("server", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("raw", sa.LargeBinary, nullable=False),
    sa.Column("schema_hash", sa.Text, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("summary", sa.Text),
    sa.Column("keywords", sa.Text),
    sa.Column("summary_generated_at", sa.Double),
    sa.Column("updated_at", sa.Double, nullable=False),
    *_stamp(),
    sa.Index("tools_by_hash", "schema_hash"),
)
"""Tools as their servers listed them; epoch and time are those of the last change to the row."""

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("client", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("seen_at", sa.Double, nullable=False),
    *_stamp(),
    sa.Index("sessions_by_use", "seen_at"),
)
"""Sessions with a key."""

loaded = sa.Table(
    "loaded_tools",
    metadata,
    sa.Column("session", sa.Text, primary_key=True),
    sa.Column("server", sa.Text, primary_key=True),
    sa.Column("tool", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("loaded_schema_hash", sa.Text, nullable=False),
    sa.Column("loaded_epoch", sa.BigInteger, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("invalid_reason", sa.Text, nullable=False),
    sa.Column("renamed_to", sa.Text),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("loaded_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    *_stamp(),
    sa.Index("loaded_tools_by_hash", "server", "loaded_schema_hash", "tool"),
)
"""What sessions have loaded, and what became of it."""

switches = sa.Table(
    "switches",
    metadata,
    sa.Column("server", sa.Text, primary_key=True),
    sa.Column("tool", sa.Text, primary_key=True),
    sa.Column(
        "switched_off", sa.BigInteger, nullable=False
    ),  # a row stays when switched on: others must see it
    sa.Column("at", sa.Double, nullable=False),
    *_stamp(),
)
"""Operators' words about servers and tools."""

STAMPED = (servers, tools, sessions, loaded, switches)
"""The tables whose rows carry stamps."""
