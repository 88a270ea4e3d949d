"""From records to rows, within one transaction whose number all changed rows are stamped with.

Only rows that differ are written: a session that loads its five hundredth tool costs one row. Writers take
turns by the counter's row, so what was read here stays true until the transaction ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from daemon.store import rows
from daemon.store.schema import counter, loaded, servers, sessions, switches, tools

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from daemon.catalog.loaded import LoadedStatus, LoadedTool, Verdict
    from daemon.catalog.remembered import ServerRecord, SessionRecord
    from daemon.model import Summary, Tool
    from daemon.store.values import Judge

    Values = dict[str, Any]


def next_version(connection: sa.Connection) -> int:
    """Begin to write: every other writer waits from here until the transaction ends."""
    connection.execute(sa.update(counter).values(value=counter.c.value + 1))
    now: int = connection.execute(sa.select(counter.c.value)).scalar_one()
    return now


class Writer:
    """Writes within one transaction."""

    def __init__(self, connection: sa.Connection, *, version: int, writer: str, seen: int, at: float) -> None:
        """Take what all rows of the transaction share.

        Args:
            connection: the transaction's.
            version: its number.
            writer: who writes.
            seen: the version up to which this writer knows what others wrote.
            at: seconds since the epoch.
        """
        self._connection = connection
        self._stamp: Values = {"version": version, "writer": writer}
        self._seen = seen
        self._at = at

    def server(self, record: ServerRecord) -> int:
        """Replace what is known of a server. Returns its epoch, which may be another one than was asked for.

        Not to have listed tools is no news about tools that are known: they stay, with what belongs to them.
        """
        old = self._connection.execute(sa.select(servers).where(servers.c.name == record.name)).first()
        present = self._tools_of(record.name)
        epoch = record.epoch if old is None else self._epoch(record, old, present)
        if record.tools is None and old is not None and old.listed:
            values = {**_without_stamp(old), "epoch": epoch}
        else:
            values = _server(record, epoch)
            self._tools(record, epoch, present)
        self._replace(servers, ("name",), [(record.name,)], [values])
        return epoch

    def sessions(self, records: Iterable[SessionRecord]) -> None:
        """Replace what is known of sessions, except for tools that others loaded into them meanwhile."""
        for chunk in rows.chunks({record.key: record for record in records}.values()):
            self._sessions({rows.clean(record.key): record for record in chunk})

    def touched(self, used: Mapping[str, float]) -> None:
        """Move times forward. Without a stamp: that would hide from us what others wrote there."""
        if used:
            later = sa.update(sessions).where(
                sessions.c.key == sa.bindparam("used"), sessions.c.seen_at < sa.bindparam("until")
            )
            later = later.values(seen_at=sa.bindparam("until"))
            self._connection.execute(
                later, [{"used": rows.clean(key), "until": at} for key, at in used.items()]
            )

    def switch(self, names: Collection[tuple[str, str]], *, off: bool) -> None:
        """Remember operators' words."""
        keys = [(rows.clean(server), rows.clean(tool)) for server, tool in sorted(names)]
        new = [{"server": key[0], "tool": key[1], "switched_off": int(off), "at": self._at} for key in keys]
        self._replace(switches, ("server", "tool"), keys, new)

    def mark(self, judge: Judge, names: Collection[str]) -> dict[LoadedStatus, int]:
        """Give the loaded tools of these servers the verdicts that they have now, in all sessions at once.

        What is judged alike is asked about once, and written with one statement, however many sessions have it.
        """
        columns = (*_JUDGED, *_VERDICT)
        marked: Counter[LoadedStatus] = Counter()
        for chunk in rows.chunks(names):
            query = sa.select(*columns).where(loaded.c.server.in_(chunk)).distinct()
            for row in self._connection.execute(query).all():
                verdict = judge(row.server, row.tool, row.loaded_schema_hash)
                now = _verdict(verdict)
                if now != dict(zip(now, row[len(_JUDGED) :], strict=True)):
                    change = sa.update(loaded).where(*map(_is, columns, row))
                    change = change.values(**now, updated_at=self._at, **self._stamp)
                    marked[verdict.status] += self._connection.execute(change).rowcount
        return dict(marked)

    def _epoch(self, record: ServerRecord, old: sa.Row[Any], present: Mapping[str, sa.Row[Any]]) -> int:
        """The epoch of a server that is known: it never falls, and one number never means two things."""
        stored = old.epoch if isinstance(old.epoch, int) else 0
        if stored < record.epoch:
            return record.epoch
        if record.tools is None or _hashes(present.values()) == {tool.schema_hash for tool in record.tools}:
            return stored
        ours = old.writer == self._stamp["writer"] and stored == record.epoch
        return stored if ours else stored + 1

    def _tools_of(self, server: str) -> dict[str, sa.Row[Any]]:
        # LargeBinary would turn what somebody has edited into no bytes into an error of the whole answer.
        raw = sa.type_coerce(tools.c.raw, sa.types.NullType()).label("raw")
        query = sa.select(raw, *(column for column in tools.c if column.name != "raw"))
        return {row.name: row for row in self._connection.execute(query.where(tools.c.server == server))}

    def _tools(self, record: ServerRecord, epoch: int, present: Mapping[str, sa.Row[Any]]) -> None:
        new: dict[str, Values] = {}
        for position, tool in enumerate(record.tools or ()):
            values = {"position": position, **_tool(tool, record.sentences.get(tool.schema_hash))}
            old = present.get(tool.name)
            if old is None or _differs(old, values):
                since = epoch if old is None or old.schema_hash != tool.schema_hash else old.epoch
                new[tool.name] = {**values, "server": record.name, "epoch": since, "updated_at": self._at}
        gone = present.keys() - {tool.name for tool in record.tools or ()}
        keys = [(record.name, name) for name in (*gone, *(present.keys() & new.keys()))]
        self._replace(tools, ("server", "name"), keys, new.values())

    def _sessions(self, records: Mapping[str, SessionRecord]) -> None:
        used = sa.select(sessions).where(sessions.c.key.in_(records))
        known = {row.key: row for row in self._connection.execute(used)}
        held: dict[str, dict[tuple[str, str], sa.Row[Any]]] = defaultdict(dict)
        for row in self._connection.execute(sa.select(loaded).where(loaded.c.session.in_(records))):
            held[row.session][row.server, row.tool] = row
        new = [
            values
            for key, record in records.items()
            if _differs(known.get(key), values := _session(key, record))
        ]
        for values in new:
            values["seen_at"] = _later(known.get(values["key"]), values["seen_at"])
        self._replace(sessions, ("key",), [(key,) for values in new if (key := values["key"]) in known], new)
        self._loaded({key: (record, held[key]) for key, record in records.items()})

    def _loaded(self, pairs: Mapping[str, tuple[SessionRecord, dict[tuple[str, str], sa.Row[Any]]]]) -> None:
        keys: list[tuple[str, ...]] = []
        new: list[Values] = []
        for session, (record, held) in pairs.items():
            now = {(each["server"], each["tool"]): each for each in _placed(session, record, held)}
            changed = {key: each for key, each in now.items() if _differs(held.get(key), each)}
            gone = [key for key, row in held.items() if key not in now and not self._unseen(row)]
            keys += [(session, *key) for key in (*gone, *(held.keys() & changed.keys()))]
            new += changed.values()
        self._replace(loaded, ("session", "server", "tool"), keys, new)
        # A row that is gone has no stamp: others see by the session's that there is less now.
        touched = {key[0] for key in keys} | {values["session"] for values in new}
        if touched:
            stamped = sa.update(sessions).where(sessions.c.key.in_(touched)).values(**self._stamp)
            self._connection.execute(stamped)

    def _unseen(self, row: sa.Row[Any]) -> bool:
        """Whether another daemon wrote it, and we cannot know of it yet."""
        return row.writer != self._stamp["writer"] and isinstance(row.version, int) and row.version > self._seen

    def _replace(
        self, table: sa.Table, names: tuple[str, ...], keys: Sequence[tuple[str, ...]], new: Iterable[Values]
    ) -> None:
        """Rows with these keys go, new ones come."""
        if keys:
            gone = sa.delete(table).where(*(table.c[name] == sa.bindparam(f"the_{name}") for name in names))
            bound = [{f"the_{name}": part for name, part in zip(names, key, strict=True)} for key in keys]
            self._connection.execute(gone, bound)
        if stamped := [{**values, **self._stamp} for values in new]:
            self._connection.execute(sa.insert(table), stamped)


_JUDGED = (loaded.c.server, loaded.c.tool, loaded.c.loaded_schema_hash)
_VERDICT = (loaded.c.status, loaded.c.invalid_reason, loaded.c.renamed_to)


def _is(column: sa.Column[Any], value: object) -> sa.ColumnElement[bool]:
    return column.is_(None) if value is None else column == value


def _differs(row: sa.Row[Any] | None, values: Values) -> bool:
    return row is None or any(getattr(row, name) != value for name, value in values.items())


def _later(row: sa.Row[Any] | None, at: float) -> float:
    return max(row.seen_at, at) if row is not None and isinstance(row.seen_at, int | float) else at


def _without_stamp(row: sa.Row[Any]) -> Values:
    return {name: value for name, value in row._mapping.items() if name not in {"version", "writer"}}  # noqa: SLF001


def _hashes(present: Iterable[sa.Row[Any]]) -> set[object]:
    return {row.schema_hash for row in present}


def _verdict(verdict: Verdict) -> Values:
    return {
        "status": str(verdict.status),
        "invalid_reason": rows.clean(verdict.reason),
        "renamed_to": verdict.renamed_to,
    }


def _summary(summary: Summary | None) -> Values:
    return {
        "summary": None if summary is None else rows.clean(summary.text),
        "keywords": None if summary is None else rows.words(summary.keywords),
        "summary_generated_at": None if summary is None else summary.at,
    }


def _server(record: ServerRecord, epoch: int) -> Values:
    return {
        "name": record.name,
        "fingerprint": record.fingerprint,
        "epoch": epoch,
        "listed": int(record.tools is not None),
        "refreshed_at": record.refreshed_at,
        **_summary(record.summary),
        "summary_of": None if record.summary is None else rows.clean(record.summary.of),
    }


def _tool(tool: Tool, sentence: Summary | None) -> Values:
    return {"name": tool.name, "raw": tool.raw, "schema_hash": tool.schema_hash, **_summary(sentence)}


def _session(key: str, record: SessionRecord) -> Values:
    return {
        "key": key,
        "client": rows.clean(record.client),
        "created_at": record.created_at,
        "seen_at": record.seen_at,
    }


def _placed(
    session: str, record: SessionRecord, held: Mapping[tuple[str, str], sa.Row[Any]]
) -> Iterator[Values]:
    """The rows of a session's tools. Those that stay in their order keep their places."""
    last = -1
    for tool in record.loaded.tools.values():
        row = held.get(tool.key)
        stays = row is not None and isinstance(row.position, int) and row.position > last
        last = row.position if row is not None and stays else last + 1
        yield {"session": session, "position": last, **_loaded_tool(tool)}


def _loaded_tool(tool: LoadedTool) -> Values:
    server, name = tool.key
    return {
        "server": server,
        "tool": name,
        "loaded_schema_hash": tool.schema_hash,
        "loaded_epoch": tool.epoch,
        **_verdict(tool.verdict),
        "source": str(tool.source),
        "loaded_at": tool.at,
        "updated_at": tool.judged_at,
    }
