"""The tools that one session has loaded: listed for it as long as they are valid.

A value that is replaced, never changed: whoever keeps sessions across connections keeps these.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
    POLICY_PRELOAD = "policy_preload"
    """Its profile says so (`preload`)."""


class LoadedStatus(StrEnum):
    """Whether a loaded tool can still be used (seed 002, §7.1.3)."""

    VALID = "valid"
    INVALID_CHANGED = "invalid_changed"
    INVALID_DELETED = "invalid_deleted"
    INVALID_DISABLED = "invalid_disabled"
    INVALID_SERVER_DISABLED = "invalid_server_disabled"
    INVALID_RENAMED = "invalid_renamed"


@attrs.frozen(kw_only=True)
class Verdict:
    """What became of a loaded tool."""

    status: LoadedStatus = LoadedStatus.VALID
    """Whether it can be used."""
    reason: str = ""
    """Why not, in words; empty if it can."""
    renamed_to: str | None = None
    """What its server calls it now, if it was renamed."""

    @property
    def valid(self) -> bool:
        """Whether it can be used."""
        return self.status is LoadedStatus.VALID


VALID = Verdict()


@attrs.frozen(kw_only=True)
class LoadedTool:
    """A tool as it was when a session loaded it."""

    key: ToolKey
    """The tool, by server and name."""
    schema_hash: str
    """What its callers depend on, as it was shown."""
    epoch: int
    """Its server's epoch at that time."""
    source: Source
    """What loaded the tool: a model, a search, a profile."""
    at: float
    """When, in seconds since the epoch."""
    verdict: Verdict = VALID
    """Whether the tool can still be called, and why not."""
    judged_at: float = 0.0
    """When its verdict last changed, in seconds since the epoch; 0 if it never did."""


@attrs.frozen
class Loaded:
    """What a session has loaded, in the order in which it did."""

    tools: Mapping[ToolKey, LoadedTool] = attrs.field(factory=dict)
    """By tool, the invalid ones too."""

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
        return self.joined(Loaded(fresh))

    def joined(self, later: Loaded) -> Loaded:
        """With what was loaded later; the very same object if that is nothing."""
        if not later.tools:
            return self
        kept = {key: each for key, each in self.tools.items() if key not in later.tools}
        merged = {**kept, **later.tools}
        return Loaded(dict(islice(merged.items(), max(0, len(merged) - MAX_LOADED), None)))

    def judged(self, judge: Callable[[LoadedTool], Verdict], at: float) -> Loaded:
        """With each tool's verdict as it is now; the very same object if none changed.

        Args:
            judge: says what became of a tool.
            at: seconds since the epoch.
        """
        changed = {
            key: attrs.evolve(each, verdict=verdict, judged_at=at)
            for key, each in self.tools.items()
            if (verdict := judge(each)) != each.verdict
        }
        return Loaded({**self.tools, **changed}) if changed else self

    def _has(self, tool: Tool) -> bool:
        known = self.tools.get((tool.server, tool.name))
        return known is not None and known.schema_hash == tool.schema_hash and known.verdict.valid
