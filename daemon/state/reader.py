"""Reads rows into records. Every cell is checked; of edited rows, only invalid ones are left out."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from daemon.catalog.listing import read_definitions
from daemon.catalog.loaded import Loaded, LoadedTool, SessionRecord
from daemon.facts import SelfDescription, ServerRecord
from daemon.model import Approval, Definition, GivenName, Kind, Summary, Tool, ToolKey
from daemon.state.sql import among, chunks

# ruff: noqa: S608 - only our own names are formatted into statements; every value is bound

if TYPE_CHECKING:
    from daemon.state.sql import Row, Transaction


# The hash only tells whether a summary is about these contents: of thousands of tools, few have one.
_OF_TOOLS = (
    "server, name, raw, CASE WHEN summary IS NULL THEN NULL ELSE schema_hash END AS summary_of, summary,"
    " keywords, summary_generated_at, since"
)

_BY_OTHERS = "version > :since AND writer <> :me"

_Number = Annotated[int, msgspec.Meta(ge=0)]


class _ServerCells(msgspec.Struct):
    name: str
    fingerprint: str
    epoch: _Number
    refreshed_at: float


_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode

RecordT = TypeVar("RecordT")


def moment(cell: object) -> float:
    """The time in a cell, in seconds since the epoch; infinity if the cell holds no number."""
    return float(cell) if isinstance(cell, int | float) else inf


class Reader:
    """Reads records within one transaction, and lists the rows that it could not read."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.unreadable: list[str] = []
        """The rows that were left out, each with the reason."""

    def servers(self, names: Collection[str] | None = None) -> tuple[ServerRecord, ...]:
        """The records of these servers, or of all, by name."""
        listed: dict[str, list[Row]] = defaultdict(list)
        for row in self._all(f"SELECT {_OF_TOOLS} FROM tools", "server", names, "ORDER BY server, position"):
            listed[row["server"]].append(row)
        beside: dict[str, list[Row]] = defaultdict(list)
        for row in self._all("SELECT server, kind, definitions FROM lists", "server", names):
            beside[row["server"]].append(row)
        found = self._all("SELECT * FROM servers", "name", names, "ORDER BY name")
        records = (self._server(row, listed[row["name"]], beside[row["name"]]) for row in found)
        return tuple(record for record in records if record is not None)

    def names(self) -> tuple[GivenName, ...]:
        """The given names, and the owners of URIs."""
        given = []
        for row in self._transaction.rows("SELECT * FROM given_names"):
            key, beside, since = (row["server"], row["own"]), bool(row["beside"]), moment(row["since"])
            cells = {"kind": row["kind"], "name": row["name"], "key": key, "beside": beside, "since": since}
            given.append(self._record(GivenName, f"the name {row['name']}", cells))
        return tuple(name for name in given if name is not None)

    def approvals(self, since: int = -1, writer: str = "") -> tuple[Approval, ...]:
        """All approvals, or others' since a version: oldest first, a list's before its definitions'."""
        found = []
        query = f'SELECT *, by_whom AS "by" FROM approvals WHERE {_BY_OTHERS} ORDER BY at, name'
        for row in self._transaction.rows(query, {"since": since, "me": writer}):
            what = f"the approval of {row['kind']} {row['name']}"
            each = self._record(Approval, what, row)
            if each is not None and digest(each) == row["digest"]:
                found.append(each)
            elif each is not None:
                self.unreadable.append(f"{what}: its digest does not match")
        return tuple(found)

    def sessions(self, keys: Iterable[str]) -> dict[str, SessionRecord]:
        """The stored sessions with these keys, by key."""
        found: dict[str, SessionRecord] = {}
        for chunk in chunks(keys):
            held = self._loaded(chunk)
            for row in self._all("SELECT * FROM sessions", "key", chunk):
                cells = {**row, "loaded": Loaded(held[row["key"]])}
                session = self._record(SessionRecord, f"session {row['key']}", cells)
                if session is not None:
                    found[session.key] = session
        return found

    def newest(self, limit: int) -> tuple[SessionRecord, ...]:
        """The most recently used sessions, newest first."""
        order = "SELECT key FROM sessions ORDER BY seen_at DESC, key LIMIT :limit"
        keys = [row["key"] for row in self._transaction.rows(order, {"limit": limit})]
        found = self.sessions(keys)
        return tuple(found[key] for key in keys if key in found)

    def switched(self) -> frozenset[tuple[str, str]]:
        """The servers and tools that are switched off."""
        off = self._transaction.rows("SELECT server, tool FROM switches WHERE switched_off = 1")
        return frozenset((str(row["server"]), str(row["tool"])) for row in off)

    def counted(self) -> tuple[dict[str, int], float]:
        """All counts by name, and when counting began; ignores cells without a number."""
        found = [
            row
            for row in self._transaction.rows("SELECT * FROM counts")
            if isinstance(row["value"], int) and isinstance(row["since"], int | float)
        ]
        since = min((float(row["since"]) for row in found), default=0.0)
        return {str(row["name"]): row["value"] for row in found}, since

    def changed(self, table: str, column: str, since: int, writer: str) -> list[str]:
        """The values of a column in rows that other writers wrote since a version."""
        query = f"SELECT {column} AS found FROM {table} WHERE {_BY_OTHERS}"
        return [row["found"] for row in self._transaction.rows(query, {"since": since, "me": writer})]

    def sessions_changed(self, since: int, writer: str, keys: Iterable[str]) -> list[str]:
        """The keys of sessions that other writers changed since a version, loaded tools included."""
        changed: set[str] = set()
        for chunk in chunks(keys):
            marks, values = among(chunk)
            for table, column in (("sessions", "key"), ("loaded_tools", "session")):
                query = f"SELECT {column} AS key FROM {table} WHERE {_BY_OTHERS} AND {column} IN {marks}"
                found = self._transaction.rows(query, {**values, "since": since, "me": writer})
                changed.update(row["key"] for row in found)
        return sorted(changed)

    def _all(self, query: str, column: str, names: Collection[str] | None, order: str = "") -> Iterator[Row]:
        if names is None:
            yield from self._transaction.rows(f"{query} {order}")
            return
        for chunk in chunks(names):
            marks, values = among(chunk)
            yield from self._transaction.rows(f"{query} WHERE {column} IN {marks} {order}", values)

    def _record(self, kind: type[RecordT], what: str, cells: Mapping[str, object]) -> RecordT | None:
        """Make a record of the cells that are its members, and check these; ignore other cells."""
        try:
            return msgspec.convert(dict(cells), kind)
        except msgspec.ValidationError as fault:
            self.unreadable.append(f"{what}: {fault}")
            return None

    def _server(self, row: Row, listed: list[Row], beside: list[Row]) -> ServerRecord | None:
        cells = self._record(_ServerCells, f"server {row['name']}", row)
        if cells is None:
            return None
        name = cells.name
        known = self._tools(name, listed)
        # A summary of other contents does not apply to these.
        summed = [(row, tool) for row, tool in known if row["summary_of"] == tool.schema_hash]
        sentences = {
            tool.schema_hash: sentence
            for row, tool in summed
            if (sentence := self._summary(f"tool {name}/{tool.name}", row)) is not None
        }
        return ServerRecord(
            server=name,
            fingerprint=cells.fingerprint,
            epoch=cells.epoch,
            refreshed_at=cells.refreshed_at,
            summary=self._summary(f"server {name}", row),
            sentences=sentences,
            since={tool.name: moment(row["since"]) for row, tool in known},
            said=SelfDescription(
                about=row["about"] if isinstance(row["about"], str) else "",
                introduction=row["introduction"] if isinstance(row["introduction"], bytes) else b"",
            ),
            lists={
                **({Kind.TOOL: tuple(tool for _, tool in known)} if row["listed"] else {}),
                **dict(_lists(name, beside, self.unreadable)),
            },
        )

    def _tools(self, server: str, listed: list[Row]) -> list[tuple[Row, Tool]]:
        known: dict[str, tuple[Row, Tool]] = {}
        for row in listed:
            tool, fault = _tool(server, row["raw"])
            if tool is not None and tool.name in known:
                fault = f"its contents say that it is {tool.name}, and that tool exists already"
            elif tool is not None:
                known[tool.name] = row, tool
                continue
            self.unreadable.append(f"tool {server}/{row['name']}: {fault}")
        return list(known.values())

    def _summary(self, what: str, row: Row) -> Summary | None:
        if row["summary"] is None:
            return None
        try:
            keywords = msgspec.json.decode(row["keywords"], type=tuple[str, ...])
        except (msgspec.MsgspecError, TypeError) as fault:
            self.unreadable.append(f"the summary of {what}: keywords: {fault}")
            return None
        cells = {"text": row["summary"], "of": row["summary_of"], "at": row["summary_generated_at"]}
        return self._record(Summary, f"the summary of {what}", {**cells, "keywords": keywords})

    def _loaded(self, keys: list[str]) -> Mapping[str, dict[ToolKey, LoadedTool]]:
        held: dict[str, dict[ToolKey, LoadedTool]] = defaultdict(dict)
        order = "ORDER BY position, loaded_at, server, tool"
        for row in self._all("SELECT * FROM loaded_tools", "session", keys, order):
            cells = {
                "key": (row["server"], row["tool"]),
                "schema_hash": row["loaded_schema_hash"],
                "epoch": row["loaded_epoch"],
                "source": row["source"],
                "at": row["loaded_at"],
                "verdict": {
                    "status": row["status"],
                    "reason": row["invalid_reason"],
                    "renamed_to": row["renamed_to"],
                },
                "judged_at": row["updated_at"],
            }
            what = f"{row['server']}/{row['tool']}, loaded by session {row['session']}"
            if (tool := self._record(LoadedTool, what, cells)) is not None:
                held[row["session"]][tool.key] = tool
        return held


def digest(approval: Approval) -> str:
    """The digest of an approval's subject, for the key of its row: a URI may be too long for a key."""
    named = f"{approval.identity} {approval.kind} {approval.name}\n"
    return hashlib.sha256(named.encode() + approval.raw).hexdigest()


def _tool(server: str, raw: object) -> tuple[Tool | None, str]:
    if not isinstance(raw, bytes):
        return None, "raw is not bytes"
    usable, faulty = read_definitions(Kind.TOOL, server, [msgspec.Raw(raw)])
    return (usable[0], "") if usable else (None, next(iter(faulty.values())))


def _lists(
    server: str, rows: list[Row], unreadable: list[str]
) -> Iterator[tuple[Kind, tuple[Definition, ...]]]:
    for row in rows:
        try:
            kind, raws = Kind(row["kind"]), _decode_list(row["definitions"])
        except (ValueError, TypeError, RecursionError) as fault:
            unreadable.append(f"the list {row['kind']} of server {server}: {fault}")
            continue
        definitions, faulty = read_definitions(kind, server, raws)
        unreadable += (f"{kind} {name} of server {server}: {why}" for name, why in faulty.items())
        if definitions or not raws:
            yield kind, definitions
