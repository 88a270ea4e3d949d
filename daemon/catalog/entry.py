"""A server's entry in the catalog, with its lists, and the effect of each fact on the entry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

import attrs

from daemon import facts
from daemon.catalog.definitions import (
    NEVER,
    fingerprint,
    known_for_longer,
    mean_the_same,
    renames,
    say_the_same,
    since_when,
)
from daemon.catalog.trust import OPEN, Gate, HeldDefinition, judged
from daemon.causes import HEALTHY, Reason
from daemon.config.config_model import Server
from daemon.model import Definition, Kind, Summary, Tool
from daemon.safety.legible import screened
from daemon.states import SERVING, ServerState

EMPTIED = (
    "it listed {0}s before its restart and none since: mcpd keeps the earlier {0}s until the"
    " server lists some, or is reconfigured"
)
"""The problem of a server that listed definitions of a kind before a restart, and none after it."""

_NUMBER = re.compile(r"\d+")


@attrs.frozen(kw_only=True)
class KnownList:
    """The definitions of one kind that a server is known to have."""

    definitions: Mapping[str, Definition] = attrs.field(factory=dict)
    """The definitions that are not held, in the server's order."""
    held: Mapping[str, HeldDefinition] = attrs.field(factory=dict, repr=False)
    all: Mapping[str, Definition] = attrs.field(factory=dict, eq=False, repr=False)
    """All definitions in the server's order, including held ones; the same object if none are held."""
    listed: bool = True
    """Whether the server has listed; if not, only the problem is known."""
    quarantined: Mapping[str, str] = attrs.field(factory=dict)
    """Reasons of unusable definitions, by name."""
    hidden: Mapping[str, str] = attrs.field(factory=dict)
    """Descriptions of hidden characters, by name (`safety.legible`)."""
    completed: tuple[str, ...] = ()
    """Tools whose schema lacked its type (`catalog.definitions`)."""
    problem: str = ""
    """Why the last listing failed or was ignored; else empty."""
    refusal: bytes = attrs.field(default=b"", repr=False)
    """The server's error in answer to the last request for the list."""
    recalled: bool = False
    """Whether the list comes from an earlier run of the daemon."""
    declared: bool = True
    since: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    """When each definition got its form, in epoch seconds; the first forms count from `ServerEntry.begun`."""
    renamed: Mapping[str, str] = attrs.field(factory=dict)
    at: float = attrs.field(default=0.0, eq=False)
    """When the list last changed, in epoch seconds; 0 if that was in an earlier run."""

    def split(
        self, listed: Mapping[str, Definition], held: Mapping[str, HeldDefinition], since: float
    ) -> KnownList:
        """Take a list, with held definitions apart; new forms count from `since`."""
        before = self.definitions
        offered = {name: each for name, each in listed.items() if name not in held} if held else listed
        offered = before if say_the_same(before, offered) else offered
        return attrs.evolve(
            self,
            definitions=offered,
            held=held,
            all=listed if held else offered,
            since=since_when(offered, before, self.since, since),
            renamed=renames(self.all, listed, self.renamed),
        )


UNKNOWN_LIST = KnownList(listed=False)


def after_listing(
    known: KnownList | None, fact: facts.DefinitionsListed, since: float = 0.0, gate: Gate = OPEN
) -> tuple[KnownList, Gate]:
    """The list and gate after a fact. An unchanged list stays the same object; new forms count from `since`."""
    before = known or UNKNOWN_LIST
    if fact.problem:
        after = attrs.evolve(before, problem=fact.problem, declared=fact.declared, refusal=fact.refusal)
    else:
        looked = screened(fact.definitions)
        quarantined = {**fact.quarantined, **looked.refused}
        # A server may declare tools only after its backend has warmed up.
        may_come = fact.first and (fact.declared or fact.kind is Kind.TOOL)
        if may_come and before.all and not looked.usable:
            after = attrs.evolve(before, problem=EMPTIED.format(fact.kind), quarantined=quarantined)
        else:
            listed = before.all if say_the_same(before.all, looked.usable) else looked.usable
            held = before.held
            if not before.listed or listed is not before.all or gate.locked is not None:
                held, gate = judged(gate, fact.kind, listed, fact.at)
            plain = attrs.evolve(
                before,
                listed=True,
                quarantined=quarantined,
                hidden=looked.hidden,
                completed=looked.completed,
                problem="",
                refusal=fact.refusal,
                recalled=False,
                declared=fact.declared,
                at=fact.at or before.at,
            )
            after = plain.split(listed, held, since)
    return (known if known is not None and after == known else after), gate


def look_alike(kind: Kind, one: KnownList | None, other: KnownList | None) -> bool:
    """Whether two lists look the same to clients. A missing list equals an empty one, but not for tools."""
    one, other = one or UNKNOWN_LIST, other or UNKNOWN_LIST
    if kind is Kind.TOOL and one.listed is not other.listed:
        return False
    return mean_the_same(one.definitions, other.definitions)


def of_models(tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
    """The tools without those that only apps may call; the same object if there are none of these."""
    if all(tool.app.for_models for tool in tools.values()):
        return tools
    return {name: tool for name, tool in tools.items() if tool.app.for_models}


@attrs.frozen(kw_only=True)
class ServerEntry:
    """A server in the catalog."""

    name: str
    description: str
    status: facts.ServerStatus
    trouble: Reason = HEALTHY
    """The trouble that lists report: as in `status`, but in the same words while tries fail alike."""
    lists: Mapping[Kind, KnownList] = attrs.field(factory=dict, repr=False)
    epoch: int = 0
    """Version of the capabilities that clients see."""
    first_run: int = 0
    """The first incarnation that counts; earlier ones have ended, or were another server."""
    begun: float = 0.0
    """When this run of the daemon began, in epoch seconds."""
    fingerprint: str = attrs.field(default="", repr=False)
    gate: Gate = attrs.field(default=OPEN, repr=False)
    """Holds definitions back until they are approved."""
    enabled: bool = True
    switched_off: bool = False
    said: facts.SelfDescription = attrs.field(factory=facts.SelfDescription, repr=False)
    """The self-description that came with the last list of tools."""
    summary: Summary | None = None
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    """Models' summaries of tools, by schema hash."""

    @property
    def tools(self) -> Mapping[str, Tool] | None:
        """The last known tools by name, in the server's order; None if the server has never listed."""
        known = self.lists.get(Kind.TOOL, UNKNOWN_LIST)
        return cast("Mapping[str, Tool]", known.definitions) if known.listed else None

    @property
    def all_tools(self) -> Mapping[str, Tool]:
        """The last known tools, including those that wait for approval."""
        return cast("Mapping[str, Tool]", self.tool_list.all)

    @property
    def for_models(self) -> Mapping[str, Tool]:
        """The last known tools without those that only apps may call; the same object if there are none."""
        return of_models(self.tools or {})

    @property
    def tool_list(self) -> KnownList:
        """The list of tools."""
        return self.list_of(Kind.TOOL)

    def list_of(self, kind: Kind) -> KnownList:
        """The list of one kind; `UNKNOWN_LIST` before the server has listed."""
        return self.lists.get(kind, UNKNOWN_LIST)

    @property
    def available(self) -> bool:
        """Whether the server's tools can be called now."""
        return self.status.state in SERVING

    @property
    def usable(self) -> bool:
        """Whether a call would be accepted; a call starts a dormant server."""
        return self.available or (self.tools is not None and self.status.state is ServerState.DORMANT)

    @property
    def of_use(self) -> bool:
        """Whether the server serves its tools, or will serve them at the first use of one."""
        if self.status.state is ServerState.DORMANT:
            return not self.disabled
        return self.available and (bool(self.tools) or self.status.state is ServerState.READY)

    @property
    def disabled(self) -> bool:
        """Whether the configuration or an operator has disabled the server, even if its child still runs."""
        return self.switched_off or not self.enabled

    def awaits(self, kind: Kind) -> bool:
        """Whether the first list of this kind is still to come; tools are listed before other kinds."""
        is_expected = self.status.is_unsettled or (kind is not Kind.TOOL and self.available)
        return kind not in self.lists and not self.disabled and is_expected


def fresh(
    server: Server, now: float, *, begun: float, epoch: int = 0, switched_off: bool = False
) -> ServerEntry:
    """Make the entry of a server of which nothing is known; times are epoch seconds."""
    return ServerEntry(
        name=server.name,
        description=server.description,
        status=initial_status(now, enabled=server.enabled),
        epoch=epoch,
        begun=begun,
        fingerprint=fingerprint(server),
        enabled=server.enabled,
        switched_off=switched_off,
    )


def lasting_trouble(entry: ServerEntry, status: facts.ServerStatus) -> Reason:
    """The trouble after a new status, in equal words for an equal failure: clients' caches then stay valid."""
    before, why = entry.trouble, status.why
    one, other = before.remedy, why.remedy
    if one is None or other is None or before.cause is not why.cause or status.attempt < entry.status.attempt:
        return why
    return before if one.helps == other.helps or (one.by_words and not other.by_words) else why


def initial_status(now: float, *, enabled: bool) -> facts.ServerStatus:
    """The status of a server before its first start."""
    state = ServerState.STOPPED if enabled else ServerState.DISABLED
    why = Reason("not started yet" if enabled else "disabled in the configuration")
    return facts.ServerStatus(state=state, since=now, why=why)


def with_memory(entry: ServerEntry, fact: facts.ServerRecord) -> ServerEntry:
    """Merge stored facts into an entry; facts from the server itself take precedence."""
    if not fact.lists:
        return _at_least(entry, fact.epoch)
    if entry.fingerprint not in {"", fact.fingerprint}:
        return entry if fact.by_another else _at_least(entry, fact.epoch)
    entry, stored = _with_stored(entry, fact)
    lists = {**entry.lists, **{kind: _recalled(entry, fact, kind, each) for kind, each in stored.items()}}
    epoch = entry.epoch
    if all(look_alike(kind, lists.get(kind), stored.get(kind)) for kind in Kind):
        epoch = max(epoch, fact.epoch)
    elif not fact.by_another:
        # It listed something else before the stored list was read. With another daemon's record, each daemon
        # trusts its own server: two that adopted each other's epochs for different lists would never settle.
        epoch = max(epoch, fact.epoch + 1)
    has_seen = entry.tools is not None or epoch > fact.epoch
    if epoch == entry.epoch and has_seen and not _lists_look_alike(entry.lists, lists):
        # This epoch has stood for something else.
        epoch += 1
    same = entry.tools is None or look_alike(Kind.TOOL, entry.tool_list, stored.get(Kind.TOOL))
    described = attrs.evolve(
        entry.said,
        about=entry.said.about or fact.said.about,
        introduction=entry.said.introduction or fact.said.introduction,
    )
    after = attrs.evolve(
        entry, fingerprint=entry.fingerprint or fact.fingerprint, epoch=epoch, lists=lists, said=described
    )
    return _with_remembered_summaries(entry if after == entry else after, fact, same=same)


def _with_stored(entry: ServerEntry, fact: facts.ServerRecord) -> tuple[ServerEntry, dict[Kind, KnownList]]:
    """Judge stored lists by the entry's gate; returns the entry, with first lists approved, and the lists."""
    stored = {}
    for kind, definitions in fact.lists.items():
        looked = screened(definitions)
        held, gate = judged(entry.gate, kind, looked.usable, fact.refreshed_at)
        entry = entry if gate is entry.gate else attrs.evolve(entry, gate=gate)
        known = KnownList(hidden=looked.hidden, recalled=True).split(looked.usable, held, NEVER)
        since = {name: fact.since.get(name, NEVER) for name in known.definitions} if kind is Kind.TOOL else {}
        stored[kind] = attrs.evolve(known, since=since)
    return entry, stored


def with_gate(entry: ServerEntry, gate: Gate, now: float) -> ServerEntry:
    """Judge an entry's lists again by a gate; `now` is epoch seconds."""
    lists = {}
    for kind, known in entry.lists.items():
        lists[kind] = known
        if known.listed:
            held, gate = judged(gate, kind, known.all, now)
            after = known.split(known.all, held, now)
            lists[kind] = known if after == known else after
    if all(lists[kind] is known for kind, known in entry.lists.items()):
        return attrs.evolve(entry, gate=gate)
    same = _lists_look_alike(entry.lists, lists)
    return attrs.evolve(entry, gate=gate, lists=lists, epoch=entry.epoch + (not same))


def _recalled(entry: ServerEntry, fact: facts.ServerRecord, kind: Kind, stored: KnownList) -> KnownList:
    known = entry.lists.get(kind)
    if known is None or not known.listed:
        return stored if known is None else attrs.evolve(stored, problem=known.problem)
    if known.recalled:
        newer = fact.epoch > entry.epoch
        renamed = renames(known.all, stored.all, known.renamed)
        return attrs.evolve(stored, renamed=renamed) if newer else known
    if fact.by_another:
        return known
    longer = known_for_longer(known.definitions, known.since, stored.definitions, stored.since)
    renamed = {**renames(stored.all, known.all, {}), **known.renamed}
    after = attrs.evolve(known, since={**known.since, **longer}, renamed=renamed)
    return known if after == known else after


def _lists_look_alike(one: Mapping[Kind, KnownList], other: Mapping[Kind, KnownList]) -> bool:
    return all(look_alike(kind, one.get(kind), other.get(kind)) for kind in Kind)


def _at_least(entry: ServerEntry, epoch: int) -> ServerEntry:
    return entry if entry.epoch >= epoch else attrs.evolve(entry, epoch=epoch)


def _with_remembered_summaries(entry: ServerEntry, fact: facts.ServerRecord, *, same: bool) -> ServerEntry:
    """Take the later summary, so that daemons agree; a stored one of other tools only without a known one."""
    ours, theirs = entry.summary, fact.summary
    takes_theirs = theirs is not None and (ours is None or (same and theirs.at > ours.at))
    sentences = {
        digest: sentence
        for digest, sentence in fact.sentences.items()
        if digest not in entry.sentences or sentence.at > entry.sentences[digest].at
    }
    return with_summaries(entry, theirs if takes_theirs else ours, sentences)


def with_summaries(
    entry: ServerEntry, summary: Summary | None, sentences: Mapping[str, Summary]
) -> ServerEntry:
    """Set a model's summary of the server, and its sentences about tools that still exist."""
    merged = {**entry.sentences, **sentences}
    if entry.tools is not None:
        merged = of_present(merged, entry.tools)
    if summary == entry.summary and merged == entry.sentences:
        return entry
    return attrs.evolve(entry, summary=summary, sentences=merged)


def of_present(sentences: Mapping[str, Summary], tools: Mapping[str, Tool]) -> dict[str, Summary]:
    """The sentences about tools that still exist: a server that keeps changing would fill the memory."""
    if not sentences:
        return {}
    present = {tool.schema_hash for tool in tools.values()}
    return {digest: sentence for digest, sentence in sentences.items() if digest in present}


def changed_by(entry: ServerEntry, fact: facts.ServerFact) -> ServerEntry:
    """The entry after a fact; the same object if the fact is outdated or changes nothing."""
    match fact:
        case facts.StatusChanged(status=status):
            return _with_status(entry, status)
        case facts.DefinitionsListed():
            return _with_list(entry, fact)
        case facts.ServerRecord():
            return with_memory(entry, fact)
        case facts.Summarized():
            return with_summaries(entry, fact.summary or entry.summary, fact.sentences)


def reconfigured(entry: ServerEntry, made: ServerEntry) -> ServerEntry:
    """The entry after a change of the configuration; `made` is a fresh entry for the new configuration."""
    same_server = made.fingerprint in {"", entry.fingerprint}
    if same_server and entry.enabled == made.enabled:
        same_words = entry.description == made.description
        return entry if same_words else attrs.evolve(entry, description=made.description)
    if entry.enabled:
        # Its child keeps counting incarnations: the old server's facts must not count for the new one.
        last = entry.status.incarnation
        made = attrs.evolve(made, status=attrs.evolve(made.status, incarnation=last), first_run=last + 1)
    if not same_server:
        return made
    return attrs.evolve(
        entry, description=made.description, enabled=made.enabled, status=made.status, first_run=made.first_run
    )


def _with_status(entry: ServerEntry, status: facts.ServerStatus) -> ServerEntry:
    """Set the status of an incarnation; lists of earlier incarnations no longer count."""
    if status.state is ServerState.STOPPED and not entry.enabled:
        status = initial_status(status.since, enabled=False)
    if status == entry.status:
        return entry
    return attrs.evolve(
        entry,
        status=status,
        trouble=lasting_trouble(entry, status),
        first_run=max(entry.first_run, status.incarnation),
    )


def _with_list(entry: ServerEntry, fact: facts.DefinitionsListed) -> ServerEntry:
    if fact.incarnation < entry.first_run:
        return entry
    if fact.said is not None and (described := _described(entry.said, fact.said)) != entry.said:
        entry = attrs.evolve(entry, said=described)
    known = entry.lists.get(fact.kind)
    # Before the first list, no client saw anything in this run of the daemon.
    after, gate = after_listing(known, fact, fact.at if entry.epoch else entry.begun, entry.gate)
    if gate is not entry.gate:
        entry = attrs.evolve(entry, gate=gate)
    if after is known:
        return entry
    news = attrs.evolve(entry, lists={**entry.lists, fact.kind: after})
    if look_alike(fact.kind, known, after):
        return news
    return attrs.evolve(news, epoch=entry.epoch + 1, sentences=of_present(entry.sentences, news.tools or {}))


def _described(before: facts.SelfDescription, now: facts.SelfDescription) -> facts.SelfDescription:
    """Take a new self-description; keep the old text, which clients see, if only numbers differ."""
    same = _NUMBER.sub("", before.about) == _NUMBER.sub("", now.about)
    return attrs.evolve(
        now, about=before.about if same else now.about, introduction=now.introduction or before.introduction
    )
