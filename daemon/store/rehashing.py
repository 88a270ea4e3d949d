"""From the hashes of schema 1, which left out some members of a tool, to those of schema 2, of all of it.

Hashes stand with tools, with what sessions have loaded and with what a model has said. All are rewritten at
once, so that an update of mcpd changes no tool for anybody. Part of a migration: never changed afterwards, so
nothing here is taken from where tools are hashed today.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.store.connection import Connection

_COUNTED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


_TOOLS = "UPDATE tools SET schema_hash = :now WHERE server = :server AND name = :tool AND schema_hash = :before"
_LOADED = (
    "UPDATE loaded_tools SET loaded_schema_hash = :now"
    " WHERE server = :server AND tool = :tool AND loaded_schema_hash = :before"
)
_SUMMARIES = "UPDATE servers SET summary_of = :now WHERE name = :server AND summary_of = :before"


def rehash(connection: Connection) -> None:
    """Rewrite every hash that is one of a tool as it is stored; others are of what is no more, and stay so."""
    servers: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    moved = []
    for row in connection.rows("SELECT server, name, raw, schema_hash FROM tools"):
        before, now = _hashes(row["raw"])
        if row["schema_hash"] == before:
            moved.append({"server": row["server"], "tool": row["name"], "before": before, "now": now})
            servers[row["server"]].append((before, now))
    digests = [
        {
            "server": server,
            "before": _digest(each[0] for each in pairs),
            "now": _digest(each[1] for each in pairs),
        }
        for server, pairs in servers.items()
    ]
    for statement, values in (
        (_TOOLS, moved),
        (_LOADED, moved),
        (_SUMMARIES, digests),
    ):
        if values:
            connection.change_each(statement, values)


def _hashes(raw: object) -> tuple[str, str]:
    """The hash of a stored tool then and now; empty of what somebody has edited into something else."""
    try:
        members = msgspec.json.decode(raw) if isinstance(raw, bytes) else None
        if not isinstance(members, dict):
            return "", ""
        return _hash({name: members[name] for name in _COUNTED if name in members}), _hash(members)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "", ""


def _hash(members: Mapping[str, object]) -> str:
    return hashlib.sha256(msgspec.json.encode(members, order="sorted")).hexdigest()


def _digest(hashes: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()
