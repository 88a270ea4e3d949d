"""From rows to records. A row that somebody has edited into nonsense costs itself, never its neighbours."""

# ruff: noqa: S608 - what is put into statements are names of ours; every value is bound

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Raw

from daemon.catalog.listing import read_tools
from daemon.catalog.loaded import Loaded, LoadedStatus, LoadedTool, Source, Verdict
from daemon.catalog.remembered import ServerRecord, SessionRecord
from daemon.model import GivenName
from daemon.store import rows
from daemon.store.connection import among, scalar
from daemon.store.rows import Unreadable
from daemon.store.schema import counts, loaded, servers, sessions, tool_names
from daemon.store.translating import Trouble

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from daemon.model import Summary, Tool, ToolKey
    from daemon.store.connection import Connection, Row

# A hash only tells whether the sentence is about these contents: of thousands of tools, few have one.
_OF_TOOLS = (
    "server, name, raw, CASE WHEN summary IS NULL THEN NULL ELSE schema_hash END AS schema_hash, summary,"
    " keywords, summary_generated_at, since"
)

_BY_OTHERS = "version > :since AND writer <> :me"


class Reader:
    """Reads within one transaction, and remembers what it could not read."""

    def __init__(self, connection: Connection) -> None:
        """Take the transaction's connection."""
        self._connection = connection
        self.unreadable: list[str] = []
        """Each row that was left out, with the reason."""

    def version(self) -> int:
        """How many transactions have written."""
        now: int | None = scalar(self._connection, "SELECT value FROM version")
        if now is None:
            raise Trouble(LookupError("its table 'version' is empty"))
        return now

    def servers(self, names: Collection[str] | None = None) -> tuple[ServerRecord, ...]:
        """What is known of these servers, or of all, by name."""
        listed: dict[str, list[Row]] = defaultdict(list)
        for row in self._all(f"SELECT {_OF_TOOLS} FROM tools", "server", names, "ORDER BY server, position"):
            listed[row["server"]].append(row)
        found = self._all(f"SELECT {servers.listed} FROM servers", "name", names, "ORDER BY name")
        records = (self._server(row, listed[row["name"]]) for row in found)
        return tuple(record for record in records if record is not None)

    def names(self) -> tuple[GivenName, ...]:
        """The names that tools were given."""
        found = [
            self._name(row) for row in self._connection.rows(f"SELECT {tool_names.listed} FROM tool_names")
        ]
        return tuple(each for each in found if each is not None)

    def sessions(self, keys: Iterable[str]) -> dict[str, SessionRecord]:
        """The sessions that there are of these, by key."""
        found: dict[str, SessionRecord] = {}
        for chunk in rows.chunks(keys):
            held = self._loaded(chunk)
            for row in self._all(f"SELECT {sessions.listed} FROM sessions", "key", chunk):
                record = self._session(row, held[row["key"]])
                if record is not None:
                    found[record.key] = record
        return found

    def newest(self, limit: int) -> tuple[SessionRecord, ...]:
        """The sessions that were used last, the latest first."""
        order = "SELECT key FROM sessions ORDER BY seen_at DESC, key LIMIT :limit"
        keys = [row["key"] for row in self._connection.rows(order, {"limit": limit})]
        found = self.sessions(keys)
        return tuple(found[key] for key in keys if key in found)

    def switched(self) -> frozenset[tuple[str, str]]:
        """What is switched off."""
        off = self._connection.rows("SELECT server, tool FROM switches WHERE switched_off = 1")
        return frozenset((str(row["server"]), str(row["tool"])) for row in off)

    def counted(self) -> tuple[dict[str, int], float]:
        """What was ever counted, by name, and since when; what is no number is left out."""
        found = [
            row
            for row in self._connection.rows(f"SELECT {counts.listed} FROM counts")
            if isinstance(row["value"], int) and isinstance(row["since"], int | float)
        ]
        since = min((float(row["since"]) for row in found), default=0.0)
        return {str(row["name"]): row["value"] for row in found}, since

    def servers_changed(self, since: int, writer: str) -> list[str]:
        """Names of servers that others wrote."""
        changed = f"SELECT name FROM servers WHERE {_BY_OTHERS}"
        return [row["name"] for row in self._connection.rows(changed, {"since": since, "me": writer})]

    def sessions_changed(self, since: int, writer: str, keys: Iterable[str]) -> list[str]:
        """Those keys whose session others wrote, or any of whose loaded tools."""
        changed: set[str] = set()
        for chunk in rows.chunks(keys):
            marks, values = among(chunk)
            for table, column in (("sessions", "key"), ("loaded_tools", "session")):
                query = f"SELECT {column} AS key FROM {table} WHERE {_BY_OTHERS} AND {column} IN {marks}"
                found = self._connection.rows(query, {**values, "since": since, "me": writer})
                changed.update(row["key"] for row in found)
        return sorted(changed)

    def names_changed(self, since: int, writer: str) -> bool:
        """Whether others gave tools names."""
        return self._changed("tool_names", since, writer)

    def switches_changed(self, since: int, writer: str) -> bool:
        """Whether others switched anything."""
        return self._changed("switches", since, writer)

    def _changed(self, table: str, since: int, writer: str) -> bool:
        changed = f"SELECT version FROM {table} WHERE {_BY_OTHERS} LIMIT 1"
        return scalar(self._connection, changed, {"since": since, "me": writer}) is not None

    def _all(self, query: str, column: str, names: Collection[str] | None, order: str = "") -> Iterator[Row]:
        if names is None:
            yield from self._connection.rows(f"{query} {order}")
            return
        for chunk in rows.chunks(names):
            marks, values = among(chunk)
            yield from self._connection.rows(f"{query} WHERE {column} IN {marks} {order}", values)

    def _server(self, row: Row, listed: list[Row]) -> ServerRecord | None:
        try:
            epoch, refreshed_at = (
                rows.whole(row["epoch"], "epoch"),
                rows.number(row["refreshed_at"], "refreshed_at"),
            )
            name, fingerprint = rows.text(row["name"], "name"), rows.text(row["fingerprint"], "fingerprint")
        except Unreadable as fault:
            self.unreadable.append(f"server {row['name']}: {fault}")
            return None
        known, sentences, since = self._tools(name, listed)
        return ServerRecord(
            name=name,
            fingerprint=fingerprint,
            epoch=epoch,
            tools=known if row["listed"] else None,
            refreshed_at=refreshed_at,
            summary=self._summary(f"server {name}", row, row["summary_of"]),
            sentences=sentences,
            since=since,
            about=row["about"] if isinstance(row["about"], str) else "",
        )

    def _tools(
        self, server: str, listed: list[Row]
    ) -> tuple[tuple[Tool, ...], dict[str, Summary], dict[str, float]]:
        """The tools in these rows, what was said of them, and since when they are so."""
        known = self._read(server, listed)
        sentences: dict[str, Summary] = {}
        for row, tool in known:
            # A sentence about other contents is none about these.
            if row["summary"] is not None and row["schema_hash"] == tool.schema_hash:
                sentence = self._summary(f"tool {server}/{tool.name}", row, tool.schema_hash)
                sentences |= {} if sentence is None else {tool.schema_hash: sentence}
        since = {tool.name: rows.moment(row["since"]) for row, tool in known}
        return tuple(tool for _, tool in known), sentences, since

    def _read(self, server: str, listed: list[Row]) -> list[tuple[Row, Tool]]:
        """The tools in these rows, each with its row."""
        raws = [row["raw"] for row in listed]
        if all(isinstance(raw, bytes) for raw in raws):
            tools, _ = read_tools(server, map(Raw, raws))
            if len(tools) == len(listed):
                return list(zip(listed, tools, strict=True))
        # Somebody has edited one of them: one by one, it is known which.
        known: dict[str, tuple[Row, Tool]] = {}
        for row in listed:
            try:
                tool = _tool(server, row["raw"], known)
            except Unreadable as fault:
                self.unreadable.append(f"tool {server}/{row['name']}: {fault}")
            else:
                known[tool.name] = row, tool
        return list(known.values())

    def _summary(self, what: str, row: Row, of: object) -> Summary | None:
        try:
            return rows.summary(row["summary"], row["keywords"], of, row["summary_generated_at"])
        except Unreadable as fault:
            self.unreadable.append(f"the summary of {what}: {fault}")
            return None

    def _name(self, row: Row) -> GivenName | None:
        try:
            return GivenName(
                name=rows.text(row["name"], "name"),
                key=(rows.text(row["server"], "server"), rows.text(row["tool"], "tool")),
                beside=bool(row["beside"]),
                since=rows.moment(row["since"]),
            )
        except Unreadable as fault:
            self.unreadable.append(f"the name {row['name']}: {fault}")
            return None

    def _loaded(self, keys: list[str]) -> Mapping[str, dict[ToolKey, LoadedTool]]:
        held: dict[str, dict[ToolKey, LoadedTool]] = defaultdict(dict)
        query = f"SELECT {loaded.listed} FROM loaded_tools"
        for row in self._all(query, "session", keys, "ORDER BY position, loaded_at, server, tool"):
            try:
                tool = _loaded_tool(row)
            except (Unreadable, ValueError) as fault:
                self.unreadable.append(
                    f"{row['server']}/{row['tool']}, loaded by session {row['session']}: {fault}"
                )
                continue
            held[row["session"]][tool.key] = tool
        return held

    def _session(self, row: Row, held: Mapping[ToolKey, LoadedTool]) -> SessionRecord | None:
        try:
            return SessionRecord(
                key=rows.text(row["key"], "key"),
                loaded=Loaded(held),
                client=rows.text(row["client"], "client"),
                created_at=rows.number(row["created_at"], "created_at"),
                seen_at=rows.number(row["seen_at"], "seen_at"),
            )
        except Unreadable as fault:
            self.unreadable.append(f"session {row['key']}: {fault}")
            return None


def _tool(server: str, raw: object, known: Collection[str]) -> Tool:
    if not isinstance(raw, bytes):
        raise Unreadable("raw is no bytes")
    usable, faulty = read_tools(server, [Raw(raw)])
    if not usable:
        raise Unreadable(next(iter(faulty.values())))
    if usable[0].name in known:
        raise Unreadable(f"its contents say that it is {usable[0].name}, which is there already")
    return usable[0]


def _loaded_tool(row: Row) -> LoadedTool:
    verdict = Verdict(
        status=LoadedStatus(row["status"]),
        reason=rows.text(row["invalid_reason"], "invalid_reason"),
        renamed_to=rows.some_text(row["renamed_to"], "renamed_to"),
    )
    return LoadedTool(
        key=(rows.text(row["server"], "server"), rows.text(row["tool"], "tool")),
        schema_hash=rows.text(row["loaded_schema_hash"], "loaded_schema_hash"),
        epoch=rows.whole(row["loaded_epoch"], "loaded_epoch"),
        source=Source(row["source"]),
        at=rows.number(row["loaded_at"], "loaded_at"),
        verdict=verdict,
        judged_at=rows.number(row["updated_at"], "updated_at"),
    )
