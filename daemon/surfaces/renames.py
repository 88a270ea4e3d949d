"""A tool that its server has renamed: which one it is now, and whether it is what its old name stood for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.catalog.definitions import hashes

if TYPE_CHECKING:
    from daemon.catalog.offer import Offered
    from daemon.model import Tool, ToolKey
    from daemon.surfaces.base import View


def renamed(view: View, name: str) -> tuple[ToolKey, Offered] | None:
    """What a name meant, and the tool that it is now; None if it was not renamed, or is not to be had."""
    catalog = view.catalog
    key = catalog.names.key_of(name, catalog.servers)
    if key is None or key in view.offer.tools:
        return None
    entry = catalog.servers[key[0]]
    if entry.tools is None or key[1] in entry.tools:
        return None
    new = entry.renamed.get(key[1])
    if new is None and key in view.loaded:
        # The session knows it from a life of the daemon in which it happened.
        new = view.loaded.tools[key].verdict.renamed_to
    offered = None if new is None else view.offer.tools.get((key[0], new))
    return None if offered is None else (key, offered)


def is_as_shown(view: View, old: ToolKey, now: Tool) -> bool:
    """Whether a renamed tool is what the client was shown under its old name, or loaded, but for the name."""
    seen = view.shown(old)
    if seen is None and old in view.loaded:
        seen = view.loaded.tools[old].schema_hash
    if seen is None:
        return False
    whole, _content = hashes({**msgspec.json.decode(now.raw), "name": old[1]})
    return whole == seen
