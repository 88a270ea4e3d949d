"""Sets of queries with the tools that answer them, and measures of a ranking of tools."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from daemon.catalog.entry import KnownList
from daemon.catalog.snapshot import ServerEntry
from daemon.facts import ServerStatus
from daemon.model import Kind, Tool, ToolKey
from daemon.states import ServerState

if TYPE_CHECKING:
    from pathlib import Path

MEASURES = ("R@1", "R@5", "R@10", "MRR", "nDCG@10")

DEPTH = 50
"""Tools of a ranking that count."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Tools:
    """A catalogue: the servers for an index, and the row of each tool."""

    servers: dict[str, ServerEntry]
    ids: dict[ToolKey, str]


def rows_of(path: Path) -> list[Row]:
    """The lines of a .jsonl or .jsonl.gz file."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return [json.loads(line) for line in text.splitlines()]


def catalogue(rows: list[Row]) -> Tools:
    """Rows as servers with tools. The second tool of a name gets an underscore."""
    tools: dict[str, dict[str, Tool]] = {}
    about: dict[str, str] = {}
    ids: dict[ToolKey, str] = {}
    for number, row in enumerate(rows):
        server = row.get("server") or row["name"]
        own = tools.setdefault(server, {})
        name = row["name"]
        while name in own:
            name += "_"
        own[name] = Tool(
            server=server,
            name=name,
            description=row.get("description") or "",
            raw=b"",
            parts={"inputSchema": json.dumps(row.get("inputSchema") or {}).encode()},
            schema_hash=str(number),
            content_hash=str(number),
        )
        about[server] = row.get("server_description") or ""
        ids[server, name] = row["id"]
    ready = ServerStatus(state=ServerState.READY)
    servers = {
        server: ServerEntry(
            name=server, description=about[server], status=ready, lists={Kind.TOOL: KnownList(definitions=own)}
        )
        for server, own in tools.items()
    }
    return Tools(servers=servers, ids=ids)


def measure(query: Row, ranking: list[str]) -> dict[str, float]:
    """The quality of a ranking: recall by slots (any tool of a slot counts), reciprocal rank, graded nDCG."""
    slots = [set(slot) for slot in query["slots"]]
    grades = query.get("grades") or {}
    scores = {f"R@{k}": sum(bool(slot & set(ranking[:k])) for slot in slots) / len(slots) for k in (1, 5, 10)}
    wanted = set().union(*slots)
    ranks = (1 / rank for rank, tool in enumerate(ranking[:DEPTH], 1) if tool in wanted)
    scores["MRR"] = next(ranks, 0.0)
    scores["nDCG@10"] = _gain(slots, grades, ranking) / _ideal(slots, grades)
    return scores


def _gain(slots: list[set[str]], grades: dict[str, float], ranking: list[str]) -> float:
    left = list(slots)
    gain = 0.0
    for position, tool in enumerate(ranking[:10]):
        slot = next((each for each in left if tool in each), None)
        if slot is not None:
            left.remove(slot)
            gain += grades.get(tool, 1) / math.log2(position + 2)
    return gain


def _ideal(slots: list[set[str]], grades: dict[str, float]) -> float:
    best = sorted((max(grades.get(tool, 1) for tool in slot) for slot in slots), reverse=True)[:10]
    return sum(grade / math.log2(position + 2) for position, grade in enumerate(best))
