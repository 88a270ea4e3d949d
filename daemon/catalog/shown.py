"""What one client was last shown of each tool, so that none is called as it was before it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from daemon.catalog.offer import Offered
    from daemon.model import Tool, ToolKey

MAX_SHOWN = 10_000
"""Tools that are remembered one by one, the latest: as many as one server may list. A list that was shown whole
costs nothing, for it is shared."""


class Shown:
    """One client's."""

    __slots__ = ("_before", "_list", "_single")

    def __init__(self, before: Callable[[ToolKey], str | None] = lambda _key: None) -> None:
        """Begin with nothing.

        Args:
            before: what the same session was shown over another connection.
        """
        self._before = before
        self._list: Mapping[ToolKey, Offered] = {}
        self._single: dict[ToolKey, str] = {}

    def hash_of(self, key: ToolKey) -> str | None:
        """The schema hash of a tool as it was shown; None if it never was."""
        digest = self._single.get(key)
        if digest is not None:
            return digest
        listed = self._list.get(key)
        return self._before(key) if listed is None else listed.tool.schema_hash

    def add(self, tools: Iterable[Tool]) -> None:
        """These were shown."""
        for tool in tools:
            key = tool.server, tool.name
            self._single.pop(key, None)
            self._single[key] = tool.schema_hash
        while len(self._single) > MAX_SHOWN:
            del self._single[next(iter(self._single))]

    def add_list(self, tools: Mapping[ToolKey, Offered]) -> None:
        """All of these were shown; the mapping must not change any more."""
        if self._list is tools and not self._single:
            return
        gone = {key: listed.tool.schema_hash for key, listed in self._list.items() if key not in tools}
        self._single = {**gone, **{key: digest for key, digest in self._single.items() if key not in tools}}
        self._list = tools
        self.add(())
