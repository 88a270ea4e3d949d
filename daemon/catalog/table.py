"""Tools of several servers side by side, without a row for each: what two tables share is seen by server."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from daemon.model import Tool, ToolKey


class Table(Collection["ToolKey"]):
    """Keys of tools, in the order of the servers and of each server's list. Never changes."""

    __slots__ = ("by_server",)

    def __init__(self, by_server: Mapping[str, Mapping[str, Tool]]) -> None:
        """Put servers' tools side by side."""
        self.by_server = by_server
        """The tools by name, by server; not to be changed."""

    def get(self, key: ToolKey) -> Tool | None:
        """A tool; None if it is not there."""
        tools = self.by_server.get(key[0])
        return None if tools is None else tools.get(key[1])

    def beyond(self, other: Table) -> Iterator[tuple[ToolKey, Tool]]:
        """The tools that are not the same in another table, or not there."""
        for server, tools in self.by_server.items():
            theirs = other.by_server.get(server, {})
            if theirs is not tools:
                for name, tool in tools.items():
                    if theirs.get(name) is not tool:
                        yield (server, name), tool

    def lacking(self, other: Table) -> Iterator[tuple[ToolKey, Tool]]:
        """The tools of another table that are not there in this one, whatever they are like."""
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
