"""Compares the store's servers, names, approvals and switches with the catalog, without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from math import inf

import attrs
import msgspec

from daemon.catalog.loaded import judge_stored
from daemon.catalog.naming import Names
from daemon.catalog.snapshot import Catalog, ServerEntry
from daemon.facts import ServerRecord
from daemon.model import Approval, GivenName, Kind, Known, Tool, ToolKey
from daemon.state.sql import Batch

NAME_BYTES = 2000
"""Longest stored name, in bytes of UTF-8: PostgreSQL's indexes hold 2.7 kB at most."""


NAMES_AT_ONCE = 2000
"""Most names, and most approvals, that one batch writes or deletes: 10 ms of the event loop."""


class NameNotes:
    """The store's names; the store also decides since when a name means its tool."""

    def __init__(self) -> None:
        self._held: dict[tuple[Kind, bool], dict[str, ToolKey]] = {}
        self._compared: Mapping[Kind, Names] | None = None
        self._batch: tuple[tuple[GivenName, ...], tuple[GivenName, ...]] | None = None
        self._shared = False

    def heard(self, names: Iterable[GivenName], *, shared: bool) -> None:
        """Record that the store holds exactly these names; in a `shared` store some are other daemons'."""
        self._held, self._compared = {}, None
        self.were_written(names, ())
        self._shared = shared

    def difference(self, now: Mapping[Kind, Names]) -> tuple[tuple[GivenName, ...], tuple[GivenName, ...]]:
        """The names to write and to delete, at most `NAMES_AT_ONCE`, given all present ones by kind."""
        if now is not self._compared:
            # One look at tens of thousands of names serves all batches.
            self._compared, self._batch = now, None
            self._left = self._gone(now), chain.from_iterable(map(self._new, now.values()))
        if self._batch is None:
            # Its former meaning goes before a name is written; otherwise two daemons seem to have given it.
            gone = tuple(islice(self._left[0], NAMES_AT_ONCE))
            self._batch = tuple(islice(self._left[1], NAMES_AT_ONCE - len(gone))), gone
        return self._batch

    def were_written(self, given: Iterable[GivenName], gone: Iterable[GivenName]) -> None:
        """Note that the store has been written."""
        if (given, gone) != self._batch:  # the names have changed meanwhile, or another daemon has written
            self._compared = None
        self._batch = None
        for each in gone:
            self._held.get((each.kind, each.beside), {}).pop(each.name, None)
        for each in given:
            self._held.get((each.kind, not each.beside), {}).pop(each.name, None)
            self._held.setdefault((each.kind, each.beside), {})[each.name] = each.key

    def _new(self, names: Names) -> Iterator[GivenName]:
        """The names that are not stored yet and can no longer go to another tool."""
        kind = names.spelling.kind
        for table, beside in ((names.given, False), (names.beside, True)):
            held = self._held.get((kind, beside), {})
            # Of tens of thousands most are held: nothing is made or called for those.
            for key, name in [(key, name) for key, name in table.items() if held.get(name) != key]:
                if key not in names.provisional and _can_be_kept(name):
                    yield GivenName(name=name, key=key, kind=kind, beside=beside, since=names.valid_since(name))

    def _gone(self, now: Mapping[Kind, Names]) -> Iterator[GivenName]:
        """The stored names that lost their meaning; in a shared store, another daemon's meaning stays."""
        for (kind, beside), held in list(self._held.items()):
            owners = now[kind].owners if kind in now else {}
            for name, key in [(name, key) for name, key in held.items() if owners.get(name) != key]:
                if name not in owners or not self._shared:
                    yield GivenName(name=name, key=key, kind=kind, beside=beside)


class ApprovalNotes:
    """The store's approvals."""

    def __init__(self) -> None:
        self._held: set[Approval] = set()
        self._settled: Mapping[str, Known] = {}

    def difference(self, now: Mapping[str, Known] | None) -> tuple[Approval, ...]:
        """The approvals to write, at most `NAMES_AT_ONCE`; none before the store was read (`now` is None)."""
        if now is None or now is self._settled:
            return ()
        changed = [known for identity, known in now.items() if self._settled.get(identity) is not known]
        forms = chain.from_iterable(chain.from_iterable(known.values()) for known in changed)
        new = tuple(islice((each for each in forms if each not in self._held), NAMES_AT_ONCE))
        if not new:
            self._settled = now
        return new

    def were_written(self, approvals: Iterable[Approval]) -> None:
        """Note that these approvals are stored."""
        self._held.update(approvals)


def _can_be_kept(name: str) -> bool:
    return len(name.encode(errors="replace")) <= NAME_BYTES


Switches = frozenset[tuple[str, str]]
"""Pairs of server and tool; an empty tool means the whole server."""


class Evidence(msgspec.Struct, frozen=True):
    """The facts about a server that decide whether tools loaded by sessions are still valid."""

    tools: Mapping[str, Tool] | None
    disabled: bool
    renamed: Mapping[str, str]
    off: frozenset[str]


@attrs.frozen(kw_only=True)
class Difference:
    """The differences between the catalog and the store."""

    catalog: Catalog = attrs.field(repr=False)
    batch: Batch = attrs.field(factory=partial(Batch, at=0.0), repr=False)
    """The changes to write; their time and the sessions are added later."""
    evidence: Mapping[str, Evidence | None] = attrs.field(factory=dict, repr=False)
    """Servers whose loaded tools must be judged again, with the evidence; None for a server that is gone."""

    def __bool__(self) -> bool:
        return bool(len(self) or self.evidence)

    def __len__(self) -> int:
        """The number of unwritten changes that matter to readers of the store."""
        new = self.batch
        parts = (new.servers, new.switched_off, new.switched_on, new.names, new.names_gone, new.approvals)
        return sum(map(len, parts))


class ServerNotes:
    """The store's servers, names, approvals and switches, compared with the catalog."""

    def __init__(self) -> None:
        self._switched: Switches = frozenset()
        self._held: dict[str, ServerRecord] = {}
        self._ours: dict[str, ServerRecord] = {}
        self._settled: dict[str, ServerEntry] = {}
        self._judged: dict[str, Evidence | None] = {}
        self._last: Difference | None = None
        self._names = NameNotes()
        self._approvals = ApprovalNotes()

    def start_over(self) -> None:
        """Write everything and judge loaded tools again, as the store is empty."""
        self._held.clear()
        self._ours.clear()
        self._settled.clear()
        self._judged = dict.fromkeys(self._judged, _NEVER)
        self._switched = frozenset()
        self._names = NameNotes()
        self._approvals = ApprovalNotes()
        self._last = None

    def missing(self, stored: Iterable[str]) -> bool:
        """Whether a store with these servers lacks a stored server, and so is another store."""
        return not self._held.keys() <= set(stored)

    def lacks_words(self, catalog: Catalog) -> bool:
        """Whether a switch or an approval of an operator is not stored yet."""
        return catalog.switched != self._switched or bool(self._approvals.difference(catalog.approvals))

    def heard(self, record: ServerRecord) -> bool:
        """Note a stored record; returns whether it differs from the last."""
        news = self._held.get(record.server) != record
        self._held[record.server] = record
        self._settled.pop(record.server, None)
        self._last = None
        return news

    def heard_switches(self, stored: Switches, counting: Switches, catalog: Catalog) -> Switches:
        """Note the stored switches; returns `counting` with the changes made here since."""
        said_off, said_on = catalog.switched - self._switched, self._switched - catalog.switched
        self._switched = stored
        self._last = None
        return (counting | said_off) - said_on

    def heard_names(self, stored: Iterable[GivenName], *, shared: bool) -> None:
        """Note the stored names (`NameNotes.heard`)."""
        self._names.heard(stored, shared=shared)
        self._last = None

    def heard_approvals(self, stored: Iterable[Approval], *, whole: bool) -> None:
        """Note stored approvals; `whole`: the store has no others."""
        if whole:
            self._approvals = ApprovalNotes()
        self._approvals.were_written(stored)
        self._last = None

    def also_judge(self, servers: Iterable[str]) -> None:
        """Judge the loaded tools of these servers again if the catalog lacks them."""
        for name in servers:
            self._judged.setdefault(name, _NEVER)
        self._last = None

    def difference(self, catalog: Catalog) -> Difference:
        """The difference to write."""
        if self._last is None or self._last.catalog is not catalog:
            given, gone = self._names.difference(catalog.naming)
            evidence = self._evidence(catalog)
            batch = Batch(
                at=0.0,
                servers=self._changed(catalog),
                names=given,
                names_gone=gone,
                approvals=self._approvals.difference(catalog.approvals),
                switched_off=catalog.switched - self._switched,
                switched_on=self._switched - catalog.switched,
                judge=partial(judge_stored, catalog),
                judged=tuple(evidence),
            )
            self._last = Difference(catalog=catalog, batch=batch, evidence=evidence)
        return self._last

    def was_written(self, difference: Difference, epochs: Mapping[str, int]) -> None:
        """Note that a difference is stored; `epochs` are the epochs that the store changed."""
        batch = difference.batch
        for asked in batch.servers:
            record = attrs.evolve(asked, epoch=epochs.get(asked.server, asked.epoch))
            self._held[record.server] = self._ours[record.server] = record
            self._settled[record.server] = difference.catalog.servers[record.server]
        self._switched = (self._switched | batch.switched_off) - batch.switched_on
        self._names.were_written(batch.names, batch.names_gone)
        self._approvals.were_written(batch.approvals)
        self._judged.update(difference.evidence)
        self._last = None

    def _changed(self, catalog: Catalog) -> tuple[ServerRecord, ...]:
        records = []
        for entry in catalog.servers.values():
            if self._settled.get(entry.name) is entry:
                continue
            if self._is_held(entry):
                self._settled[entry.name] = entry
            else:
                records.append(self._record(entry))
        return tuple(records)

    def _record(self, entry: ServerEntry) -> ServerRecord:
        held = self._held.get(entry.name)
        if entry.tools is None and held is not None and held.tools is not None:
            # Its configuration has changed, and it has listed no tools since. Until it does, the record of the
            # old configuration stays: that may come back.
            return attrs.evolve(held, epoch=max(held.epoch, entry.epoch))
        return ServerRecord(
            server=entry.name,
            fingerprint=entry.fingerprint,
            epoch=entry.epoch,
            refreshed_at=entry.tool_list.at or (held.refreshed_at if held else 0.0),
            summary=entry.summary,
            sentences=entry.sentences,
            since=entry.tool_list.since,
            said=attrs.evolve(entry.said, instructions=""),
            lists={kind: tuple(known.all.values()) for kind, known in entry.lists.items() if known.listed},
        )

    def _is_held(self, entry: ServerEntry) -> bool:
        """Whether an entry is already stored.

        If two daemons on one store list different tools of a server, each writes its own list when that
        changes, not when it reads the other's: otherwise they would overwrite each other without end.
        """
        held, ours = self._held.get(entry.name), self._ours.get(entry.name)
        if entry.tools is None:
            return entry.epoch == 0 or (held is not None and entry.epoch <= held.epoch)
        wanted = self._record(entry)
        if held is not None and wanted.epoch == held.epoch and _alike(wanted, held):
            self._ours[entry.name] = held
            return True
        if held is None or ours is None:
            return False
        return wanted.epoch in {held.epoch, ours.epoch} and _alike(wanted, ours)

    def _evidence(self, catalog: Catalog) -> dict[str, Evidence | None]:
        off: dict[str, set[str]] = {}
        for server, tool in catalog.off:
            off.setdefault(server, set()).add(tool)
        evidence: dict[str, Evidence | None] = {
            name: Evidence(entry.tools, entry.disabled, entry.tool_list.renamed, frozenset(off.get(name, ())))
            for name, entry in catalog.servers.items()
        }
        evidence.update({name: None for name in self._judged if name not in evidence})
        return {name: now for name, now in evidence.items() if self._judged.get(name, _NEVER) != now}


_NEVER = Evidence(None, False, {}, frozenset({""}))
"""Evidence that no server has, so that everything is judged."""


def _alike(one: ServerRecord, other: ServerRecord) -> bool:
    """Whether two records agree except for epoch and times, and `other` knows of every change."""
    return all(at <= other.since.get(name, inf) for name, at in one.since.items()) and (
        one.fingerprint,
        one.summary,
        one.sentences,
        one.said,
        one.lists,
    ) == (other.fingerprint, other.summary, other.sentences, other.said, other.lists)
