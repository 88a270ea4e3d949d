"""Where the state is kept, known before anything of the store is loaded.

Commands ask, too, and what speaks PostgreSQL takes half a second.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import attrs

if TYPE_CHECKING:
    from daemon.store.store import Store

DATABASE = "state.db"
"""The file in the state directory."""

STORE = "daemon.store.store"
"""Has `Store` and `set_aside`; loaded in a worker thread."""

URLS = "daemon.store.urls"
"""Has `of_file`; likewise."""

_HARMLESS = re.compile(r"[\w.\-\[\]:]*(/[\w\-]*)?")
"""A host, its port and a database, if there is an `@` before it or no password at all."""


@attrs.frozen
class Place:
    """Where one daemon keeps its state."""

    url: str | None = attrs.field(repr=False)
    """As the configuration says it; None is the file."""
    path: Path | None
    """The file; None where it is a server's."""

    @property
    def where(self) -> str:
        """The same for people: no user, no password."""
        if self.path is not None:
            return os.fsencode(self.path).decode(errors="replace")
        scheme, _, rest = (self.url or "").partition("://")
        # Passwords may hold any character: what does not look like a host and a database is not shown.
        shown = rest.rpartition("@")[2]
        return f"{scheme}://{shown}" if _HARMLESS.fullmatch(shown) else f"{scheme} (state.url)"

    @property
    def shared(self) -> bool:
        """Whether other daemons may keep theirs there, too."""
        return self.path is None

    def load(self) -> None:
        """Load what `open` needs; blocks."""
        importlib.import_module(STORE)

    def open(self, writer: str) -> Store:
        """Open the store; blocks.

        Args:
            writer: tells what this daemon has written from what others have.

        Raises:
            StoreFault: it cannot be opened.
        """
        url = self.url
        if url is None:
            url = importlib.import_module(URLS).of_file(self.path)
        store: Store = importlib.import_module(STORE).Store.open(url, writer=writer)
        return store

    def set_aside(self, now: float) -> str:
        """Rename a corrupt file; returns its new name. Blocks.

        Args:
            now: seconds since the epoch, for the name.

        Raises:
            StoreFault: it cannot be renamed.
        """
        url = self.url
        if url is None:
            url = importlib.import_module(URLS).of_file(self.path)
        name: str = importlib.import_module(STORE).set_aside(url, now)
        return name


def place_of(url: str | None, state_dir: Path) -> Place:
    """Where the configuration's `state.url` says, or in the state directory if it says nothing."""
    if url is None:
        return Place(None, (state_dir / DATABASE).absolute())
    scheme, _, rest = url.partition("://")
    if scheme.partition("+")[0] == "sqlite":
        return Place(url, Path(unquote(rest.removeprefix("/"))))
    return Place(url, None)
