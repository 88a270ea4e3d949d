"""From rows to records. A row that somebody has edited into nonsense costs itself, never its neighbours."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import sqlalchemy as sa
from msgspec import Raw

from daemon.catalog.listing import read_tools
from daemon.catalog.loaded import Loaded, LoadedStatus, LoadedTool, Source, Verdict
from daemon.catalog.remembered import ServerRecord, SessionRecord
from daemon.store import rows
from daemon.store.rows import Unreadable
from daemon.store.schema import counter, loaded, servers, sessions, switches, tools

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from daemon.model import Summary, Tool, ToolKey

    Row = sa.Row[*tuple[object, ...]]


class Reader:
    """Reads within one transaction, and remembers what it could not read."""

    def __init__(self, connection: sa.Connection) -> None:
        """Take the transaction's connection."""
        self._connection = connection
        self.unreadable: list[str] = []
        """Each row that was left out, with the reason."""

    def version(self) -> int:
        """How many transactions have written."""
        now: int = self._connection.execute(sa.select(counter.c.value)).scalar_one()
        return now

    def servers(self, names: Collection[str] | None = None) -> tuple[ServerRecord, ...]:
        """What is known of these servers, or of all, by name."""
        listed: dict[str, list[Row]] = defaultdict(list)
        # LargeBinary would turn what is no bytes into an error of the whole answer.
        raw = sa.type_coerce(tools.c.raw, sa.types.NullType()).label("raw")
        columns = (raw, *(column for column in tools.c if column.name != "raw"))
        for row in self._all(sa.select(*columns).order_by(tools.c.position), tools.c.server, names):
            listed[row.server].append(row)
        found = self._all(sa.select(servers).order_by(servers.c.name), servers.c.name, names)
        records = (self._server(row, listed[row.name]) for row in found)
        return tuple(record for record in records if record is not None)

    def sessions(self, keys: Iterable[str]) -> dict[str, SessionRecord]:
        """The sessions that there are of these, by key."""
        found: dict[str, SessionRecord] = {}
        for chunk in rows.chunks(keys):
            held = self._loaded(chunk)
            for row in self._connection.execute(sa.select(sessions).where(sessions.c.key.in_(chunk))):
                record = self._session(row, held[row.key])
                if record is not None:
                    found[record.key] = record
        return found

    def newest(self, limit: int) -> tuple[SessionRecord, ...]:
        """The sessions that were used last, the latest first."""
        order = sa.select(sessions.c.key).order_by(sessions.c.seen_at.desc(), sessions.c.key).limit(limit)
        keys = list(self._connection.execute(order).scalars())
        found = self.sessions(keys)
        return tuple(found[key] for key in keys if key in found)

    def switched(self) -> frozenset[tuple[str, str]]:
        """What is switched off."""
        off = sa.select(switches.c.server, switches.c.tool).where(switches.c.switched_off == 1)
        return frozenset((str(row.server), str(row.tool)) for row in self._connection.execute(off))

    def servers_changed(self, since: int, writer: str) -> list[str]:
        """Names of servers that others wrote."""
        changed = sa.select(servers.c.name).where(servers.c.version > since, servers.c.writer != writer)
        return list(self._connection.execute(changed).scalars())

    def sessions_changed(self, since: int, writer: str, keys: Iterable[str]) -> list[str]:
        """Those keys whose session others wrote, or any of whose loaded tools."""
        changed: set[str] = set()
        for chunk in rows.chunks(keys):
            for table, column in ((sessions, sessions.c.key), (loaded, loaded.c.session)):
                stamped = sa.and_(table.c.version > since, table.c.writer != writer, column.in_(chunk))
                changed |= set(self._connection.execute(sa.select(column).where(stamped)).scalars())
        return sorted(changed)

    def switches_changed(self, since: int, writer: str) -> bool:
        """Whether others switched anything."""
        changed = sa.select(switches.c.server).where(switches.c.version > since, switches.c.writer != writer)
        return self._connection.execute(changed.limit(1)).first() is not None

    def _all(
        self, query: sa.Select[*tuple[object, ...]], column: sa.Column[str], names: Collection[str] | None
    ) -> Iterable[Row]:
        if names is None:
            return self._connection.execute(query)
        found = (self._connection.execute(query.where(column.in_(chunk))) for chunk in rows.chunks(names))
        return (row for result in found for row in result)

    def _server(self, row: Row, listed: list[Row]) -> ServerRecord | None:
        try:
            epoch, refreshed_at = rows.whole(row.epoch, "epoch"), rows.number(row.refreshed_at, "refreshed_at")
            name, fingerprint = rows.text(row.name, "name"), rows.text(row.fingerprint, "fingerprint")
        except Unreadable as fault:
            self.unreadable.append(f"server {row.name}: {fault}")
            return None
        known, sentences = self._tools(name, listed)
        return ServerRecord(
            name=name,
            fingerprint=fingerprint,
            epoch=epoch,
            tools=known if row.listed else None,
            refreshed_at=refreshed_at,
            summary=self._summary(f"server {name}", row, row.summary_of),
            sentences=sentences,
        )

    def _tools(self, server: str, listed: list[Row]) -> tuple[tuple[Tool, ...], dict[str, Summary]]:
        known: dict[str, Tool] = {}
        sentences: dict[str, Summary] = {}
        for row in listed:
            try:
                tool = _tool(server, row.raw, known)
            except Unreadable as fault:
                self.unreadable.append(f"tool {server}/{row.name}: {fault}")
                continue
            known[tool.name] = tool
            # A sentence about other contents is none about these.
            if row.schema_hash == tool.schema_hash:
                sentence = self._summary(f"tool {server}/{tool.name}", row, tool.schema_hash)
                sentences |= {} if sentence is None else {tool.schema_hash: sentence}
        return tuple(known.values()), sentences

    def _summary(self, what: str, row: Row, of: object) -> Summary | None:
        try:
            return rows.summary(row.summary, row.keywords, of, row.summary_generated_at)
        except Unreadable as fault:
            self.unreadable.append(f"the summary of {what}: {fault}")
            return None

    def _loaded(self, keys: list[str]) -> Mapping[str, dict[ToolKey, LoadedTool]]:
        held: dict[str, dict[ToolKey, LoadedTool]] = defaultdict(dict)
        order = sa.select(loaded).where(loaded.c.session.in_(keys))
        order = order.order_by(loaded.c.position, loaded.c.loaded_at, loaded.c.server, loaded.c.tool)
        for row in self._connection.execute(order):
            try:
                tool = _loaded_tool(row)
            except (Unreadable, ValueError) as fault:
                self.unreadable.append(f"{row.server}/{row.tool}, loaded by session {row.session}: {fault}")
                continue
            held[row.session][tool.key] = tool
        return held

    def _session(self, row: Row, held: Mapping[ToolKey, LoadedTool]) -> SessionRecord | None:
        try:
            return SessionRecord(
                key=rows.text(row.key, "key"),
                loaded=Loaded(held),
                client=rows.text(row.client, "client"),
                created_at=rows.number(row.created_at, "created_at"),
                seen_at=rows.number(row.seen_at, "seen_at"),
            )
        except Unreadable as fault:
            self.unreadable.append(f"session {row.key}: {fault}")
            return None


def _tool(server: str, raw: object, known: Mapping[str, Tool]) -> Tool:
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
        status=LoadedStatus(row.status),
        reason=rows.text(row.invalid_reason, "invalid_reason"),
        renamed_to=rows.some_text(row.renamed_to, "renamed_to"),
    )
    return LoadedTool(
        key=(rows.text(row.server, "server"), rows.text(row.tool, "tool")),
        schema_hash=rows.text(row.loaded_schema_hash, "loaded_schema_hash"),
        epoch=rows.whole(row.loaded_epoch, "loaded_epoch"),
        source=Source(row.source),
        at=rows.number(row.loaded_at, "loaded_at"),
        verdict=verdict,
        judged_at=rows.number(row.updated_at, "updated_at"),
    )
