"""The sessions in use: their loaded tools and grants, which may outlive a connection.

A session belongs to one connection, or to a key, by which several connections share it and the store keeps it.
If its recall fails, it begins empty, is stored as partial, and is recalled again until both parts can be
joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import attrs
import msgspec
import trio
from loguru import logger

from daemon.catalog.loaded import (
    MAX_KEY,
    OTHERS,
    TOKENS,
    Loaded,
    LoadedStatus,
    SessionRecord,
    Source,
    is_anonymous,
    judge_in,
)
from daemon.catalog.shown import Shown
from daemon.catalog.snapshot import Catalog, ServerEntry
from daemon.clients.input_required import TTL
from daemon.errors import McpdError
from daemon.kit.waiting import Watch, keep_latest
from daemon.model import Tool, ToolKey

MAX_AGREED = 1024
"""Approved calls that may be repeated: as many as may wait for their clients' input."""


class AgreedCalls:
    """Approved calls of all clients that may each be repeated once without asking the user."""

    def __init__(self) -> None:
        self._agreed: dict[bytes, tuple[tuple[str, ...], float]] = {}

    def __len__(self) -> int:
        return len(self._agreed)

    def note(self, owner: bytes, tool: tuple[str, ...]) -> None:
        """Record that the server asked for input after an approved call (`asking.owner_of`)."""
        keep_latest(self._agreed, owner, (tool, trio.current_time() + TTL), MAX_AGREED)

    def take(self, owner: bytes, tool: tuple[str, ...]) -> bool:
        """Whether this call repeats an approved one; the approval is then used up."""
        known, until = self._agreed.pop(owner, ((), 0.0))
        return known == tool and trio.current_time() < until


MAX_GRANTS = 1024
"""Grants of one session, the newest: as many as one pattern of an operator may give."""

MAX_LEFT_GRANTS = 256
"""Unconnected sessions whose grants are kept: the most recently left ones."""

GRACE = 600.0
"""Seconds that grants survive a session's last connection: the time that a user has to answer."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Permission to call one definition of a tool."""

    schema_hash: str
    by: str
    until: float | None = None
    """When the grant expires, on trio's clock; None lasts as long as the session."""

    def holds(self, now: float) -> bool:
        """Whether the grant has not expired."""
        return self.until is None or now < self.until


class Grants:
    """The grants of one session."""

    def __init__(self) -> None:
        self._grants: dict[ToolKey, Grant] = {}

    def __bool__(self) -> bool:
        return bool(self._grants)

    def allow(self, tool: Tool, by: str, until: float | None = None) -> None:
        """Allow calls of a tool in its present definition."""
        grant = Grant(schema_hash=tool.schema_hash, by=by, until=until)
        keep_latest(self._grants, (tool.server, tool.name), grant, MAX_GRANTS)

    def covers(self, tool: Tool, now: float) -> bool:
        """Whether the present definition of a tool may be called."""
        grant = self._grants.get((tool.server, tool.name))
        return grant is not None and grant.schema_hash == tool.schema_hash and grant.holds(now)

    def author(self, tool: Tool) -> str:
        """The author of a tool's grant; empty without one."""
        grant = self._grants.get((tool.server, tool.name))
        return "" if grant is None else grant.by

    def revoke(self, keys: Collection[ToolKey]) -> list[ToolKey]:
        """Revoke the grants of these tools, and return the tools that had a grant."""
        return [key for key in keys if self._grants.pop(key, None) is not None]

    def current(self, now: float) -> Mapping[ToolKey, Grant]:
        """The grants that have not expired."""
        self._grants = {key: grant for key, grant in self._grants.items() if grant.holds(now)}
        return dict(self._grants)


class SessionGrants:
    """The grants of all keyed sessions that are in use or were left a short while ago."""

    def __init__(self, used: Callable[[str], Grants | None]) -> None:
        self._used = used
        self._left: dict[str, tuple[Grants, float]] = {}

    @property
    def left(self) -> list[Grants]:
        """The grants of sessions that were left."""
        return [grants for grants, _at in self._left.values()]

    def keep(self, key: str, grants: Grants) -> None:
        """Keep the grants of a session whose last connection has left."""
        if grants:
            keep_latest(self._left, key, (grants, trio.current_time()), MAX_LEFT_GRANTS)
        else:
            self._left.pop(key, None)

    def take(self, key: str) -> Grants:
        """Remove and return the grants of a session that is used again."""
        grants, left = self._left.pop(key, (None, 0.0))
        return Grants() if grants is None or trio.current_time() - left >= GRACE else grants

    def change(self, key: str, act: Callable[[Grants], object]) -> None:
        """Apply `act` to the grants of a session, whether it is in use or not."""
        used = self._used(key)
        grants = self.take(key) if used is None else used
        act(grants)
        if used is None:
            self.keep(key, grants)

    def end(self, owner: str, used: Iterable[str]) -> None:
        """Revoke the grants of a principal's sessions; `used` are the keys of all sessions in use."""
        for key in [*used, *self._left]:
            if key.startswith(owner):
                self.change(key, lambda grants: grants.revoke([*grants.current(trio.current_time())]))


@attrs.define(eq=False)
class SessionState:
    """The loaded and shown tools of one session, kept in memory while a connection uses it."""

    key: str | None
    """The key that the session's connections or their bridge name; None if it belongs to one connection."""
    loaded: Loaded = attrs.field(factory=Loaded)
    created_at: float = 0.0
    alias: str | None = attrs.field(default=None, init=False)
    """The key by which a bridge can name the session when it is not stored."""
    client: str = attrs.field(default="", init=False)
    shown: Shown = attrs.field(factory=Shown, init=False)
    """Tools shown over any of its connections; a client that reconnects has seen them."""
    began: float | None = attrs.field(default=None, init=False)
    """Start (epoch seconds) of a session that was recalled: mcpd does not know which tools it saw before."""
    grants: Grants = attrs.field(factory=Grants, init=False)
    links: dict[str, str] = attrs.field(factory=dict, init=False)
    """The server of each URI that the session's results have linked to (`clients.attachment`)."""
    whole: bool = attrs.field(default=True, init=False)
    """Whether all of the stored record is in memory."""
    kept: bool = attrs.field(default=False, init=False)
    """Whether the store has the session or is about to write it."""
    users: int = attrs.field(default=0, init=False)
    left: bool = attrs.field(default=False, init=False)
    """Whether the last connection has left; another state may have the key by now."""
    tried_at: float = attrs.field(default=float("-inf"), init=False)
    """When the session's last recall was tried, on trio's clock."""
    _judged: tuple[Catalog, Loaded] | None = attrs.field(default=None, init=False)
    _listeners: dict[object, Callable[[], None]] = attrs.field(factory=dict, init=False)

    @property
    def named(self) -> bool:
        """Whether a client has chosen the key, which other connections may name as well."""
        return self.key is not None and not is_anonymous(self.key)

    @property
    def identity(self) -> Hashable:
        """Identifies the session over all its connections."""
        return self.key or self.alias or self

    def listen(self, listener: Callable[[], None], owner: object) -> None:
        """Call `listener` whenever the loaded tools change, until `owner` leaves."""
        self._listeners[owner] = listener

    def leave(self, owner: object) -> None:
        """Stop calling the listener of `owner`."""
        self._listeners.pop(owner, None)

    def become(self, loaded: Loaded) -> bool:
        """Replace the loaded tools and call the listeners. Returns whether the tools have changed."""
        if loaded is self.loaded:
            return False
        self.loaded = loaded
        for listener in list(self._listeners.values()):
            listener()
        return True

    def judge(self, catalog: Catalog, at: float) -> Mapping[LoadedStatus, int] | None:
        """Judge the loaded tools; returns how many became invalid, by status, or None without a change."""
        before, judged = self.loaded, self._judged
        if not before.tools or (judged is not None and judged[0] is catalog and judged[1] is before):
            return None
        loaded = before.judged(partial(judge_in, catalog), at)
        self._judged = catalog, loaded
        if loaded is before:
            return None
        self.become(loaded)
        return Counter(
            each.verdict.status
            for key, each in loaded.tools.items()
            if not each.verdict.valid and each.verdict.status is not before.tools[key].verdict.status
        )

    def adopt(self, record: SessionRecord, catalog: Catalog, at: float) -> None:
        """Take another daemon's change. Own verdicts are not written back: two daemons would never stop."""
        loaded = record.loaded.judged(partial(judge_in, catalog), at)
        self._judged = catalog, loaded
        self.assume_shown(loaded)
        self.become(loaded)

    def recalled(self, record: SessionRecord) -> None:
        """Join the stored session with the tools that were loaded meanwhile."""
        self.kept = True
        self.began = self.created_at = record.created_at
        self.client = self.client or record.client
        self.assume_shown(record.loaded)
        self.become(record.loaded.joined(self.loaded))

    def assume_shown(self, loaded: Loaded) -> None:
        """Assume that the client has seen its loaded tools, earlier or at another daemon."""
        for key, each in loaded.tools.items():
            self.shown.assume(key, each.schema_hash)

    def record(self, now: float) -> SessionRecord:
        """Make the record to store."""
        return SessionRecord(
            key=self.key or "",
            loaded=self.loaded,
            client=self.client,
            created_at=self.created_at,
            seen_at=now,
            partial=not self.whole,
        )


def fault_of_key(key: object) -> str:
    """The fault of a session key; empty if the key is valid."""
    if not isinstance(key, str):
        return "a session's key is a string"
    if not 0 < len(key) <= MAX_KEY or not key.isprintable():
        return f"a session's key has 1 to {MAX_KEY} printable characters"
    for prefix in (OTHERS, TOKENS):
        if key.startswith(prefix):
            return f"a session's key must not begin with '{prefix}', as other users' keys do"
    return ""


RETRY_SECONDS = 5.0
"""Seconds between attempts to recall a session: with a silent store, each delays a request by 1.5 s."""

JUDGED_AT_ONCE = 50
"""Sessions judged in one turn of the loop: seven milliseconds with twenty tools each."""

CALLED_AT_ONCE = 10
"""Connections whose lists are compared in one turn of the loop: two milliseconds."""

MAX_LEFT = 100
"""Unused sessions whose shown tools are kept, those left last: bridges reconnect within seconds."""


class Memory(Protocol):
    """The store of keyed sessions."""

    shared: bool
    """Whether other daemons may store the same sessions."""

    def keep(self, record: SessionRecord) -> None:
        """Store the present record of a session."""

    def touch(self, key: str, at: float) -> None:
        """Record when a session was used."""

    async def kept(self, key: str) -> bool:
        """Wait until the key's last record is on disk. Returns False if it cannot be written for now."""

    async def recall(self, key: str) -> SessionRecord | None:
        """The stored session, perhaps partial; None without one. Raises McpdError if the store is silent."""

    async def look(self) -> None:
        """Return once the writes of other daemons are known here, or cannot be read for now."""


@attrs.define(eq=False)
class Sessions:
    """All sessions with a connection."""

    _catalog: Watch[Catalog]
    _memory: Memory
    _wall: Callable[[], float] = attrs.field(kw_only=True)
    _on_loaded: Callable[[str, int], None] = attrs.field(default=lambda _source, _count: None, kw_only=True)
    _on_invalid: Callable[[str, int], None] = attrs.field(default=lambda _status, _count: None, kw_only=True)
    _on_left: Callable[[Hashable], None] = attrs.field(default=lambda _identity: None, kw_only=True)
    """Called with the identity of a session after its last connection has left."""
    _on_joined: Callable[[Hashable], None] = attrs.field(default=lambda _identity: None, kw_only=True)
    watchers: dict[object, Callable[[], None]] = attrs.field(factory=dict, init=False)
    """Called soon after each change of the catalog; the keys are the callbacks' owners."""
    named: dict[str, SessionState] = attrs.field(factory=dict, init=False)
    users: Counter[Hashable] = attrs.field(factory=Counter, init=False)
    own: set[SessionState] = attrs.field(factory=set, init=False)
    recalls: dict[str, trio.Event] = attrs.field(factory=dict, init=False)
    grants: SessionGrants = attrs.field(init=False)
    _left: dict[str, Shown] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        named = self.named
        self.grants = SessionGrants(lambda key: named[key].grants if key in named else None)

    def in_use(self) -> list[tuple[SessionRecord, int]]:
        """The named sessions that are wholly in memory, each with its number of connections."""
        here = [each for each in self.named.values() if each.whole and each.named]
        return [(each.record(self._wall()), each.users) for each in here]

    def unnamed(self) -> SessionState:
        """Make a session that belongs to one connection."""
        state = SessionState(None, created_at=self._wall())
        state.users = 1
        self.own.add(state)
        self.users[state.identity] += 1
        return state

    def identify(self, state: SessionState, key: str, *, stored: bool = True) -> None:
        """Let a connection's own session be resumed under a key; `stored` also writes it to the store."""
        before = state.identity
        if stored:
            state.key = key
            self.own.discard(state)
            self.named[key] = state
        else:
            state.alias = key
        _enter(self.users, state.identity, self._on_joined)
        _leave(self.users, before, self._on_left)

    def end_grants(self, servers: Collection[str]) -> None:
        """Revoke all grants for servers whose names now mean other programs, if any."""
        for grants in [*(each.grants for each in (*self.named.values(), *self.own)), *self.grants.left]:
            grants.revoke([key for key in grants.current(trio.current_time()) if key[0] in servers])

    def find(self, key: str) -> SessionState | None:
        """The session with a key, if it is in memory; None if it must be recalled first."""
        found = self.named.get(key)
        if found is None or found.whole or trio.current_time() - found.tried_at < RETRY_SECONDS:
            return found
        return None

    def join(self, state: SessionState, client: str) -> None:
        """Add a connection to a session."""
        state.users += 1
        _enter(self.users, state.identity, self._on_joined)
        state.left = False
        if state.key is not None:
            if state.users == 1:
                state.grants = self.grants.take(state.key)
            self.named[state.key] = state
            state.client = client or state.client
            self._memory.touch(state.key, self._wall())
            if state.whole and not state.kept and state.named:
                # It may be shown tools from now on, which the next daemon must know.
                self.keep(state)

    def part(self, state: SessionState) -> None:
        """Remove a connection from a session; after the last one, the session leaves memory."""
        state.users -= 1
        _leave(self.users, state.identity, self._on_left)
        if state.users > 0:
            return
        state.left = True
        self.own.discard(state)
        key = state.key
        if key is not None and self.named.get(key) is state:
            del self.named[key]
            self.grants.keep(key, state.grants)
            if state.named:
                keep_latest(self._left, key, state.shown, MAX_LEFT)
            if state.named or state.kept:
                self._memory.touch(key, self._wall())

    async def recall(self, key: str) -> SessionState:
        """Recall the session with a key, once for all callers. A caller must join it before any await."""
        while (under_way := self.recalls.get(key)) is not None:
            await under_way.wait()
        found = self.find(key)
        if found is not None:
            return found
        self.recalls[key] = done = trio.Event()
        try:
            return await self._recalled(key)
        finally:
            del self.recalls[key]
            done.set()

    def load(
        self,
        state: SessionState,
        tools: Sequence[tuple[Tool, int]],
        source: Source,
        leaving: Collection[ToolKey] | None = None,
    ) -> bool:
        """Add the tools that a call has loaded, with their servers' epochs; returns whether the tools changed.

        `leaving` are the tools to unload in exchange. Unless it is None, the loaded tools count as just used.
        """
        before = state.loaded
        after = before.without(leaving or ()).adding(tools, source, self._wall())
        if leaving is not None:
            after = after.used([(tool.server, tool.name) for tool, _epoch in tools])
        changed = state.become(after)
        if changed:
            new = sum(not before.has(each.key, each.schema_hash) for each in after.tools.values())
            self._on_loaded(source, new)
            self.keep(state)
        return changed

    async def kept(self, state: SessionState) -> None:
        """Return once a session's loaded tools are on disk, or cannot be written for now."""
        if state.key is not None and state.whole:
            await self._memory.kept(state.key)

    def adopt(self, record: SessionRecord) -> None:
        """Take another daemon's change of a session that is in use here."""
        state = self.named.get(record.key)
        if state is not None and state.whole:
            state.adopt(record, self._catalog.value, self._wall())

    async def run(self) -> None:
        """At each change of the catalog, judge all sessions and call all watchers, until cancelled."""
        judged: Catalog | None = None
        while True:
            catalog = self._catalog.value
            changed = _changed_servers(judged, catalog)
            for number, state in enumerate([*self.named.values(), *self.own] if changed else (), 1):
                if any(server in changed for server, _tool in state.loaded.tools):
                    self.judge(state, catalog)
                if number % JUDGED_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
            await call_watchers(self.watchers)
            judged = catalog
            await self._catalog.wait_changed(catalog)

    def judge(self, state: SessionState, catalog: Catalog | None = None) -> None:
        """Judge a session's tools by a catalog, by default the present one; every request does so first."""
        invalid = state.judge(self._catalog.value if catalog is None else catalog, self._wall())
        if invalid is None:
            return
        for status, count in invalid.items():
            self._on_invalid(status, count)
        if not state.left:
            self.keep(state)

    def keep(self, state: SessionState) -> None:
        """Store the present state of a keyed session."""
        if state.key is not None:
            state.kept = True
            self._memory.keep(state.record(self._wall()))

    async def _recalled(self, key: str) -> SessionState:
        state = self.named.get(key)
        if state is None:
            state = SessionState(key, created_at=self._wall())
            state.shown = self._left.pop(key, state.shown)
        state.tried_at, was_whole = trio.current_time(), state.whole
        state.whole, state.began = False, 0.0
        try:
            record = await self._memory.recall(key)
        except McpdError as error:
            logger.warning("cannot read a session's loaded tools from the store now: {}", error)
            return state
        except Exception:  # noqa: BLE001 - a fault of mcpd costs a session its memory, not its connection
            logger.exception("internal error in mcpd while recalling a session")
            return state
        unsaid = not was_whole and (bool(state.loaded.tools) or record is None)
        state.whole = record is None or not record.partial
        if record is not None:
            state.recalled(record)
        else:
            # Another daemon may show it something unknown here.
            state.began = state.created_at if self._memory.shared else None
        if not state.whole:
            state.began = 0.0
        elif unsaid:
            self.keep(state)
        self.judge(state)
        return state


async def call_watchers(watchers: dict[object, Callable[[], None]]) -> None:
    """Call all watchers, only a few in each turn of the loop."""
    for number, (owner, look) in enumerate(list(watchers.items()), 1):
        if owner in watchers:
            try:
                look()
            except Exception:  # noqa: BLE001 - the boundary: a fault met for one client concerns no other
                logger.exception("internal error in mcpd while comparing the lists of a client")
        if number % CALLED_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()


def _enter(users: Counter[Hashable], identity: Hashable, on_joined: Callable[[Hashable], None]) -> None:
    users[identity] += 1
    if users[identity] == 1:
        on_joined(identity)


def _leave(users: Counter[Hashable], identity: Hashable, on_left: Callable[[Hashable], None]) -> None:
    users[identity] -= 1
    if not users[identity]:
        del users[identity]
        on_left(identity)


def _changed_servers(before: Catalog | None, after: Catalog) -> set[str]:
    if before is None:
        return set(after.servers)
    servers = {*before.servers, *after.servers}
    moved = {server for server, _tool in before.off ^ after.off}
    return moved | {
        name for name in servers if _decisive(before.servers.get(name)) != _decisive(after.servers.get(name))
    }


def _decisive(entry: ServerEntry | None) -> object:
    return None if entry is None else (id(entry.tools), entry.disabled, entry.tool_list.renamed)


async def unload(sessions: Sessions, memory: Memory, identity: Hashable, keys: Collection[ToolKey]) -> bool:
    """Unload tools from a session, in use or only stored; returns whether that outlives the daemon.

    `identity` is the key, or else `SessionState.identity`. Raises McpdError if the store does not answer.
    """
    # Otherwise a row of another daemon that is unknown here would survive (`state.writer`).
    await memory.look()
    state = _in_use(sessions, identity)
    if state is None and isinstance(identity, str):
        record = await memory.recall(identity)
        state = _in_use(sessions, identity)
        if state is None and record is not None:
            memory.keep(attrs.evolve(record, loaded=record.loaded.without(keys)))
            return await memory.kept(identity)
    if state is None:
        return True
    if state.become(state.loaded.without(keys)):
        sessions.keep(state)
    return state.key is None or await memory.kept(state.key)


def _in_use(sessions: Sessions, identity: Hashable) -> SessionState | None:
    each = (*sessions.named.values(), *sessions.own)
    return next((state for state in each if state.identity == identity), None)
