"""Writes records as rows, in one transaction whose number is stamped on all changed rows.

Only rows that differ are written. The counter's row serializes writers, so rows that were read stay valid.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.catalog.definitions import tools_digest
from daemon.state.reader import digest, moment
from daemon.state.sql import Transaction, among, chunks, clean

# ruff: noqa: S608 - only our own names are formatted into statements; every value is bound

if TYPE_CHECKING:
    from daemon.facts import ServerRecord

    Values = dict[str, Any]

    from daemon.catalog.loaded import LoadedStatus, LoadedTool, SessionRecord, Verdict
    from daemon.model import Approval, Definition, GivenName, Summary, Tool
    from daemon.state.sql import Judge, Row


MAX_IDENTITIES = 1000
"""Most identities with approvals, the latest: each edit of a command makes one, in some 30 kB of memory."""

_LATEST = f"SELECT identity FROM approvals GROUP BY identity ORDER BY max(at) DESC LIMIT {MAX_IDENTITIES}"


class StampedRows:
    """Writes rows in one transaction, each with the transaction's stamp."""

    def __init__(self, transaction: Transaction, *, version: int, writer: str) -> None:
        self._transaction = transaction
        self._stamp: Values = {"version": version, "writer": writer}

    def drop(self, table: str, keys: Sequence[str], gone: Sequence[Values]) -> None:
        """Delete the rows that have these values in these columns."""
        if gone:
            wanted = " AND ".join(f"{name} = :{name}" for name in keys)
            self._transaction.change_each(f"DELETE FROM {table} WHERE {wanted}", gone)

    def put(self, table: str, keys: Sequence[str], new: Sequence[Values]) -> None:
        """Insert rows, replacing those with the same values in the key columns."""
        self._transaction.put(table, keys, [{**values, **self._stamp} for values in new])

    def change(self, table: str, old: Values, new: Values) -> int:
        """Give rows that have the old values the new ones; returns the number of changed rows."""
        stamped = {**new, **self._stamp}
        changes = ", ".join(f"{name} = :{name}" for name in stamped)
        were = (f"{name} IS NULL" if value is None else f"{name} = :old_{name}" for name, value in old.items())
        values = {f"old_{name}": value for name, value in old.items() if value is not None}
        statement = f"UPDATE {table} SET {changes} WHERE {' AND '.join(were)}"
        return self._transaction.change(statement, {**values, **stamped})

    def touch(self, table: str, key: str, changed: Collection[str]) -> None:
        """Stamp rows as if written, since rows that belong to them have changed."""
        if changed:
            marks, values = among(changed)
            stamped = f"UPDATE {table} SET version = :version, writer = :writer WHERE {key} IN {marks}"
            self._transaction.change(stamped, {**values, **self._stamp})


class Writer:
    """Writes records within one transaction."""

    def __init__(self, transaction: Transaction, *, version: int, writer: str, seen: int, at: float) -> None:
        """`seen` is the version up to which this daemon knows other daemons' writes."""
        self._transaction = transaction
        self._rows = StampedRows(transaction, version=version, writer=writer)
        self._writer = writer
        self._seen = seen
        self._at = at

    def server(self, record: ServerRecord) -> int:
        """Replace a server's record, but keep its tools if `record` has none; returns the epoch it got."""
        values = {"server": record.server}
        query = "SELECT * FROM servers WHERE name = :server"
        old = next(iter(self._transaction.rows(query, values)), None)
        query = "SELECT * FROM tools WHERE server = :server"
        present = {row["name"]: row for row in self._transaction.rows(query, values)}
        query = "SELECT * FROM lists WHERE server = :server"
        lists = {row["kind"]: row for row in self._transaction.rows(query, values)}
        epoch = record.epoch if old is None else _epoch(self._writer, record, old, present, lists)
        if record.tools is None and old is not None and old["listed"]:
            row = {**_without_stamp(old), "epoch": epoch}
        else:
            row = _server(record, epoch)
            self._tools(record, epoch, present)
            self._lists(record, lists)
        self._rows.put("servers", ("name",), [row])
        return epoch

    def sessions(self, records: Iterable[SessionRecord]) -> int:
        """Replace sessions, but keep tools that others loaded meanwhile; returns the number of new sessions."""
        unique = {record.key: record for record in records}.values()
        return sum(self._sessions({clean(each.key): each for each in chunk}) for chunk in chunks(unique))

    def touched(self, used: Mapping[str, float]) -> None:
        """Move last uses forward, without a stamp: it would hide other daemons' changes of the row."""
        if used:
            later = "UPDATE sessions SET seen_at = :until WHERE key = :used AND seen_at < :until"
            each = [{"used": clean(key), "until": at} for key, at in used.items()]
            self._transaction.change_each(later, each)

    def counted(self, more: Mapping[str, int]) -> None:
        """Add increments to counts."""
        rows = [{"name": clean(name), "value": count, "since": self._at} for name, count in more.items()]
        self._transaction.put("counts", ("name",), rows, adding="value")

    def names(self, given: Iterable[GivenName], gone: Iterable[GivenName]) -> None:
        """Store given names, and delete gone ones; a name that two daemons gave stays with the first tool."""
        left = [{**_named(each), **_owner(each)} for each in gone]
        self._rows.drop("given_names", ("kind", "name", "server", "own"), left)
        for chunk in chunks(given):
            marks, values = among(clean(each.name) for each in chunk)
            query = f"SELECT * FROM given_names WHERE name IN {marks}"
            known = {(row["kind"], row["name"]): row for row in self._transaction.rows(query, values)}
            self._rows.put("given_names", ("kind", "name"), _newly_named(chunk, known))

    def approvals(self, given: Collection[Approval]) -> None:
        """Store approvals; beyond `MAX_IDENTITIES` identities, those with the oldest last approval go."""
        if given:
            self._rows.put("approvals", ("identity", "digest"), [_approval(each) for each in given])
            self._transaction.change(f"DELETE FROM approvals WHERE identity NOT IN ({_LATEST})")

    def switch(self, names: Collection[tuple[str, str]], *, off: bool) -> None:
        """Store operators' switches."""
        keys = [(clean(server), clean(tool)) for server, tool in sorted(names)]
        new = [{"server": key[0], "tool": key[1], "switched_off": int(off), "at": self._at} for key in keys]
        self._rows.put("switches", ("server", "tool"), new)

    def mark(self, judge: Judge, names: Collection[str]) -> dict[LoadedStatus, int]:
        """Store verdicts on these servers' loaded tools; one statement changes all sessions' equal rows."""
        marked: Counter[LoadedStatus] = Counter()
        columns = ", ".join((*_JUDGED, *_VERDICT))
        # In the order of the index that has all of these columns, so that no row is read and nothing sorted.
        query = f"SELECT DISTINCT {columns} FROM loaded_tools WHERE server = :server"
        for server in names:
            for row in [dict(row) for row in self._transaction.rows(query, {"server": clean(server)})]:
                verdict = judge(row["server"], row["tool"], row["loaded_schema_hash"])
                now = _verdict(verdict)
                if any(row[name] != value for name, value in now.items()):
                    marked[verdict.status] += self._rows.change(
                        "loaded_tools", row, {**now, "updated_at": self._at}
                    )
        return dict(marked)

    def _tools(self, record: ServerRecord, epoch: int, present: Mapping[str, Row]) -> None:
        new: list[Values] = []
        for position, tool in enumerate(record.tools or ()):
            values = {"position": position, **_tool(tool, record.sentences.get(tool.schema_hash))}
            old = present.get(tool.name)
            values["since"] = _latest(record.since.get(tool.name, inf), tool, old)
            if old is None or _differs(old, values):
                since = epoch if old is None or old["schema_hash"] != tool.schema_hash else old["epoch"]
                new.append({**values, "server": record.server, "epoch": since, "updated_at": self._at})
        gone = present.keys() - {tool.name for tool in record.tools or ()}
        self._rows.drop("tools", ("server", "name"), [{"server": record.server, "name": name} for name in gone])
        self._rows.put("tools", ("server", "name"), new)

    def _lists(self, record: ServerRecord, present: Mapping[str, Row]) -> None:
        now = {kind: _list(definitions) for kind, definitions in record.definitions.items()}
        gone = [{"server": record.server, "kind": kind} for kind in present.keys() - now.keys()]
        self._rows.drop("lists", ("server", "kind"), gone)
        for kind, values in now.items():
            if _differs(present.get(kind), values):
                self._rows.put(
                    "lists", ("server", "kind"), [{"server": record.server, "kind": str(kind), **values}]
                )

    def _sessions(self, records: Mapping[str, SessionRecord]) -> int:
        marks, keys = among(records)
        used = f"SELECT * FROM sessions WHERE key IN {marks}"
        known = {row["key"]: row for row in self._transaction.rows(used, keys)}
        held: dict[str, dict[tuple[str, str], Row]] = defaultdict(dict)
        query = f"SELECT * FROM loaded_tools WHERE session IN {marks}"
        for row in self._transaction.rows(query, keys):
            held[row["session"]][row["server"], row["tool"]] = row
        new = [
            values
            for key, record in records.items()
            if _differs(known.get(key), values := _session(key, record))
        ]
        for values in new:
            values["seen_at"] = _later(known.get(values["key"]), values["seen_at"])
        self._rows.put("sessions", ("key",), new)
        self._loaded({key: (record, held[key]) for key, record in records.items()})
        return len(records.keys() - known.keys())

    def _loaded(self, pairs: Mapping[str, tuple[SessionRecord, dict[tuple[str, str], Row]]]) -> None:
        gone: list[Values] = []
        new: list[Values] = []
        for session, (record, held) in pairs.items():
            now = {(each["server"], each["tool"]): each for each in _placed(session, record, held)}
            new += [each for key, each in now.items() if _differs(held.get(key), each)]
            left = {key: row for key, row in held.items() if key not in now}
            gone += [
                {"session": session, "server": server, "tool": tool}
                for (server, tool), row in left.items()
                if not self._unseen(row)
            ]
        self._rows.drop("loaded_tools", ("session", "server", "tool"), gone)
        self._rows.put("loaded_tools", ("session", "server", "tool"), new)
        # A deleted row has no stamp: others learn of it by the stamp of the session.
        self._rows.touch("sessions", "key", {values["session"] for values in (*gone, *new)})

    def _unseen(self, row: Row) -> bool:
        """Whether another daemon wrote the row and this one cannot know of it yet."""
        version = row["version"]
        return row["writer"] != self._writer and isinstance(version, int) and version > self._seen


_JUDGED = ("server", "loaded_schema_hash", "tool")
_VERDICT = ("status", "invalid_reason", "renamed_to")


def _epoch(
    writer: str, record: ServerRecord, old: Row, present: Mapping[str, Row], lists: Mapping[str, Row]
) -> int:
    """The next epoch of a stored server: an epoch never falls, and never stands for two different lists."""
    stored = old["epoch"] if isinstance(old["epoch"], int) else 0
    if stored < record.epoch:
        return record.epoch
    if record.tools is None or _shows_the_same(record, present, lists):
        return stored
    ours = old["writer"] == writer and stored == record.epoch
    return stored if ours else stored + 1


def _shows_the_same(record: ServerRecord, present: Mapping[str, Row], lists: Mapping[str, Row]) -> bool:
    empty = _digest(())
    digests = {kind: _digest(definitions) for kind, definitions in record.definitions.items() if definitions}
    stored = {kind: row["digest"] for kind, row in lists.items() if row["digest"] != empty}
    hashes = {row["schema_hash"] for row in present.values()}
    return hashes == {tool.schema_hash for tool in record.tools or ()} and digests == stored


def _differs(row: Row | None, values: Values) -> bool:
    return row is None or any(row[name] != value for name, value in values.items())


def _later(row: Row | None, at: float) -> float:
    return max(row["seen_at"], at) if row is not None and isinstance(row["seen_at"], int | float) else at


def _without_stamp(row: Row) -> Values:
    return {name: cell for name, cell in dict(row).items() if name not in {"version", "writer"}}


def _verdict(verdict: Verdict) -> Values:
    return {
        "status": str(verdict.status),
        "invalid_reason": clean(verdict.reason),
        "renamed_to": verdict.renamed_to,
    }


def _summary(summary: Summary | None) -> Values:
    return {
        "summary": None if summary is None else clean(summary.text),
        "keywords": None
        if summary is None
        else msgspec.json.encode([clean(word) for word in summary.keywords]).decode(),
        "summary_generated_at": None if summary is None else summary.at,
    }


def _server(record: ServerRecord, epoch: int) -> Values:
    return {
        "name": record.server,
        "fingerprint": record.fingerprint,
        "epoch": epoch,
        "listed": int(record.tools is not None),
        "refreshed_at": record.refreshed_at,
        "about": clean(record.said.about) or None,
        "introduction": record.said.introduction or None,
        **_summary(record.summary),
        "summary_of": None if record.summary is None else clean(record.summary.of),
    }


def _tool(tool: Tool, sentence: Summary | None) -> Values:
    return {"name": tool.name, "raw": tool.raw, "schema_hash": tool.schema_hash, **_summary(sentence)}


def _list(definitions: Iterable[Definition]) -> Values:
    known = tuple(definitions)
    return {"definitions": b"[%b]" % b",".join(each.raw for each in known), "digest": _digest(known)}


def _digest(definitions: Iterable[Definition]) -> str:
    return tools_digest(each.schema_hash for each in definitions)


def _latest(since: float, tool: Tool, old: Row | None) -> float:
    """Since when all writers have had a tool in this form."""
    same = old is not None and old["schema_hash"] == tool.schema_hash
    return max(since, moment(old["since"])) if old is not None and same else since


def _approval(approval: Approval) -> Values:
    given = {**msgspec.structs.asdict(approval), "kind": str(approval.kind), "digest": digest(approval)}
    return {"by_whom": clean(given.pop("by")), **given}


def _named(name: GivenName) -> Values:
    return {"kind": str(name.kind), "name": clean(name.name)}


def _owner(name: GivenName) -> Values:
    return {"server": clean(name.key[0]), "own": clean(name.key[1])}


def _newly_named(given: Iterable[GivenName], known: Mapping[tuple[str, str], Row]) -> list[Values]:
    """The rows of names that are new, or that two daemons gave to different tools."""
    new = []
    for each in given:
        row, owner, name = known.get((str(each.kind), clean(each.name))), _owner(each), _named(each)
        if row is None:
            new.append({**name, **owner, "beside": int(each.beside), "since": each.since})
        elif _differs(row, owner) and moment(row["since"]) != inf:
            kept = {column: row[column] for column in ("server", "own", "beside")}
            new.append({**name, **kept, "since": inf})
    return new


def _session(key: str, record: SessionRecord) -> Values:
    return {
        "key": key,
        "client": clean(record.client),
        "created_at": record.created_at,
        "seen_at": record.seen_at,
    }


def _placed(session: str, record: SessionRecord, held: Mapping[tuple[str, str], Row]) -> Iterator[Values]:
    """The rows of a session's tools; tools that stay in order keep their positions."""
    last = -1
    for tool in record.loaded.tools.values():
        row = held.get(tool.key)
        stays = row is not None and isinstance(row["position"], int) and row["position"] > last
        last = row["position"] if row is not None and stays else last + 1
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
