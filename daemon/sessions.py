"""Sessions: what a client has loaded, which may outlive its connection.

A session belongs to a connection, or to a key that connections name; then it is shared by them and remembered.
In memory are the sessions that somebody uses. One that is named for the first time is recalled; if it cannot
be, it begins empty, is kept as a part of what is stored, and is tried again until the two can be put together.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio
from loguru import logger

from daemon.catalog.loaded import Loaded, LoadedStatus
from daemon.catalog.remembered import MAX_KEY, OTHERS, SessionRecord, is_anonymous
from daemon.catalog.shown import Shown
from daemon.catalog.validity import judge_in
from daemon.errors import McpdError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from daemon.catalog.loaded import Source
    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.model import Tool
    from daemon.watch import Watch

RETRY_SECONDS = 5.0
"""Between tries to recall a session whose store does not answer: each costs a request up to 1.5 s."""

JUDGED_AT_ONCE = 50
"""Sessions that are judged in one turn of the loop: seven milliseconds with twenty tools each."""

LOOKED_AT_ONCE = 10
"""Connections whose list is looked at in one turn of the loop: two milliseconds."""

MAX_LEFT = 100
"""Sessions that nobody uses of which it is known what they were shown, those left last: a bridge that connects
again does so within seconds."""


class Memory(Protocol):
    """What remembers sessions."""

    def keep(self, record: SessionRecord) -> None:
        """This is what the session of that key is now."""

    def touch(self, key: str, at: float) -> None:
        """Somebody used the session of that key."""

    async def kept(self, key: str) -> bool:
        """Return once what was last told of that key is on disk; False if it cannot be, for now."""

    async def recall(self, key: str) -> SessionRecord | None:
        """The session of that key; None if there is none.

        Raises:
            McpdError: the store does not answer.
        """


class Conversation:
    """One session, as long as somebody uses it."""

    def __init__(self, key: str | None, *, loaded: Loaded | None = None, created_at: float = 0.0) -> None:
        """Begin.

        Args:
            key: what its connections name it by, or their bridge; None belongs to one connection.
            loaded: what it has loaded.
            created_at: when it was first named, in seconds since the epoch.
        """
        self.key = key
        self.loaded = loaded or Loaded()
        self.created_at = created_at
        self.client = ""
        self.shown = Shown()
        """What any of its connections was shown: for one that comes back and has not been shown it yet."""
        self.began: float | None = None
        """When it was first named, in seconds since the epoch, if that was before it came here: what it was
        shown meanwhile is not known."""
        self.whole = True
        """Whether all that is stored of it is here."""
        self.kept = False
        """Whether what remembers sessions has it, or was told of it."""
        self.users = 0
        self.left = False
        """Whether somebody has used it, and nobody does any more: another may have its key."""
        self.tried_at = float("-inf")
        self.judged: tuple[Catalog, Loaded] | None = None
        """By what its tools were judged last, and what came out."""
        self._listeners: dict[object, Callable[[], None]] = {}

    @property
    def named(self) -> bool:
        """Whether somebody has given it a name, which others can give as well."""
        return self.key is not None and not is_anonymous(self.key)

    def listen(self, listener: Callable[[], None], owner: object) -> None:
        """Call `listener` whenever what is loaded changes, until `owner` leaves."""
        self._listeners[owner] = listener

    def leave(self, owner: object) -> None:
        """Call `owner`'s listener no more."""
        self._listeners.pop(owner, None)

    def become(self, loaded: Loaded) -> bool:
        """What is loaded is now this. Returns whether it is anything else than before."""
        if loaded is self.loaded:
            return False
        self.loaded = loaded
        for listener in list(self._listeners.values()):
            listener()
        return True

    def is_judged_by(self, catalog: Catalog) -> bool:
        """Whether nothing has changed since its tools were judged by this catalog."""
        judged = self.judged
        return judged is not None and judged[0] is catalog and judged[1] is self.loaded

    def record(self, now: float) -> SessionRecord:
        """What is to be remembered of it."""
        return SessionRecord(
            key=self.key or "",
            loaded=self.loaded,
            client=self.client,
            created_at=self.created_at,
            seen_at=now,
            partial=not self.whole,
        )


class Sessions:
    """All sessions in use."""

    def __init__(
        self,
        catalog: Watch[Catalog],
        memory: Memory,
        *,
        wall: Callable[[], float],
        on_loaded: Callable[[str, int], None] = lambda _source, _count: None,
        on_invalid: Callable[[str, int], None] = lambda _status, _count: None,
    ) -> None:
        """Begin with none.

        Args:
            catalog: the newest catalog, which loaded tools are judged by.
            memory: what remembers sessions with a key.
            wall: seconds since the epoch.
            on_loaded: told when tools are loaded that were not: who loaded them, and how many.
            on_invalid: told when loaded tools become invalid: their status, and how many.
        """
        self._catalog = catalog
        self._memory = memory
        self._wall = wall
        self._on_loaded = on_loaded
        self._on_invalid = on_invalid
        self._named: dict[str, Conversation] = {}
        self._unnamed: set[Conversation] = set()
        self._recalls: dict[str, trio.Event] = {}
        self._watchers: dict[object, Callable[[], None]] = {}
        self._left: dict[str, Shown] = {}

    def keys(self) -> Iterator[str]:
        """The keys in use."""
        return iter(list(self._named))

    def in_use(self) -> list[tuple[SessionRecord, int]]:
        """Sessions that somebody has named and that are here whole, each with the number of its connections."""
        here = [each for each in self._named.values() if each.whole and each.named]
        return [(each.record(self._wall()), each.users) for each in here]

    def watch(self, look: Callable[[], None], owner: object) -> None:
        """Call `look` soon after each change of the catalog, until `owner` leaves."""
        self._watchers[owner] = look

    def unwatch(self, owner: object) -> None:
        """Call `owner`'s no more."""
        self._watchers.pop(owner, None)

    def unnamed(self) -> Conversation:
        """A session for one connection."""
        conversation = Conversation(None, created_at=self._wall())
        conversation.users = 1
        self._unnamed.add(conversation)
        return conversation

    def identify(self, conversation: Conversation, key: str) -> None:
        """Its bridge can come back to it: what it loads from now on is remembered."""
        conversation.key = key
        self._unnamed.discard(conversation)
        self._named[key] = conversation

    def find(self, key: str) -> Conversation | None:
        """The session of that key, if it is here, whole; None if it must be recalled first."""
        found = self._named.get(key)
        if found is None or found.whole or trio.current_time() - found.tried_at < RETRY_SECONDS:
            return found
        return None

    def join(self, conversation: Conversation, client: str) -> None:
        """A connection uses it from now on."""
        conversation.users += 1
        conversation.left = False
        if conversation.key is not None:
            self._named[conversation.key] = conversation
            conversation.client = client or conversation.client
            self._memory.touch(conversation.key, self._wall())
            if conversation.whole and not conversation.kept and conversation.named:
                # It may be shown tools from now on: in another life that is to be known.
                self._keep(conversation)

    def part(self, conversation: Conversation) -> None:
        """A connection uses it no more; when none does, only what remembers it has it."""
        conversation.users -= 1
        if conversation.users > 0:
            return
        conversation.left = True
        self._unnamed.discard(conversation)
        key = conversation.key
        if key is not None and self._named.get(key) is conversation:
            del self._named[key]
            if conversation.named:
                self._left.pop(key, None)
                self._left[key] = conversation.shown
                while len(self._left) > MAX_LEFT:
                    del self._left[next(iter(self._left))]
            if conversation.named or conversation.kept:
                self._memory.touch(key, self._wall())

    async def recall(self, key: str) -> Conversation:
        """The session of that key: here, remembered, or new. Asks what remembers it once for all who wait.

        To be joined before anything else is awaited, so that all who wait get the same one.
        """
        while (under_way := self._recalls.get(key)) is not None:
            await under_way.wait()
        found = self.find(key)
        if found is not None:
            return found
        self._recalls[key] = done = trio.Event()
        try:
            return await self._recalled(key)
        finally:
            del self._recalls[key]
            done.set()

    def load(self, conversation: Conversation, tools: Iterable[tuple[Tool, int]], source: Source) -> bool:
        """Take tools in that a call has loaded. Returns whether anything is loaded that was not."""
        before = conversation.loaded.tools
        changed = conversation.become(conversation.loaded.adding(tools, source, self._wall()))
        if changed:
            after = conversation.loaded.tools
            self._on_loaded(source, sum(before.get(key) is not each for key, each in after.items()))
            self._keep(conversation)
        return changed

    async def kept(self, conversation: Conversation) -> None:
        """Return once what it has loaded is on disk, or cannot be for now."""
        if conversation.key is not None and conversation.whole:
            await self._memory.kept(conversation.key)

    def adopt(self, record: SessionRecord) -> None:
        """Another daemon on the same store has changed a session that is in use here, too."""
        conversation = self._named.get(record.key)
        if conversation is not None and conversation.whole:
            # What is judged otherwise here is not written back: daemons that see different tools would never
            # come to rest.
            catalog = self._catalog.value
            loaded = record.loaded.judged(partial(judge_in, catalog), self._wall())
            conversation.judged = (catalog, loaded)
            _assume_shown(conversation, loaded)
            conversation.become(loaded)

    async def run(self) -> None:
        """Judge what is loaded whenever the catalog changes, and have all look who watch, until cancelled."""
        judged: Catalog | None = None
        while True:
            catalog = self._catalog.value
            changed = _changed_servers(judged, catalog)
            if changed:
                await self._judge_all(catalog, changed)
            await self._look_all()
            judged = catalog
            await self._catalog.wait_changed(catalog)

    async def _judge_all(self, catalog: Catalog, changed: set[str]) -> None:
        for number, conversation in enumerate([*self._named.values(), *self._unnamed], 1):
            if any(server in changed for server, _tool in conversation.loaded.tools):
                self._judge(conversation, catalog)
            if number % JUDGED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    async def _look_all(self) -> None:
        for number, (owner, look) in enumerate(list(self._watchers.items()), 1):
            if owner in self._watchers:
                try:
                    look()
                except Exception:  # noqa: BLE001 - the boundary: a fault met for one client is nobody else's
                    logger.exception("a fault of mcpd's own while looking at what a client was given")
            if number % LOOKED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    def judge(self, conversation: Conversation) -> None:
        """Judge what it has loaded by the catalog as it is now: the gate of each request."""
        self._judge(conversation, self._catalog.value)

    def _judge(self, conversation: Conversation, catalog: Catalog) -> None:
        before = conversation.loaded
        if not before.tools or conversation.is_judged_by(catalog):
            return
        loaded = before.judged(partial(judge_in, catalog), self._wall())
        conversation.judged = (catalog, loaded)
        if loaded is before:
            return
        for status in LoadedStatus:
            count = sum(
                each.verdict.status is status and before.tools[key].verdict.status is not status
                for key, each in loaded.tools.items()
            )
            if count and status is not LoadedStatus.VALID:
                self._on_invalid(status, count)
        conversation.become(loaded)
        if not conversation.left:
            self._keep(conversation)

    def _keep(self, conversation: Conversation) -> None:
        if conversation.key is not None:
            conversation.kept = True
            self._memory.keep(conversation.record(self._wall()))

    def _begun(self, key: str) -> Conversation:
        conversation = Conversation(key, created_at=self._wall())
        conversation.shown = self._left.pop(key, conversation.shown)
        return conversation

    async def _recalled(self, key: str) -> Conversation:
        conversation = self._named.get(key) or self._begun(key)
        conversation.tried_at = trio.current_time()
        try:
            record = await self._memory.recall(key)
        except McpdError as error:
            conversation.whole, conversation.began = False, 0.0
            logger.warning("what a session had loaded cannot be recalled now: {}", error)
            return conversation
        except Exception:  # noqa: BLE001 - a fault of ours costs a session its memory, not its connection
            conversation.whole, conversation.began = False, 0.0
            logger.exception("a fault of mcpd's own while recalling a session")
            return conversation
        unsaid = not conversation.whole and (bool(conversation.loaded.tools) or record is None)
        conversation.whole, conversation.began = True, None
        if record is not None:
            conversation.kept = True
            conversation.began = conversation.created_at = record.created_at
            conversation.client = conversation.client or record.client
            _assume_shown(conversation, record.loaded)
            conversation.become(record.loaded.joined(conversation.loaded))
        if unsaid:
            self._keep(conversation)
        self._judge(conversation, self._catalog.value)
        return conversation


def _assume_shown(conversation: Conversation, loaded: Loaded) -> None:
    """What it has loaded it was shown, even if that was in an earlier life, or by another daemon."""
    for key, each in loaded.tools.items():
        conversation.shown.assume(key, each.schema_hash)


def _changed_servers(before: Catalog | None, after: Catalog) -> set[str]:
    """The servers of which something changed that decides whether loaded tools are valid."""
    if before is None:
        return set(after.servers)
    servers = {*before.servers, *after.servers}
    moved = {server for server, _tool in before.off ^ after.off}
    return moved | {
        name for name in servers if _decisive(before.servers.get(name)) != _decisive(after.servers.get(name))
    }


def _decisive(entry: ServerEntry | None) -> object:
    return None if entry is None else (id(entry.tools), entry.disabled, entry.renamed)


def fault_of_key(key: object) -> str:
    """What is wrong with a session's key; empty if nothing is."""
    if not isinstance(key, str):
        return "a session's key is a string"
    if not 0 < len(key) <= MAX_KEY or not key.isprintable():
        return f"a session's key has 1 to {MAX_KEY} printable characters"
    if key.startswith(OTHERS):
        return f"a session's key does not begin with '{OTHERS}': so are those of other users called"
    return ""
