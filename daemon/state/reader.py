"""Reads rows into records. Every cell is checked; a row that was edited into nonsense is left out alone."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from daemon.catalog.listing import read_definitions
from daemon.catalog.loaded import Loaded, LoadedStatus, LoadedTool, SessionRecord, Source, Verdict
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


class _SummaryCells(msgspec.Struct):
    summary: str
    keywords: str
    summary_of: str
    summary_generated_at: float


class _NameCells(msgspec.Struct):
    kind: Kind
    name: str
    server: str
    own: str


class _SessionCells(msgspec.Struct):
    key: str
    client: str
    created_at: float
    seen_at: float


class _LoadedCells(msgspec.Struct):
    server: str
    tool: str
    loaded_schema_hash: str
    loaded_epoch: _Number
    status: LoadedStatus
    invalid_reason: str
    renamed_to: str | None
    source: Source
    loaded_at: float
    updated_at: float


_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode

CellsT = TypeVar("CellsT", bound=msgspec.Struct)


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
            cells = self._cells(_NameCells, row, f"the name {row['name']}")
            if cells is not None:
                key, beside, since = (cells.server, cells.own), bool(row["beside"]), moment(row["since"])
                given.append(GivenName(name=cells.name, key=key, kind=cells.kind, beside=beside, since=since))
        return tuple(given)

    def approvals(self, since: int = -1, writer: str = "") -> tuple[Approval, ...]:
        """All approvals, or others' since a version: oldest first, a list's before its definitions'."""
        found = []
        query = f'SELECT *, by_whom AS "by" FROM approvals WHERE {_BY_OTHERS} ORDER BY at, name'
        for row in self._transaction.rows(query, {"since": since, "me": writer}):
            what = f"the approval of {row['kind']} {row['name']}"
            each = self._cells(Approval, row, what)
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
                cells = self._cells(_SessionCells, row, f"session {row['key']}")
                if cells is not None:
                    given = msgspec.structs.asdict(cells)
                    found[cells.key] = SessionRecord(loaded=Loaded(held[cells.key]), **given)
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

    def _cells(self, cells: type[CellsT], row: Row, what: str) -> CellsT | None:
        try:
            return msgspec.convert(dict(row), cells)
        except msgspec.ValidationError as fault:
            self.unreadable.append(f"{what}: {fault}")
            return None

    def _server(self, row: Row, listed: list[Row], beside: list[Row]) -> ServerRecord | None:
        cells = self._cells(_ServerCells, row, f"server {row['name']}")
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
        raws = [row["raw"] for row in listed]
        if all(isinstance(raw, bytes) for raw in raws):
            tools, _ = read_definitions(Kind.TOOL, server, map(msgspec.Raw, raws))
            if len(tools) == len(listed):
                return list(zip(listed, tools, strict=True))
        # One of them was edited by hand: reading one by one finds which.
        known: dict[str, tuple[Row, Tool]] = {}
        for row in listed:
            tool, fault = _tool(server, row["raw"])
            if tool is not None and tool.name in known:
                fault = f"its contents say that it is {tool.name}, which is there already"
            elif tool is not None:
                known[tool.name] = row, tool
                continue
            self.unreadable.append(f"tool {server}/{row['name']}: {fault}")
        return list(known.values())

    def _summary(self, what: str, row: Row) -> Summary | None:
        if row["summary"] is None:
            return None
        cells = self._cells(_SummaryCells, row, f"the summary of {what}")
        if cells is None:
            return None
        try:
            keywords = msgspec.json.decode(cells.keywords, type=tuple[str, ...])
        except msgspec.MsgspecError as fault:
            self.unreadable.append(f"the summary of {what}: keywords: {fault}")
            return None
        return Summary(
            text=cells.summary, keywords=keywords, of=cells.summary_of, at=cells.summary_generated_at
        )

    def _loaded(self, keys: list[str]) -> Mapping[str, dict[ToolKey, LoadedTool]]:
        held: dict[str, dict[ToolKey, LoadedTool]] = defaultdict(dict)
        order = "ORDER BY position, loaded_at, server, tool"
        for row in self._all("SELECT * FROM loaded_tools", "session", keys, order):
            what = f"{row['server']}/{row['tool']}, loaded by session {row['session']}"
            cells = self._cells(_LoadedCells, row, what)
            if cells is not None:
                held[row["session"]][cells.server, cells.tool] = LoadedTool(
                    key=(cells.server, cells.tool),
                    schema_hash=cells.loaded_schema_hash,
                    epoch=cells.loaded_epoch,
                    source=cells.source,
                    at=cells.loaded_at,
                    verdict=Verdict(
                        status=cells.status, reason=cells.invalid_reason, renamed_to=cells.renamed_to
                    ),
                    judged_at=cells.updated_at,
                )
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
