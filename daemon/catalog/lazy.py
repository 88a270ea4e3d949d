"""Mappings for many tools: one whose values are made on first use, and a table of tools by server.

Of thousands of values most are never looked at. A `Lazily` behaves like a complete dictionary, and once all of
its values are made it refers to nothing else.

A `Table` puts the tools of several servers side by side without a row for each, so that two tables are compared
server by server.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING, TypeVar, cast, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.model import Tool, ToolKey

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class Lazily(Mapping[K, V]):
    """A mapping with known keys whose values are made once each, on first use. Read-only."""

    __slots__ = ("_keys", "_made", "_make")

    def __init__(self, keys: Collection[K], make: Callable[[K], V], made: dict[K, V] | None = None) -> None:
        """Take the keys; no value is made yet.

        Args:
            keys: all keys, in order; must not change, and must be quick to test for membership.
            make: makes the value of a key; always the same value for the same key.
            made: values that were made already; taken over.
        """
        self._keys = keys
        self._make = make
        self._made: dict[K, V] = {} if made is None else made

    def __getitem__(self, key: K) -> V:
        made = self._made.get(key)
        if made is None:
            if key not in self._keys:
                raise KeyError(key)
            made = self._made[key] = self._make(key)
        return made

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: V | D | None = None) -> V | D | None:
        """The value of a key, or the default."""
        made = self._made.get(key)
        if made is not None:
            return made
        return self[key] if key in self._keys else default

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def values(self) -> ValuesView[V]:
        """All values; makes those that are missing."""
        return self.whole().values()

    def items(self) -> ItemsView[K, V]:
        """All items; makes the values that are missing."""
        return self.whole().items()

    @property
    def made(self) -> Mapping[K, V]:
        """The values made so far, in no order."""
        return self._made

    def whole(self) -> dict[K, V]:
        """The complete dictionary: the same object each time, read-only."""
        if self._keys is not self._made:
            made, make = self._made, self._make
            whole = {key: made.get(key) or make(key) for key in self._keys}
            self._keys = self._made = whole
            self._make = whole.__getitem__
        return self._made


class Table(Collection["ToolKey"]):
    """Keys of tools, in the order of the servers and of each server's list. Never changes."""

    __slots__ = ("by_server",)

    def __init__(self, by_server: Mapping[str, Mapping[str, Tool]]) -> None:
        """Take the servers' tools."""
        self.by_server = by_server
        """Each server's tools by name; read-only."""

    def get(self, key: ToolKey) -> Tool | None:
        """The tool of this key; None if there is none."""
        tools = self.by_server.get(key[0])
        return None if tools is None else tools.get(key[1])

    def beyond(self, other: Table) -> Iterator[tuple[ToolKey, Tool]]:
        """The tools that differ from those of another table, or are missing there."""
        for server, tools in self.by_server.items():
            theirs = other.by_server.get(server, {})
            if theirs is not tools:
                for name, tool in tools.items():
                    if theirs.get(name) is not tool:
                        yield (server, name), tool

    def lacking(self, other: Table) -> Iterator[tuple[ToolKey, Tool]]:
        """The tools of another table whose keys are missing in this one."""
        for server, tools in other.by_server.items():
            ours = self.by_server.get(server, {})
            if ours is not tools:
                for name, tool in tools.items():
                    if name not in ours:
                        yield (server, name), tool

    def __contains__(self, key: object) -> bool:
        server, name = cast("ToolKey", key)
        tools = self.by_server.get(server)
        return tools is not None and name in tools

    def __iter__(self) -> Iterator[ToolKey]:
        return ((server, name) for server, tools in self.by_server.items() for name in tools)

    def __len__(self) -> int:
        return sum(map(len, self.by_server.values()))


NO_TOOLS = Table({})
