"""One session: what it has loaded and was shown, over whatever connections."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from daemon.catalog.loaded import Loaded, judge_in
from daemon.catalog.remembered import MAX_KEY, OTHERS, SessionRecord, is_anonymous
from daemon.catalog.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.catalog.loaded import LoadedStatus
    from daemon.catalog.snapshot import Catalog


class SessionState:
    """What one session has loaded and was shown, as long as somebody uses it."""

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
        self._judged: tuple[Catalog, Loaded] | None = None
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

    def judge(self, catalog: Catalog, at: float) -> Mapping[LoadedStatus, int] | None:
        """Judge what it has loaded by a catalog.

        Args:
            catalog: what there is.
            at: seconds since the epoch.

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
        """Another daemon on the same store has changed it, too.

        What is judged otherwise here is not to be written back: daemons that see different tools would never
        come to rest.
        """
        loaded = record.loaded.judged(partial(judge_in, catalog), at)
        self._judged = catalog, loaded
        self.assume_shown(loaded)
        self.become(loaded)

    def recalled(self, record: SessionRecord) -> None:
        """This is stored of it."""
        self.kept = True
        self.began = self.created_at = record.created_at
        self.client = self.client or record.client
        self.assume_shown(record.loaded)
        self.become(record.loaded.joined(self.loaded))

    def assume_shown(self, loaded: Loaded) -> None:
        """What it has loaded it was shown, even if that was in an earlier life, or by another daemon."""
        for key, each in loaded.tools.items():
            self.shown.assume(key, each.schema_hash)

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

    def is_judged_by(self, catalog: Catalog) -> bool:
        """Whether nothing has changed since its tools were judged by this catalog."""
        judged = self._judged
        return judged is not None and judged[0] is catalog and judged[1] is self.loaded


def fault_of_key(key: object) -> str:
    """What is wrong with a session's key; empty if nothing is."""
    if not isinstance(key, str):
        return "a session's key is a string"
    if not 0 < len(key) <= MAX_KEY or not key.isprintable():
        return f"a session's key has 1 to {MAX_KEY} printable characters"
    if key.startswith(OTHERS):
        return f"a session's key does not begin with '{OTHERS}': so are those of other users called"
    return ""
