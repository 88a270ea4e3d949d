"""The surface of a client that has chosen servers: each as if the client were connected to it directly.

It is chosen by naming servers (`mcpd connect --server`, `/mcp/-/NAME`) and not as a surface: without them there
would be nothing to show. Which servers, and under which names, the view's catalog says (`catalog.offer`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.safety.escape import legible
from daemon.surfaces.answers import one_line, quoted
from daemon.surfaces.down import is_down, words
from daemon.surfaces.full import FullSurface

if TYPE_CHECKING:
    from daemon.catalog.entry import ServerEntry
    from daemon.surfaces.base import View


class ItselfSurface(FullSurface):
    """Chosen servers, as themselves."""

    name = "itself"
    chosen = True

    def instructions(self, view: View) -> str:
        """What each server says about how to use it, under its name, or why it is not there."""
        servers = view.catalog.servers
        said = [(entry.name, _why_absent(entry) or legible(entry.instructions)) for entry in servers.values()]
        gone = [quoted(name) for name in view.catalog.chosen if name not in servers]
        said += [(name, "not in mcpd's configuration; what it has appears here once it is") for name in gone]
        return "\n\n".join(f"{name}: {words}" for name, words in said if words)


def _why_absent(entry: ServerEntry) -> str:
    """Why a server shows nothing; empty if it does."""
    if entry.switched_off:
        return f"switched off by an operator of mcpd (`mcpd enable {entry.name}` brings it back)"
    if entry.disabled:
        return "switched off in mcpd's configuration"
    if is_down(entry):
        return f"down now. {words(entry)} What it has appears here once it is up."
    if entry.tools is None and not entry.introduction:
        why = entry.listing_error or entry.status.reason or str(entry.status.state)
        return f"not there yet ({one_line(legible(why))}); what it has appears here once it is"
    return ""
