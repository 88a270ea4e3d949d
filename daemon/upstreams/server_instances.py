"""The instances of one server: made at first use, ended when unused, limited in number."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Hashable, Iterable
from functools import partial

import attrs
import trio

from daemon.catalog.entry import ServerEntry
from daemon.catalog.loaded import is_anonymous
from daemon.catalog.snapshot import Catalog, fold_all
from daemon.causes import Cause
from daemon.config.config_model import WORKSPACE, Instance, Server, Share, TransportType
from daemon.counting.measures import StderrTail
from daemon.counting.tally import CallStats
from daemon.errors import NoSession, NoWorkspace, Overloaded, UpstreamUnavailable
from daemon.facts import DefinitionsListed, Fact, ServerStatus, StatusChanged
from daemon.history.event import Event, EventKind
from daemon.host.paths import abbreviated
from daemon.kit.waiting import keep_latest
from daemon.model import Kind
from daemon.ports import Holder
from daemon.safety.escape import visible
from daemon.sandbox.egress import SeenHosts
from daemon.states import SERVING, ServerState, in_sentence
from daemon.upstreams.server_actors import ServerActors
from daemon.upstreams.upstream_access import LastUse, UpstreamAccess


class OwnLists:
    """The lists of one instance: the catalog gets them as the server's; different lists are kept here."""

    def __init__(self, server: str, tell: Callable[[Fact], None], run: Callable[[], int]) -> None:
        """`run` returns the server's newest run; lists of that run count."""
        self._server = server
        self._tell = tell
        self._run = run
        self._is_gone = False
        self._kept: dict[Kind, DefinitionsListed] = {}
        self._seen: tuple[Catalog, Catalog] | None = None
        self._alike: object = None

    def tell(self, fact: Fact) -> None:
        """Pass a fact to the registry as a fact about the server."""
        if self._is_gone:
            return
        if isinstance(fact, DefinitionsListed):
            if not fact.problem:
                self._kept[fact.kind] = fact
                self._seen = self._alike = None
            fact = attrs.evolve(fact, incarnation=self._run())
        self._tell(fact)

    def forget(self) -> None:
        """Keep and report nothing more: the instance is gone."""
        self._is_gone = True
        self._kept, self._seen, self._alike = {}, None, None

    def own_catalog(self, catalog: Catalog) -> Catalog:
        """The catalog as this instance lists it (`ports.Upstream.own_catalog`)."""
        entry = catalog.servers.get(self._server)
        if not self._kept or entry is None:
            return catalog
        if self._alike is entry.lists:
            # Every status of any server makes a new catalog.
            return catalog
        if self._seen is None or self._seen[0] is not catalog:
            self._seen = catalog, self._folded(catalog, entry)
        return self._seen[1]

    def _folded(self, catalog: Catalog, entry: ServerEntry) -> Catalog:
        facts = [attrs.evolve(fact, incarnation=entry.first_run) for fact in self._kept.values()]
        own = fold_all(catalog, facts)
        if own.servers[self._server].epoch != entry.epoch:
            return own
        # What it says of itself may differ: nothing is called by that.
        self._alike = entry.lists
        return catalog


HOW_TO_NAME_ONE = (
    "Start the client in the directory of the project, or name it: `mcpd connect --workspace DIR`, the variable"
    " MCPD_WORKSPACE, the header Mcpd-Workspace, or a root (file:///...) of the client's"
)

Key = tuple["Hashable | None", str | None]
"""A session and a workspace: clients with the same key share an instance."""


def key_of(server: Server, holder: Holder) -> Key:
    """The key of a client's instance; raises NoWorkspace (none, or an unusable one) or NoSession."""
    by_session = server.shared_by is Share.SESSION
    if by_session and holder.session is None:
        text = (
            f'each session has an instance of server {server.name} ("share": "session"), but this request has'
            " no session: send `Mcpd-Session: KEY` with it, or use `mcpd connect`. The call was not sent."
        )
        raise NoSession(text, server=server.name)
    # Who has named a directory is not given another one.
    if holder.fault and (server.uses_workspace or not by_session):
        text = f"server {server.name} works in its client's directory: {holder.fault}. The call was not sent."
        raise NoWorkspace(text, server=server.name)
    if holder.workspace is None and server.uses_workspace:
        text = (
            f"server {server.name} works in its client's directory (${{workspace}}), but this client has named"
            f" none. {HOW_TO_NAME_ONE}. The call was not sent."
        )
        raise NoWorkspace(text, server=server.name)
    return holder.session if by_session else None, holder.workspace


def told_session(holder: Holder) -> str:
    """The name of a client's session in events: its key, or its connection's number; empty without one."""
    session = holder.session
    if session is None:
        return ""
    if isinstance(session, str) and not is_anonymous(session):
        return session
    return f"#{holder.number}" if holder.number else ""


def label_of(server: Server, holder: Holder, home: str, is_taken: Callable[[str], bool]) -> str:
    """A unique name for an instance: `playwright#12`, `filesystem@~/src/app`, `filesystem@`."""
    if server.shared_by is Share.SESSION:
        label = f"{server.name}#{holder.number}"
    else:
        label = f"{server.name}@{visible(abbreviated(holder.workspace or '', home))}"
    number, own = 1, label
    while is_taken(own):
        number += 1
        own = f"{label}.{number}"
    return own


LIFE = secrets.token_hex(8)
"""Distinguishes this daemon's connections from those of other daemons, which have the same numbers."""


def configured(server: Server, holder: Holder, label: str) -> Server:
    """The configuration of an instance: the server's, with ${workspace} replaced."""
    workspace, own = holder.workspace, Instance(label=label, workspace=holder.workspace)
    if server.shared_by is Share.SESSION:
        session = holder.session if isinstance(holder.session, str) else f"#{holder.number or label} {LIFE}"
        own = attrs.evolve(own, capabilities=holder.capabilities, session=f"{session} {workspace or ''}")
    cwd = server.cwd
    if cwd is None and server.type is TransportType.STDIO:
        cwd = workspace
    made = attrs.evolve(server, instance=own, cwd=cwd)
    return made if workspace is None else made.rewritten(lambda text: text.replace(WORKSPACE, workspace))


_RANKS = (
    ServerState.READY,
    ServerState.DEGRADED,
    ServerState.STARTING,
    ServerState.QUEUED,
    ServerState.BACKOFF,
    ServerState.CRASHLOOP,
    ServerState.NEEDS_AUTH,
    ServerState.FAILED,
)
"""States in order: the instance whose state comes first determines the server's state."""

_BY_RANK = {state: rank for rank, state in enumerate(_RANKS)}


def overall(statuses: Iterable[ServerStatus], before: ServerStatus, *, run: int, now: float) -> ServerStatus:
    """The status of the whole server, `dormant` if no instance runs or starts; `run` is the newest run."""
    shown = [each for each in statuses if each.state in _BY_RANK]
    leading = min(
        shown,
        key=lambda each: (_BY_RANK[each.state], -each.since),
        default=ServerStatus(state=ServerState.DORMANT),
    )
    return attrs.evolve(
        leading,
        since=before.since if leading.state is before.state else now,
        incarnation=run,
        of_instance=True,
        restarts=sum(each.restarts for each in shown),
    )


GRACE_SECONDS = 60.0
"""Seconds that a session's instances outlive its last connection, for a bridge that reconnects."""

BUSY_SECONDS = 5.0
"""Seconds until mcpd checks again a busy instance that is due to end."""

UNUSED_LEAST = 1.0
"""Seconds without use before an instance may make room: a call's new instance is about to start."""

FIRST_LIST = "mcpd: "
"""The owner of an instance that only lists (`servers.keep_listing`): any client's instance may replace it."""

MAX_LOSSES = 1024
"""Most sessions that mcpd has yet to tell why their instance ended: more than use one server in a day."""


@attrs.define(eq=False)
class RunningInstance:
    """One instance with its users."""

    actor: UpstreamAccess
    lists: OwnLists
    key: Key
    use: LastUse
    made_for: str
    """The session that the instance was made for, as events name it; empty without a session."""
    owner: str = ""
    """The principal of the client that the instance was made for (`ports.Holder`)."""
    users: set[Hashable] = attrs.field(factory=set, repr=False)
    leaves_at: float = math.inf
    """The time, on trio's clock, at which the instance ends because its session has left."""
    run: int = 0
    """The instance's newest run that the server's count includes."""

    @property
    def workspace(self) -> str | None:
        """The instance's directory; None if its clients named none."""
        return self.key[1]

    @property
    def has_lost_directory(self) -> bool:
        """Whether the instance cannot start because its workspace is gone; the directory may return."""
        status = self.actor.child.status.value
        return status.cause is Cause.DIRECTORY_UNUSABLE and status.why.data.get("directory") == self.workspace


class ServerInstances:
    """The instances of one server: `ports.Instances`."""

    def __init__(self, server: Server, actors: ServerActors, run: int, stats: CallStats) -> None:
        self.server = server
        self.running: dict[Key, RunningInstance] = {}
        """The instances that take calls, oldest first."""
        self.off = ""
        """Why an operator has switched the server off; empty if it is on."""
        self.status = ServerStatus(state=ServerState.STOPPED, since=actors.around.wall(), incarnation=run)
        self.speaks = True
        """Whether this server is the present one of its name; false once replaced."""
        self.failed: tuple[ServerStatus, StderrTail] | None = None
        """Why the first list failed, until an instance comes up; the failed instance itself is not shown."""
        self.begun = self.ended = self._restarts = 0
        """The numbers of all instances so far, of ended ones, and of the restarts of ended ones."""
        self.refused_hosts: SeenHosts | None = None
        """The hosts that the sandboxes of all instances, also ended ones, refused."""
        self._losses: dict[tuple[Hashable, Key], str] = {}
        """Why an instance ended, by the session that used the instance and by the instance's key."""
        self._actors = actors
        self._run = run
        self._stats = stats

    def of(self, holder: Holder) -> UpstreamAccess:
        """The instance for a client (`ports.Instances.of`)."""
        if self.off or not self.speaks:
            state, why = self.status.state, self.off or "its configuration has just changed, try again"
            raise UpstreamUnavailable(
                f"server {self.server.name} is {in_sentence(state)}: {why}. The call was not sent.",
                server=self.server.name,
                state=str(state),
            )
        key = key_of(self.server, holder)
        found = self.running.get(key)
        if found is None:
            self._make_room(holder.owner)
            found = self.running[key] = self._made(key, holder)
        if holder.session is not None:
            found.users.add(holder.session)
            # Its user has not left, or is back.
            found.leaves_at = math.inf
        found.use.note()
        return found.actor

    def take_loss(self, holder: Holder) -> str:
        """Why a client's last instance ended; returned once (`ports.Instances.take_loss`)."""
        return self._losses.pop((holder.session, key_of(self.server, holder)), "")

    def session_ended(self, session: Hashable, *, soon: bool = False) -> None:
        """Note that a session's last connection has closed (`ports.Instances.session_ended`)."""
        if not isinstance(session, str):
            # Only a session with a key can come back; any other one is not to be kept in memory.
            self._losses = {each: why for each, why in self._losses.items() if each[0] != session}
        for each in self.running.values():
            each.users.discard(session)
            if each.key[0] == session:
                each.leaves_at = trio.current_time() + (0.0 if soon else GRACE_SECONDS)
                self._actors.sooner.set()

    def session_returned(self, session: Hashable) -> None:
        """Note that a session has a connection again."""
        for each in self.running.values():
            if each.key[0] == session:
                each.leaves_at = math.inf

    def end_due(self, now: float) -> float:
        """End the instances that are due; return when to check again, on trio's clock."""
        soonest = math.inf
        for each in list(self.running.values()):
            left = each.leaves_at <= now
            if each.has_lost_directory:
                # Nothing can run there, and who waits for it is to be told so.
                self.end(each, "its directory cannot be used any more")
                continue
            if left or each.use.due <= now:
                if not each.actor.is_busy:
                    if not left:
                        self._note_loss(each, f"after {each.use.seconds:g} s without use")
                    self.end(each, "its session has ended" if left else f"unused for {each.use.seconds:g} s")
                    continue
                # Work is use; but a session that has left does not come back for it.
                each.use.note()
                if left:
                    each.leaves_at = now + BUSY_SECONDS
            soonest = min(soonest, each.use.due, each.leaves_at)
        return soonest

    def end(self, instance: RunningInstance, reason: str, *, patient: bool = True) -> None:
        """End an instance: it takes no new calls and stops at once, or if `patient`, after its calls."""
        del self.running[instance.key]
        self.ended += 1
        self._restarts += instance.actor.child.status.value.restarts
        self._actors.retire(instance.actor, reason, patient=patient)
        instance.lists.forget()
        self._note(EventKind.INSTANCE_ENDED, instance.actor.name, instance.made_for, reason)
        self.tell_status()

    def end_all(self, reason: str, *, patient: bool = True) -> None:
        """End all instances (`end`)."""
        for each in list(self.running.values()):
            self.end(each, reason, patient=patient)

    def switch(self, off: str) -> None:
        """Switch the server off for a reason, or on again (empty)."""
        self.off = off
        if off:
            self.end_all(off, patient=False)
        self.tell_status()

    def tell_status(self) -> None:
        """Tell the registry the status of the server as a whole, if it has changed."""
        statuses = [each.actor.child.status.value for each in self.running.values()]
        now = overall(statuses, self.status, run=self._run, now=self._actors.around.wall())
        now = attrs.evolve(now, restarts=now.restarts + self._restarts)
        if now.state in SERVING:
            self.failed = None
        elif self.failed is not None and now.state is ServerState.DORMANT and not self.off:
            now = attrs.evolve(now, why=self.failed[0].why)
        if self.off:
            since = self.status.since if self.status.state is ServerState.DISABLED else now.since
            why = attrs.evolve(now.why, text=self.off)
            now = attrs.evolve(now, state=ServerState.DISABLED, why=why, since=since)
        if now != self.status and self.speaks:
            self.status = now
            self._actors.around.tell(StatusChanged(server=self.server.name, status=now))

    def _made(self, key: Key, holder: Holder) -> RunningInstance:
        self.begun += 1
        labels = {each.actor.name for each in self.running.values()}
        label = label_of(self.server, holder, self._actors.around.home, labels.__contains__)
        lists = OwnLists(self.server.name, self._tell, lambda: self._run)
        actor = self._actors.add(
            configured(self.server, holder, label),
            lists.tell,
            lambda status: self._on_status(key, lists, status),
        )
        actor.own_catalog = lists.own_catalog
        assert actor.use is not None, "how long an instance lasts depends on it"
        actor.record = partial(actor.use.counted, stats=(actor.stats, self._stats))
        if actor.egress is not None:
            self.refused_hosts = actor.egress.refused = self.refused_hosts or actor.egress.refused
        self._actors.sooner.set()
        made_for = told_session(holder)
        self._note(EventKind.INSTANCE_BEGAN, label, made_for)
        return RunningInstance(
            actor=actor, lists=lists, key=key, use=actor.use, made_for=made_for, owner=holder.owner
        )

    def _make_room(self, owner: str) -> None:
        """End an unused instance to make room: the owner's, if it has one or its share; raises Overloaded."""
        most = self.server.limits.instances
        if len(self.running) < most:
            return
        for each in self.running.values():
            if each.owner == FIRST_LIST:
                self.end(each, "a client needed an instance")
                return
        latest = trio.current_time() - UNUSED_LEAST
        unused = [each for each in self.running.values() if each.use.at <= latest and not each.actor.is_busy]
        owners = [each.owner for each in self.running.values()]
        if owners.count(owner) >= most / len({*owners, owner}) or any(each.owner == owner for each in unused):
            unused = [each for each in unused if each.owner == owner]
        if not unused:
            text = (
                f"server {self.server.name} has {most} instances, the most that limits.instances allows, and"
                " all are in use. The call was not sent; try again when other clients no longer need theirs."
            )
            wait = round(BUSY_SECONDS * 1000)
            raise Overloaded(text, server=self.server.name, bound="limits.instances", retryAfterMs=wait)
        longest = min(unused, key=lambda each: each.use.at)
        self._note_loss(longest, "to make room")
        self.end(longest, "unused for longer than any other, and another client needed an instance")

    def _note_loss(self, instance: RunningInstance, why: str) -> None:
        """Remember for its sessions why an instance ends, unless it never served a call."""
        if instance.actor.stats.calls:
            for session in instance.users:
                keep_latest(self._losses, (session, instance.key), why, MAX_LOSSES)

    def _note(self, kind: EventKind, instance: str, session: str, text: str = "") -> None:
        event = Event(kind=kind, server=self.server.name, instance=instance, session=session, text=text)
        self._actors.around.note(event)

    def _tell(self, fact: Fact) -> None:
        if self.speaks:
            self._actors.around.tell(fact)

    def _on_status(self, key: Key, lists: OwnLists, status: ServerStatus) -> None:
        found = self.running.get(key)
        if found is None or found.lists is not lists:
            # It was dismissed: what it shows until it has stopped concerns nobody.
            return
        if status.incarnation > found.run:
            self._run += status.incarnation - found.run
            found.run = status.incarnation
        if found.has_lost_directory:
            self._actors.sooner.set()
        self.tell_status()
