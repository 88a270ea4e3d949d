"""The state of one session: what it has loaded and was shown, over all of its connections."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from daemon.catalog.loaded import MAX_KEY, OTHERS, TOKENS, Loaded, SessionRecord, is_anonymous, judge_in
from daemon.catalog.shown import Shown
from daemon.clients.links import Links
from daemon.clients.permissions.grants import Grants

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from daemon.catalog.loaded import LoadedStatus
    from daemon.catalog.snapshot import Catalog


class SessionState:
    """What one session has loaded and was shown, kept in memory while a connection uses it."""

    def __init__(self, key: str | None, *, loaded: Loaded | None = None, created_at: float = 0.0) -> None:
        """Begin with what is known of the session.

        Args:
            key: the key that its connections, or their bridge, name it by; None belongs to one connection.
            loaded: what it has loaded.
            created_at: when it was first named, in seconds since the epoch.
        """
        self.key = key
        self.alias: str | None = None
        """The key that its bridge can name it by, where nothing is stored under that."""
        self.loaded = loaded or Loaded()
        self.created_at = created_at
        self.client = ""
        self.shown = Shown()
        """What any of its connections was shown, for a client that resumes it over a new one."""
        self.began: float | None = None
        """When it was first named, in seconds since the epoch, if that was before it was recalled: what it was
        shown in the meantime is not known."""
        self.grants = Grants()
        """What it may call without its user being asked again."""
        self.links = Links()
        """What its results have linked to; it ends with its last connection."""
        self.whole = True
        """Whether everything that is stored of it is here."""
        self.kept = False
        """Whether the session store has it, or was told of it."""
        self.users = 0
        """How many connections use it."""
        self.left = False
        """Whether its last connection has left it: another state may have its key by now."""
        self.tried_at = float("-inf")
        """When it was last tried to be recalled, on trio's clock."""
        self._judged: tuple[Catalog, Loaded] | None = None
        """The catalog that its tools were last judged by, and the result."""
        self._listeners: dict[object, Callable[[], None]] = {}

    @property
    def named(self) -> bool:
        """Whether a client chose its key, so that other connections can name it as well."""
        return self.key is not None and not is_anonymous(self.key)

    @property
    def identity(self) -> Hashable:
        """Identifies it as long as it lasts, over all of its connections."""
        return self.key or self.alias or self

    def listen(self, listener: Callable[[], None], owner: object) -> None:
        """Call `listener` whenever what is loaded changes, until `owner` leaves."""
        self._listeners[owner] = listener

    def leave(self, owner: object) -> None:
        """Stop calling the listener of `owner`."""
        self._listeners.pop(owner, None)

    def become(self, loaded: Loaded) -> bool:
        """Replace what is loaded and call the listeners. Returns whether it has changed."""
        if loaded is self.loaded:
            return False
        self.loaded = loaded
        for listener in list(self._listeners.values()):
            listener()
        return True

    def judge(self, catalog: Catalog, at: float) -> Mapping[LoadedStatus, int] | None:
        """Judge what it has loaded by a catalog.

        Args:
            catalog: the catalog to judge by.
            at: the present time, in seconds since the epoch.

        Returns:
            How many tools have become invalid, by how; None if no verdict has changed.
        """
        before = self.loaded
        if not before.tools or self.is_judged_by(catalog):
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
        """Take over a change that another daemon on the same store has made.

        Verdicts that differ here are not to be written back: daemons that see different tools would overwrite
        each other endlessly.
        """
        loaded = record.loaded.judged(partial(judge_in, catalog), at)
        self._judged = catalog, loaded
        self.assume_shown(loaded)
        self.become(loaded)

    def recalled(self, record: SessionRecord) -> None:
        """Take over what is stored of the session, beside what it has loaded since."""
        self.kept = True
        self.began = self.created_at = record.created_at
        self.client = self.client or record.client
        self.assume_shown(record.loaded)
        self.become(record.loaded.joined(self.loaded))

    def assume_shown(self, loaded: Loaded) -> None:
        """Assume that it was shown what it has loaded, be it in an earlier life or by another daemon."""
        for key, each in loaded.tools.items():
            self.shown.assume(key, each.schema_hash)

    def record(self, now: float) -> SessionRecord:
        """The record of the session to store."""
        return SessionRecord(
            key=self.key or "",
            loaded=self.loaded,
            client=self.client,
            created_at=self.created_at,
            seen_at=now,
            partial=not self.whole,
        )

    def is_judged_by(self, catalog: Catalog) -> bool:
        """Whether its tools were judged by this catalog and have not changed since."""
        judged = self._judged
        return judged is not None and judged[0] is catalog and judged[1] is self.loaded


def fault_of_key(key: object) -> str:
    """What is wrong with a session's key; empty if nothing is."""
    if not isinstance(key, str):
        return "a session's key is a string"
    if not 0 < len(key) <= MAX_KEY or not key.isprintable():
        return f"a session's key has 1 to {MAX_KEY} printable characters"
    for prefix in (OTHERS, TOKENS):
        if key.startswith(prefix):
            return f"a session's key does not begin with '{prefix}': so are those of others called"
    return ""
