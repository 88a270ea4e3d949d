"""Where a client sits: its profile, its surface, and what it has loaded.

A session speaks the protocol; this is what it speaks about. Whoever remembers sessions across connections
remembers a seat's `loaded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.catalog.loaded import Loaded
from daemon.config.model import DEFAULT_PROFILE
from daemon.surfaces.base import View
from daemon.surfaces.table import chosen

if TYPE_CHECKING:
    from daemon.callpath import SessionContext
    from daemon.config.model import Profile
    from daemon.surfaces.base import Loading, Surface


class Seat:
    """One client's. Begins as the default profile has it."""

    def __init__(self, context: SessionContext) -> None:
        self.denied = ""
        """Why nothing is served here; empty if it is."""
        self.profile: Profile = context.config.profiles[DEFAULT_PROFILE]
        self.loaded = Loaded()
        self._context = context
        self.surface: Surface = next(iter(context.surfaces.values()))
        self._sit(None, None)

    def greet(self, hello: dict[str, object]) -> None:
        """Take what a bridge asks for on behalf of its client: a profile, a surface, a lazy switch.

        What does not exist denies everything: a profile restricts, and showing more than it would because of a
        typo is no way out.
        """
        name, surface, lazy = hello.get("profile"), hello.get("surface"), hello.get("lazy")
        if isinstance(name, str):
            found = self._context.config.profiles.get(name)
            if found is None:
                known = ", ".join(self._context.config.profiles)
                self.denied = f"there is no profile {name[:100]!r} in mcpd's configuration; there are: {known}"
                return
            self.profile = found
        self._sit(surface if isinstance(surface, str) else None, lazy if isinstance(lazy, bool) else None)

    def view(self) -> View:
        """What the client sees of the catalog now."""
        return View(
            catalog=self._context.catalog.value,
            profile=self.profile,
            now=self._context.wall(),
            means=self._context.means,
            loaded=self.loaded,
        )

    def load(self, loading: Loading) -> bool:
        """Take tools in that a call has loaded. Returns whether anything is loaded that was not."""
        view = self.view()
        tools = [
            (offered.tool, view.catalog.servers[offered.tool.server].epoch)
            for key in loading.tools
            if (offered := view.offer.tools.get(key)) is not None
        ]
        before = self.loaded
        self.loaded = before.adding(tools, loading.source, view.now)
        return self.loaded is not before

    def _sit(self, surface: str | None, lazy: bool | None) -> None:  # noqa: FBT001
        name = chosen(self._context.config, self.profile, surface=surface, lazy=lazy)
        surfaces = self._context.surfaces
        # A name that was asked for is checked also where the switches make no use of it.
        for each in (surface or name, name):
            if each not in surfaces:
                self.denied = f"there is no surface {each[:100]!r}; there are: {', '.join(surfaces)}"
                return
        self.surface = surfaces[name]
