"""Categories of tools: applies the configuration's selections to the servers' lists.

A configured name that its server does not list is *unresolved*: a warning at start, `UnknownTool` when called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

import msgspec

from daemon.config.config_model import Category as CategoryConfig
from daemon.config.config_model import Override, ToolSelection
from daemon.config.names import matches, read_reference, spellings
from daemon.model import Tool, ToolKey

Listed = Mapping[str, Mapping[str, Tool] | None]

K = TypeVar("K")
V = TypeVar("V")


class Lazily(Mapping[K, V]):
    """A read-only mapping whose keys are known and whose values are made on first use."""

    __slots__ = ("_keys", "_made", "_make")

    def __init__(self, keys: Collection[K], make: Callable[[K], V]) -> None:
        """`keys` must be immutable and fast to search, `make` deterministic."""
        self._keys = keys
        self._make = make
        self._made: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        made = self._made.get(key)
        if made is None:
            if key not in self._keys:
                raise KeyError(key)
            made = self._made[key] = self._make(key)
        return made

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class Table(Collection["ToolKey"]):
    """An immutable set of tools by key, in the order of servers and their lists."""

    __slots__ = ("by_server",)

    def __init__(self, by_server: Mapping[str, Mapping[str, Tool]]) -> None:
        self.by_server = by_server

    def get(self, key: ToolKey) -> Tool | None:
        """The tool with a key; None if there is none."""
        tools = self.by_server.get(key[0])
        return None if tools is None else tools.get(key[1])

    def beyond(self, other: Table) -> Iterator[tuple[ToolKey, Tool]]:
        """The tools that the other table lacks or has in another form."""
        for server, tools in self.by_server.items():
            theirs = other.by_server.get(server, {})
            if theirs is not tools:
                for name, tool in tools.items():
                    if theirs.get(name) is not tool:
                        yield (server, name), tool

    def lacking(self, other: Table) -> Iterator[tuple[ToolKey, Tool]]:
        """The other table's tools whose keys this table lacks."""
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


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as a member of a category."""

    server: str
    tool: str
    enabled: bool
    description: str | None
    """The category's description of the tool; None leaves the server's."""
    listed: bool
    """Whether the server lists the tool; False while the list is unknown or the tool is held."""


class ToolCategory(msgspec.Struct, frozen=True, kw_only=True):
    """A category, with the tools that it selects."""

    name: str
    description: str
    skill: str | None
    servers: tuple[str, ...]
    members: Mapping[str, Member]
    """Members by the name for calls: bare, or `server/tool` if two tools have the same name."""
    unresolved: tuple[str, ...]
    """Configured names that a known list lacks."""
    open: bool
    """Whether a server's list may add members, besides those named in the configuration."""
    selection: ToolSelection
    whole: bool = False
    """Whether the category is exactly one server's list."""

    def member(self, key: ToolKey) -> Member | None:
        """The member for a tool; None if the tool is not in the category."""
        server, tool = key
        for name in (tool, f"{server}/{tool}"):
            found = self.members.get(name)
            if found is not None and (found.server, found.tool) == key:
                return found
        return None


def resolve(
    config: CategoryConfig, listed: Listed, given: Mapping[ToolKey, str], held: Collection[ToolKey] = ()
) -> ToolCategory:
    """Apply a category's selection to the known tools; `listed` is None for a server that has not listed.

    `given` has the tools' names across all servers. `held` tools wait for approval, and keep their names.
    """
    members: dict[str, Member] = {}
    overrides = dict(_override_keys(config, listed))
    selected = tuple(_selected(config, listed))
    owners: dict[str, str] = {}
    for server, tool in selected:
        if tool not in owners or given.get((server, tool)) == tool:
            owners[tool] = server
    for server, tool in selected:
        override = overrides.get((server, tool), _NO_OVERRIDE)
        known = listed.get(server)
        member = Member(
            server=server,
            tool=tool,
            enabled=override.enabled,
            description=override.description,
            listed=known is not None and tool in known and (server, tool) not in held,
        )
        members[tool if owners[tool] == server else f"{server}/{tool}"] = member
    is_open = not config.tools.include_names or bool(config.tools.include_patterns)
    return ToolCategory(
        name=config.name,
        description=config.description,
        skill=config.skill,
        servers=_servers(config, members.values(), listed if is_open else {}),
        members=members,
        open=is_open,
        selection=config.tools,
        unresolved=tuple(_unresolved([(m.server, m.tool) for m in members.values()], overrides, listed)),
    )


def concerned(config: CategoryConfig, listed: Mapping[str, object]) -> Collection[str]:
    """The servers whose lists decide which members a category has."""
    if config.server is None:
        return listed.keys()
    named = (*config.tools.include_names, *config.tools.overrides)
    return {config.server, *(_locate(name, config, listed)[0] for name in named)}


def of_server(name: str, description: str, tools: Collection[str], held: Collection[str] = ()) -> ToolCategory:
    """Make the category of one server's tools, of which `held` wait for approval."""
    return ToolCategory(
        name=name,
        description=description or f"Tools of the MCP server {name}.",
        skill=None,
        servers=(name,),
        members={
            each: Member(server=name, tool=each, enabled=True, description=None, listed=each not in held)
            for each in tools
        },
        unresolved=(),
        open=True,
        selection=_EVERYTHING,
        whole=True,
    )


def prospect(category: ToolCategory, server: str, tool: str) -> Member | None:
    """The member that an unlisted tool would become in an open category; None if it is excluded."""
    pair = (server, tool)
    selection = category.selection
    if _matches(pair, selection.exclude_patterns):
        return None
    if selection.include_patterns and not _matches(pair, selection.include_patterns):
        return None
    named = (selection.overrides[name] for name in spellings(server, tool) if name in selection.overrides)
    override = next(named, _NO_OVERRIDE)
    return Member(
        server=server, tool=tool, enabled=override.enabled, description=override.description, listed=False
    )


_NO_OVERRIDE = Override()
_EVERYTHING = ToolSelection()


def _servers(config: CategoryConfig, members: Iterable[Member], candidates: Listed) -> tuple[str, ...]:
    own = [config.server] if config.server else [name for name, tools in candidates.items() if tools is None]
    drawn = dict.fromkeys([*own, *(member.server for member in members)])
    order = {name: position for position, name in enumerate(candidates)}
    return tuple(drawn if config.server else sorted(drawn, key=lambda name: order.get(name, len(order))))


def _locate(name: str, config: CategoryConfig, listed: Mapping[str, object]) -> tuple[str, str]:
    reference = read_reference(name, listed)
    return reference.server or config.server or "", reference.tool


def _override_keys(
    config: CategoryConfig, listed: Mapping[str, object]
) -> Iterator[tuple[tuple[str, str], Override]]:
    for name, override in config.tools.overrides.items():
        yield _locate(name, config, listed), override


def _selected(config: CategoryConfig, listed: Listed) -> Iterator[tuple[str, str]]:
    selection = config.tools
    chosen = [_locate(name, config, listed) for name in selection.include_names]
    candidates = _candidates(config, listed)
    if selection.include_patterns:
        chosen += [pair for pair in candidates if _matches(pair, selection.include_patterns)]
    elif not selection.include_names:
        chosen += candidates
    kept = [pair for pair in dict.fromkeys(chosen) if not _matches(pair, selection.exclude_patterns)]
    # A disabled tool stays a member, even if nothing selects it, so that a call can say so.
    off = [pair for pair, override in _override_keys(config, listed) if not override.enabled]
    yield from dict.fromkeys([*kept, *off])


def _candidates(config: CategoryConfig, listed: Listed) -> list[tuple[str, str]]:
    servers = [config.server] if config.server is not None else list(listed)
    return [(server, tool) for server in servers for tool in listed.get(server) or ()]


def _matches(pair: tuple[str, str], patterns: Sequence[str]) -> bool:
    server, tool = pair
    return any(matches(pattern, server, tool) for pattern in patterns)


def _unresolved(
    members: Sequence[ToolKey], overrides: Mapping[ToolKey, Override], listed: Listed
) -> Iterator[str]:
    for server, tool in dict.fromkeys([*members, *overrides]):
        known = listed.get(server)
        if known is not None and tool not in known:
            yield f"{server}/{tool}"
