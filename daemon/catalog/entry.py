"""The entry of one server in the catalog, with its lists of prompts and resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.catalog.definitions import fingerprint, mean_the_same, say_the_same
from daemon.causes import HEALTHY, Reason
from daemon.facts import ServerStatus
from daemon.model import Kind
from daemon.safety.legible import screened
from daemon.states import SERVING, ServerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.config.model import Server
    from daemon.facts import DefinitionsListed
    from daemon.model import Definition, Summary, Tool


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
