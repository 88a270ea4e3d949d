"""What servers say about how to use them: their instructions, where a model first meets their tools.

They are foreign text: bounded, with hidden characters made visible, and under the name of the server that says
it, so that they cannot be taken for mcpd's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.safety.escape import legible
from daemon.surfaces.answers import cut, index_lines, share_of
from daemon.surfaces.summing import server_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.catalog.snapshot import ServerEntry
    from daemon.surfaces.base import View

LINES_CHARACTERS = 2000
"""Characters of the lines about all servers in the handshake: some twenty-five of them. Claude Code shows its
model 2 KB of a server's instructions."""

REST = "their tools are listed like all others"
"""What the last line says about servers that are left out."""


def first_instructions(view: View, entries: Iterable[ServerEntry]) -> dict[str, object]:
    """The member of `meta` with the instructions of servers that this client meets for the first time.

    Args:
        view: the view of the session.
        entries: the servers whose tools an answer describes.

    Returns:
        `{"instructions": {SERVER: text}}`; empty if there is nothing new to say. Those of all servers together
        take the share of an answer that each kind of information beside its tools may take.
    """
    new = [entry for entry in entries if entry.instructions and not _was_met(view, entry)]
    if not new:
        return {}
    room = share_of(view) // len(new)
    return {"instructions": {entry.name: cut(legible(entry.instructions), room) for entry in new}}


def server_lines(view: View) -> str:
    """A line for each server that says what it is for, for our own instructions; empty if none does."""
    said = [(entry.name, words) for entry in view.servers.values() if (words := server_words(entry))]
    return "Servers:\n" + index_lines(said, LINES_CHARACTERS, REST) if said else ""


def _was_met(view: View, entry: ServerEntry) -> bool:
    """Whether the client was shown a tool of a server before, or has loaded one."""
    keys = [(entry.name, tool) for tool in entry.tools or ()]
    return any(key in view.loaded or view.shown(key) is not None for key in keys)
