"""The entry of one server in the catalog, with its lists, and how each fact about the server changes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from daemon.catalog.definitions import (
    NEVER,
    fingerprint,
    known_for_longer,
    mean_the_same,
    renames,
    say_the_same,
    since_when,
)
from daemon.catalog.kinds import BESIDE_TOOLS
from daemon.causes import HEALTHY, Reason
from daemon.facts import (
    DefinitionsListed,
    ListingFailed,
    Recalled,
    ServerStatus,
    StatusChanged,
    Summarized,
    ToolsListed,
)
from daemon.model import Kind
from daemon.safety.legible import screened
from daemon.states import SERVING, ServerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.config.model import Server
    from daemon.facts import ServerFact
    from daemon.model import Definition, Summary, Tool
    from daemon.safety.legible import Screened


EMPTIED = (
    "since the server was started it lists none, and it has had some: those are kept until it lists any, or is"
    " configured anew"
)
"""The problem of a server that had some and lists none after a restart."""


@attrs.frozen(kw_only=True)
class KnownList:
    """A server's prompts, its resources or their templates, as last known."""

    definitions: Mapping[str, Definition] = attrs.field(factory=dict)
    """Those that can be used, by name, URI or template, in the server's order."""
    quarantined: Mapping[str, str] = attrs.field(factory=dict)
    """Those that cannot be used, with reasons."""
    hidden: Mapping[str, str] = attrs.field(factory=dict)
    """The hidden characters in definitions, in words, by name (`safety.legible`)."""
    problem: str = ""
    """Why the last attempt to list them failed, or keeps what was known; empty if it succeeded."""
    recalled: bool = False
    """Whether they are from an earlier run of the daemon: the server has not listed any in this one."""
    declared: bool = True
    """Whether the server declares that it has such a list."""


NOTHING_KNOWN = KnownList()
"""What is known before the first list."""


def after_listing(known: KnownList | None, fact: DefinitionsListed) -> KnownList:
    """What is known after the server has listed, or failed to; the same object if that changes nothing."""
    before = known or NOTHING_KNOWN
    if fact.problem:
        after = attrs.evolve(before, problem=fact.problem, declared=fact.declared)
    else:
        looked = screened(fact.definitions)
        quarantined = {**fact.quarantined, **looked.refused}
        if fact.first and fact.declared and before.definitions and not looked.usable:
            after = attrs.evolve(before, problem=EMPTIED, quarantined=quarantined)
        else:
            same = say_the_same(before.definitions, looked.usable)
            after = KnownList(
                definitions=before.definitions if same else looked.usable,
                quarantined=quarantined,
                hidden=looked.hidden,
                declared=fact.declared,
            )
    return known if after == known else after


def remembered(definitions: Iterable[Definition]) -> KnownList:
    """What the store remembers of a list."""
    looked = screened(definitions)
    return KnownList(definitions=looked.usable, hidden=looked.hidden, recalled=True)


def look_alike(one: KnownList | None, other: KnownList | None) -> bool:
    """Whether clients see the same in both: a list that nobody has seen yet looks like an empty one."""
    if one is other:
        return True
    return mean_the_same((one or NOTHING_KNOWN).definitions, (other or NOTHING_KNOWN).definitions)


@attrs.frozen(kw_only=True)
class ServerEntry:
    """One server as the catalog knows it."""

    name: str
    """Its configured name."""
    description: str
    """What it is good for, in words for a model."""
    status: ServerStatus
    """The state of the server, as its supervisor last reported it."""
    trouble: Reason = HEALTHY
    """Why it is down, for lists: the reason of `status`, but unchanged while its tries fail alike
    (`lasting_trouble`)."""
    tools: Mapping[str, Tool] | None = None
    """The last known tools by name, in the server's order; None if it never listed any."""
    epoch: int = 0
    """Version of its visible capabilities."""
    quarantined: Mapping[str, str] = attrs.field(factory=dict)
    """Tools that cannot be used, with reasons."""
    hidden: Mapping[str, str] = attrs.field(factory=dict)
    """The hidden characters in its tools' definitions, in words, by tool (`safety.legible`)."""
    completed: tuple[str, ...] = ()
    """Its tools whose schemas of arguments it lists without their type (`catalog.definitions`)."""
    listing_error: str = ""
    """Why the last attempt to list its tools failed; empty if it succeeded."""
    first_run: int = 0
    """The first incarnation that counts: earlier ones are dead, or belonged to another server."""
    since: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    """When each of its tools took its present form, in seconds since the epoch: every client that was shown it
    later was shown this form. A form that is the first known one counts from `begun`."""
    begun: float = 0.0
    """When this run of the daemon began, in seconds since the epoch; earlier runs are known from the store."""
    fingerprint: str = attrs.field(default="", repr=False)
    """Fingerprint of the configuration that decides which server answers (`catalog.definitions`)."""
    enabled: bool = True
    """Whether the configuration enables it."""
    switched_off: bool = False
    """Whether an operator has switched it off."""
    recalled: bool = False
    """Whether its tools are from an earlier run of the daemon: it has not listed any in this one."""
    refreshed_at: float = 0.0
    """When it was last listed, in seconds since the epoch."""
    renamed: Mapping[str, str] = attrs.field(factory=dict)
    """The present names of renamed tools, by their earlier names."""
    instructions: str = attrs.field(default="", repr=False)
    """What the server says about how to use it, as of its last list of tools."""
    about: str = attrs.field(default="", repr=False)
    """The server's description of itself, as of its last list of tools."""
    introduction: bytes = attrs.field(default=b"", repr=False)
    """All that it said about itself in its last handshake (`catalog.introduction`); empty until known."""
    summary: Summary | None = None
    """A model's summary of the server."""
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    """A model's summaries of its tools, by schema hash."""
    lists: Mapping[Kind, KnownList] = attrs.field(factory=dict, repr=False)
    """Its prompts, resources and templates; a kind is missing until something is known of it."""

    @property
    def available(self) -> bool:
        """Whether its tools can be called now."""
        return self.status.state in SERVING

    @property
    def usable(self) -> bool:
        """Whether a call to one of its tools would be accepted: a dormant server is started for it."""
        return self.available or (self.tools is not None and self.status.state is ServerState.DORMANT)

    @property
    def of_use(self) -> bool:
        """Whether it is up and has the tools that it should have, or will be as soon as somebody uses it."""
        if self.status.state is ServerState.DORMANT:
            return not self.disabled
        return self.available and (bool(self.tools) or self.status.state is ServerState.READY)

    @property
    def disabled(self) -> bool:
        """Whether the configuration or an operator has switched it off, even if its child still runs."""
        return self.switched_off or not self.enabled

    @property
    def awaited(self) -> bool:
        """Whether its first list of tools is still expected."""
        known = self.tools is not None or bool(self.listing_error)
        return not known and not self.disabled and self.status.is_unsettled

    def awaits(self, kind: Kind) -> bool:
        """Whether its first list of this kind is still expected: other lists follow that of tools."""
        if kind is Kind.TOOL:
            return self.awaited
        is_expected = self.status.is_unsettled or self.status.state in SERVING
        return kind not in self.lists and not self.disabled and is_expected


def fresh(
    server: Server, now: float, *, begun: float, epoch: int = 0, switched_off: bool = False
) -> ServerEntry:
    """A server before anything is known of it.

    Args:
        server: its configuration.
        now: seconds since the epoch.
        begun: when this run of the daemon began, in seconds since the epoch.
        epoch: the epoch to continue from: the server may have been configured before.
        switched_off: whether an operator has switched it off.
    """
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


def lasting_trouble(entry: ServerEntry, status: ServerStatus) -> Reason:
    """Why a server with this new status is down, in the words of before if its tries have failed alike since.

    What a server writes differs from try to try, and at times it writes nothing. Clients read their lists anew
    for each change, and what they have cached of a conversation is lost.
    """
    before, why = entry.trouble, status.why
    one, other = before.remedy, why.remedy
    if one is None or other is None or before.cause is not why.cause or status.attempt < entry.status.attempt:
        return why
    return before if one.helps == other.helps or (one.by_words and not other.by_words) else why


def initial_status(now: float, *, enabled: bool) -> ServerStatus:
    """The status of a server before it was ever started."""
    if enabled:
        return ServerStatus(state=ServerState.STOPPED, since=now, reason="not started yet")
    return ServerStatus(state=ServerState.DISABLED, since=now, reason="disabled in the configuration")


def with_memory(entry: ServerEntry, fact: Recalled) -> ServerEntry:
    """With what the store remembers, where nothing is known; what the server says itself takes precedence."""
    if fact.tools is None and not fact.definitions:
        return _at_least(entry, fact.epoch)
    if entry.fingerprint not in {"", fact.fingerprint}:
        return entry if fact.by_another else _at_least(entry, fact.epoch)
    if not entry.fingerprint:
        entry = attrs.evolve(entry, fingerprint=fact.fingerprint)
    if fact.introduction and not entry.introduction:
        entry = attrs.evolve(entry, introduction=fact.introduction)
    after = entry if fact.tools is None else _with_remembered_tools(entry, fact, screened(fact.tools))
    return _with_remembered_lists(entry, after, fact)


def _with_remembered_lists(before: ServerEntry, entry: ServerEntry, fact: Recalled) -> ServerEntry:
    """With the stored lists beside the tools, where none is known, or those that are known are older.

    Args:
        before: the entry before the fact.
        entry: the same with the stored tools.
        fact: what is stored.
    """
    stored = {kind: remembered(definitions) for kind, definitions in fact.definitions.items()}
    newer = fact.epoch > before.epoch
    taken = {
        kind: each
        for kind, each in stored.items()
        if (known := before.lists.get(kind)) is None or (known.recalled and newer)
    }
    lists = {**before.lists, **taken}
    epoch = entry.epoch
    if all(look_alike(lists.get(kind), stored.get(kind)) for kind in BESIDE_TOOLS):
        # With stored tools, those have decided.
        epoch = max(epoch, fact.epoch) if fact.tools is None else epoch
    elif not fact.by_another:
        # It listed what differs from the stored before that was read.
        epoch = max(epoch, fact.epoch + 1)
    seen_before = before.tools is not None or epoch > fact.epoch
    if epoch == before.epoch and seen_before and not _lists_look_alike(before, lists):
        epoch += 1
    return attrs.evolve(entry, epoch=epoch, lists=lists) if taken else _at_least(entry, epoch)


def _lists_look_alike(entry: ServerEntry, lists: Mapping[Kind, KnownList]) -> bool:
    return all(look_alike(entry.lists.get(kind), lists.get(kind)) for kind in BESIDE_TOOLS)


def _with_remembered_tools(entry: ServerEntry, fact: Recalled, looked: Screened[Tool]) -> ServerEntry:
    entry = entry if entry.about or not fact.about else attrs.evolve(entry, about=fact.about)
    tools, known = looked.usable, entry.tools
    same = known is not None and mean_the_same(known, tools)
    if known is not None and not entry.recalled and not fact.by_another:
        longer = known_for_longer(known, entry.since, tools, fact.since)
        entry = attrs.evolve(entry, since={**entry.since, **longer}) if longer else entry
    if same:
        entry = _at_least(entry, fact.epoch)
    elif known is None or (entry.recalled and fact.epoch > entry.epoch):
        # An epoch ahead of the stored one has already stood for something else.
        epoch = fact.epoch if fact.epoch >= entry.epoch else entry.epoch + 1
        renamed = renames(known or {}, tools, entry.renamed)
        entry = attrs.evolve(
            entry,
            tools=tools,
            hidden=looked.hidden,
            epoch=epoch,
            recalled=True,
            renamed=renamed,
            since={name: fact.since.get(name, NEVER) for name in tools},
        )
    elif not entry.recalled and not fact.by_another and fact.epoch >= entry.epoch:
        # It listed tools that differ from the stored ones before those were read.
        renamed = {**renames(tools, known, {}), **entry.renamed}
        entry = attrs.evolve(entry, epoch=fact.epoch + 1, renamed=renamed)
    # Otherwise each daemon trusts its own server: two that adopted each other's epochs for different tools
    # would never settle.
    return _with_remembered_summaries(entry, fact, same=same or known is None)


def _at_least(entry: ServerEntry, epoch: int) -> ServerEntry:
    return entry if entry.epoch >= epoch else attrs.evolve(entry, epoch=epoch)


def _with_remembered_summaries(entry: ServerEntry, fact: Recalled, *, same: bool) -> ServerEntry:
    """With the later summaries, so that two daemons agree; one about other tools only if there is none yet."""
    ours, theirs = entry.summary, fact.summary
    takes_theirs = theirs is not None and (ours is None or (same and theirs.at > ours.at))
    sentences = {
        digest: said
        for digest, said in fact.sentences.items()
        if digest not in entry.sentences or said.at > entry.sentences[digest].at
    }
    return with_summaries(entry, theirs if takes_theirs else ours, sentences)


def with_summaries(
    entry: ServerEntry, summary: Summary | None, sentences: Mapping[str, Summary]
) -> ServerEntry:
    """With what a model has said: the summary, and further sentences about present tools."""
    merged = {**entry.sentences, **sentences}
    if entry.tools is not None:
        merged = still_said(merged, entry.tools)
    if summary == entry.summary and merged == entry.sentences:
        return entry
    return attrs.evolve(entry, summary=summary, sentences=merged)


def still_said(sentences: Mapping[str, Summary], tools: Mapping[str, Tool]) -> dict[str, Summary]:
    """The sentences about present tools: a server that keeps changing must not fill the memory."""
    if not sentences:
        return {}
    present = {tool.schema_hash for tool in tools.values()}
    return {digest: said for digest, said in sentences.items() if digest in present}


TOOLS_EMPTIED = (
    "since it was started it lists no tools, and it has had some: those are kept until it lists any, or is"
    " configured anew"
)
"""The problem of a server that had tools and lists none after a restart."""

_NUMBER = re.compile(r"\d+")


def changed_by(entry: ServerEntry, fact: ServerFact) -> ServerEntry:
    """The entry after a fact; the same object if the fact is stale or changes nothing."""
    match fact:
        case StatusChanged(status=status):
            return _with_status(entry, status)
        case ToolsListed():
            return _with_tools(entry, fact)
        case DefinitionsListed():
            return _with_list(entry, fact)
        case ListingFailed():
            return _with_failure(entry, fact)
        case Recalled():
            return with_memory(entry, fact)
        case Summarized():
            return with_summaries(entry, fact.summary or entry.summary, fact.sentences)


def reconfigured(entry: ServerEntry, made: ServerEntry) -> ServerEntry:
    """The entry of a server whose configuration may be another one now.

    Args:
        entry: the entry so far.
        made: the entry that the configuration would begin with.
    """
    same_server = made.fingerprint in {"", entry.fingerprint}
    if same_server and entry.enabled == made.enabled:
        same_words = entry.description == made.description
        return entry if same_words else attrs.evolve(entry, description=made.description)
    if entry.enabled:
        # Its child keeps counting incarnations: facts of the old server must not count for the new one.
        last = entry.status.incarnation
        made = attrs.evolve(made, status=attrs.evolve(made.status, incarnation=last), first_run=last + 1)
    if not same_server:
        return made
    return attrs.evolve(
        entry,
        description=made.description,
        enabled=made.enabled,
        status=made.status,
        first_run=made.first_run,
    )


def _with_status(entry: ServerEntry, status: ServerStatus) -> ServerEntry:
    """With a status, whichever incarnation reports it; lists of earlier incarnations no longer count."""
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


def _is_stale(entry: ServerEntry, incarnation: int) -> bool:
    return incarnation < entry.first_run


def _with_instructions(entry: ServerEntry, said: str) -> ServerEntry:
    return entry if entry.instructions == said else attrs.evolve(entry, instructions=said)


def _with_about(entry: ServerEntry, about: str) -> ServerEntry:
    """With the server's description of itself; unchanged if only numbers differ: clients are shown it."""
    if _NUMBER.sub("", entry.about) == _NUMBER.sub("", about):
        return entry
    return attrs.evolve(entry, about=about)


def _with_tools(entry: ServerEntry, fact: ToolsListed) -> ServerEntry:
    if _is_stale(entry, fact.incarnation):
        return entry
    entry = _with_instructions(_with_about(entry, fact.about), fact.instructions)
    if fact.introduction and fact.introduction != entry.introduction:
        entry = attrs.evolve(entry, introduction=fact.introduction)
    looked = screened(fact.tools)
    tools, quarantined = looked.usable, {**fact.quarantined, **looked.refused}
    known = entry.tools
    if fact.first and known and not tools:
        return _with_problem(entry, TOOLS_EMPTIED, quarantined)
    if known is not None and say_the_same(known, tools):
        settled = not entry.listing_error and not entry.recalled
        if settled and (entry.quarantined, entry.completed) == (quarantined, looked.completed):
            return entry
        tools = known
    news = attrs.evolve(
        entry,
        tools=tools,
        listing_error="",
        quarantined=quarantined,
        hidden=looked.hidden,
        completed=looked.completed,
        recalled=False,
        refreshed_at=fact.at or entry.refreshed_at,
        # Before the first list, no client can have been shown anything in this run of the daemon.
        since=since_when(tools, known or {}, entry.since, fact.at if entry.epoch else entry.begun),
    )
    if known is not None and mean_the_same(known, tools):
        # Only the encoding differs: white space, or the order of members.
        return news
    return attrs.evolve(
        news,
        epoch=entry.epoch + 1,
        renamed=renames(known or {}, tools, entry.renamed),
        sentences=still_said(entry.sentences, tools),
    )


def _with_list(entry: ServerEntry, fact: DefinitionsListed) -> ServerEntry:
    known = entry.lists.get(fact.kind)
    if _is_stale(entry, fact.incarnation) or (after := after_listing(known, fact)) is known:
        return entry
    epoch = entry.epoch if look_alike(known, after) else entry.epoch + 1
    return attrs.evolve(entry, epoch=epoch, lists={**entry.lists, fact.kind: after})


def _with_failure(entry: ServerEntry, fact: ListingFailed) -> ServerEntry:
    if _is_stale(entry, fact.incarnation):
        return entry
    return _with_problem(entry, fact.reason, entry.quarantined)


def _with_problem(entry: ServerEntry, problem: str, quarantined: Mapping[str, str]) -> ServerEntry:
    """With a problem of listing; the known tools stay."""
    if (entry.listing_error, entry.quarantined) == (problem, quarantined):
        return entry
    return attrs.evolve(entry, listing_error=problem, quarantined=quarantined)
