"""The tools that one session has loaded: listed for it from then on.

A value that is replaced, never changed: whoever keeps sessions across connections keeps these.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.model import Tool, ToolKey

MAX_LOADED = 512
"""Tools that one session has loaded at most; beyond, those loaded first leave the list. A model that has been
shown more schemas than that has lost its context to them."""


class Source(StrEnum):
    """Who loaded a tool (seed 002, §7.1.3)."""

    MANUAL = "manual"
    """The model asked for it."""
    AUTO = "auto"
    """A call to it did."""


@attrs.frozen(kw_only=True)
class LoadedTool:
    """A tool as it was when a session loaded it."""

    key: ToolKey
    """Which tool."""
    schema_hash: str
    """What its callers depend on, as it was shown."""
    epoch: int
    """Its server's epoch at that time."""
    source: Source
    """Who loaded it."""
    at: float
    """When, in seconds since the epoch."""


@attrs.frozen
class Loaded:
    """What a session has loaded, in the order in which it did."""

    tools: Mapping[ToolKey, LoadedTool] = attrs.field(factory=dict)
    """By tool."""

    def __contains__(self, key: ToolKey) -> bool:
        return key in self.tools

    def adding(self, tools: Iterable[tuple[Tool, int]], source: Source, at: float) -> Loaded:
        """With these tools as they are now; the very same object if all of them are there already.

        Args:
            tools: each with the epoch of its server.
            source: who loads them.
            at: seconds since the epoch.
        """
        fresh = {
            (tool.server, tool.name): LoadedTool(
                key=(tool.server, tool.name), schema_hash=tool.schema_hash, epoch=epoch, source=source, at=at
            )
            for tool, epoch in tools
            if not self._has(tool)
        }
        if not fresh:
            return self
        kept = {key: each for key, each in self.tools.items() if key not in fresh}
        merged = {**kept, **fresh}
        return Loaded(dict(islice(merged.items(), max(0, len(merged) - MAX_LOADED), None)))

    def _has(self, tool: Tool) -> bool:
        known = self.tools.get((tool.server, tool.name))
        return known is not None and known.schema_hash == tool.schema_hash
