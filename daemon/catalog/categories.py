"""The tools of each category: the configuration's selection, applied to what the servers list.

A tool may be named bare, as `server/tool`, or with the prefix of a client (`mcp__server__tool`); all mean the
same. A name that a server does not list is *unresolved*: a warning at start, `UnknownTool` when called.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING, TypeVar, cast, overload

import attrs

from daemon.config.config_model import Override, ToolSelection
from daemon.config.names import matches, read_reference, spellings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from daemon.config.config_model import Category as CategoryConfig
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


@attrs.frozen(kw_only=True)
class Member:
    """One tool's place in a category."""

    server: str
    """The server that has the tool."""
    tool: str
    """The tool's own name on that server."""
    enabled: bool
    """Whether it may be described and called."""
    description: str | None
    """The description shown instead of the server's own; None for the server's."""
    listed: bool
    """Whether the server lists it; False also while the server's tools are unknown."""


@attrs.frozen(kw_only=True)
class ToolCategory:
    """A category with the tools that its selection yields."""

    name: str
    """The name by which clients ask for it."""
    description: str
    """The description that models choose by."""
    skill: str | None
    """A text handed out with its tools."""
    servers: tuple[str, ...]
    """The servers that it draws from."""
    members: Mapping[str, Member]
    """Its tools by the name that clients use: bare, or `server/tool` where two share one."""
    unresolved: tuple[str, ...]
    """Configured names that their server does not list although its tools are known."""
    open: bool
    """Whether its servers' lists decide what it holds; otherwise only configured names do."""
    selection: ToolSelection = attrs.field(repr=False)
    """The configured selection of its tools."""
    whole: bool = False
    """Whether it is one server's complete list, with nothing switched off or described differently."""

    def member(self, key: ToolKey) -> Member | None:
        """The member for a tool, under whatever name; None if the category does not hold it."""
        server, tool = key
        for name in (tool, f"{server}/{tool}"):
            found = self.members.get(name)
            if found is not None and (found.server, found.tool) == key:
                return found
        return None


def resolve(
    config: CategoryConfig, listed: Mapping[str, Mapping[str, Tool] | None], given: Mapping[ToolKey, str]
) -> ToolCategory:
    """Apply a category's selection to the tools that are known now.

    Args:
        config: the category.
        listed: the tools of each server; None for a server that has not listed any.
        given: the tools' names where all servers' tools are side by side: of two tools with the same name, the
            same one keeps it in every category.
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
            listed=known is not None and tool in known,
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
    """The servers whose lists decide what a category holds."""
    if config.server is None:
        return listed.keys()
    named = (*config.tools.include_names, *config.tools.overrides)
    return {config.server, *(_locate(name, config, listed)[0] for name in named)}


def of_server(name: str, description: str, tools: Mapping[str, Tool] | None) -> ToolCategory:
    """The category of all of a server's tools, for configurations without categories."""
    return ToolCategory(
        name=name,
        description=description or f"Tools of the MCP server {name}.",
        skill=None,
        servers=(name,),
        members=Lazily(
            tools or (),
            lambda tool: Member(server=name, tool=tool, enabled=True, description=None, listed=True),
        ),
        unresolved=(),
        open=True,
        selection=_EVERYTHING,
        whole=True,
    )


def prospect(category: ToolCategory, server: str, tool: str) -> Member | None:
    """The member that a tool would be in an open category if its server listed it; None if excluded."""
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


def _servers(
    config: CategoryConfig, members: Iterable[Member], candidates: Mapping[str, Mapping[str, Tool] | None]
) -> tuple[str, ...]:
    """The servers that a category draws from: its own, its members', and those that may yet add some."""
    own = [config.server] if config.server else [name for name, tools in candidates.items() if tools is None]
    drawn = dict.fromkeys([*own, *(member.server for member in members)])
    order = {name: position for position, name in enumerate(candidates)}
    return tuple(drawn if config.server else sorted(drawn, key=lambda name: order.get(name, len(order))))


def _locate(name: str, config: CategoryConfig, listed: Mapping[str, object]) -> tuple[str, str]:
    """The server and the tool that a configured name means; a bare name belongs to the category's server."""
    reference = read_reference(name, listed)
    return reference.server or config.server or "", reference.tool


def _override_keys(
    config: CategoryConfig, listed: Mapping[str, object]
) -> Iterator[tuple[tuple[str, str], Override]]:
    for name, override in config.tools.overrides.items():
        yield _locate(name, config, listed), override


def _selected(
    config: CategoryConfig, listed: Mapping[str, Mapping[str, Tool] | None]
) -> Iterator[tuple[str, str]]:
    """(server, tool) pairs: names in their order, then what patterns add, all without what is excluded."""
    selection = config.tools
    chosen = [_locate(name, config, listed) for name in selection.include_names]
    candidates = _candidates(config, listed)
    if selection.include_patterns:
        chosen += [pair for pair in candidates if _matches(pair, selection.include_patterns)]
    elif not selection.include_names:
        chosen += candidates
    kept = [pair for pair in dict.fromkeys(chosen) if not _matches(pair, selection.exclude_patterns)]
    # A tool that is switched off stays a member that says so, even if nothing selects it.
    off = [pair for pair, override in _override_keys(config, listed) if not override.enabled]
    yield from dict.fromkeys([*kept, *off])


def _candidates(
    config: CategoryConfig, listed: Mapping[str, Mapping[str, Tool] | None]
) -> list[tuple[str, str]]:
    servers = [config.server] if config.server is not None else list(listed)
    return [(server, tool) for server in servers for tool in listed.get(server) or ()]


def _matches(pair: tuple[str, str], patterns: Sequence[str]) -> bool:
    server, tool = pair
    return any(matches(pattern, server, tool) for pattern in patterns)


def _unresolved(
    members: Sequence[tuple[str, str]],
    overrides: Mapping[tuple[str, str], Override],
    listed: Mapping[str, Mapping[str, Tool] | None],
) -> Iterator[str]:
    for server, tool in dict.fromkeys([*members, *overrides]):
        known = listed.get(server)
        if known is not None and tool not in known:
            yield f"{server}/{tool}"
