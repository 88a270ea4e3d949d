"""What the tests of the catalog and of the surfaces share: tools, catalogs and facts, briefly written."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw

from daemon.catalog.definitions import fingerprint
from daemon.catalog.kinds import LISTS
from daemon.catalog.listing import read_definitions
from daemon.catalog.snapshot import Catalog, begin, fold
from daemon.causes import Cause, Reason
from daemon.facts import (
    Configured,
    DefinitionsListed,
    Fact,
    ServerRecord,
    ServerStatus,
    StatusChanged,
    Switched,
)
from daemon.model import Definition, Kind, Tool
from daemon.states import ServerState
from tests.unit.config.reading import config_of

OBJECT = {"type": "object"}

NO_MORE: Mapping[Kind, tuple[Definition, ...]] = {}


def tool_json(name: str, **members: object) -> bytes:
    """A tool as a server would list it."""
    return msgspec.json.encode({"name": name, "inputSchema": OBJECT, **members})


def tool(server: str, name: str, **members: object) -> Tool:
    """One usable tool of a server."""
    (read,), quarantined = read_definitions(Kind.TOOL, server, [Raw(tool_json(name, **members))])
    assert not quarantined
    return read


def definition_json(kind: Kind, name: str, **members: object) -> bytes:
    """A prompt, resource, template or skill as a server would list it."""
    more = {"frontmatter": {"name": name}, "resources": "dynamic"} if kind is Kind.SKILL else {}
    return msgspec.json.encode({"name": name, LISTS[kind].key: name, **more, **members})


def definition(kind: Kind, server: str, name: str, **members: object) -> Definition:
    """One usable prompt, resource or template of a server."""
    (read,), quarantined = read_definitions(kind, server, [Raw(definition_json(kind, name, **members))])
    assert not quarantined
    return read


def known(server: str, *names: str) -> dict[str, Tool]:
    """Tools by name, as a catalog keeps them."""
    return {name: tool(server, name) for name in names}


def servers(*names: str) -> dict[str, Any]:
    """The `mcpServers` of a configuration."""
    return {name: {"command": name, "description": f"the {name} server"} for name in names}


def catalog_of(config: Mapping[str, Any]) -> Catalog:
    """The catalog of a configuration before anything has started."""
    return begin(config_of(config), now=1000.0)


def status_of(state: ServerState, reason: str = "", cause: Cause | None = None, **more: Any) -> ServerStatus:
    """A status with this reason, or with `why`."""
    more.setdefault("why", Reason(reason, cause, more.pop("cause_data", {}), more.pop("remedy", None)))
    return ServerStatus(state=state, **more)


def status(
    server: str, state: ServerState = ServerState.READY, *, incarnation: int = 1, **more: Any
) -> StatusChanged:
    """A server's state is now this; a backoff has a time, unless it is for a restart that is due at once."""
    if state is ServerState.BACKOFF:
        more.setdefault("next_retry_at", 9e9)
    return StatusChanged(server=server, status=status_of(state, incarnation=incarnation, **more))


def listed(
    server: str, *tools: str | Tool, incarnation: int = 1, quarantined: Mapping[str, str] | None = None
) -> DefinitionsListed:
    """A server lists these tools, plain ones by name."""
    full = tuple(tool(server, each) if isinstance(each, str) else each for each in tools)
    return DefinitionsListed(
        kind=Kind.TOOL, server=server, incarnation=incarnation, definitions=full, quarantined=quarantined or {}
    )


def has(
    server: str, kind: Kind, *names: str | Definition, incarnation: int = 1, **more: Any
) -> DefinitionsListed:
    """A server lists these prompts, resources or templates, plain ones by name."""
    full = tuple(definition(kind, server, each) if isinstance(each, str) else each for each in names)
    return DefinitionsListed(server=server, incarnation=incarnation, kind=kind, definitions=full, **more)


def prompts(server: str, *names: str | Definition, **more: Any) -> DefinitionsListed:
    """A server lists these prompts."""
    return has(server, Kind.PROMPT, *names, **more)


def resources(server: str, *uris: str | Definition, **more: Any) -> DefinitionsListed:
    """A server lists these resources."""
    return has(server, Kind.RESOURCE, *uris, **more)


def templates(server: str, *texts: str | Definition, **more: Any) -> DefinitionsListed:
    """A server lists these templates."""
    return has(server, Kind.TEMPLATE, *texts, **more)


def failed(server: str, reason: str = "timed out", *, incarnation: int = 1) -> DefinitionsListed:
    """A server does not list its tools."""
    return DefinitionsListed(kind=Kind.TOOL, server=server, incarnation=incarnation, problem=reason)


def fingerprint_of(server: str, **more: object) -> str:
    """The fingerprint of a server as `servers` configures it, with what else its configuration says."""
    config = config_of({"mcpServers": {server: {**servers(server)[server], **more}}})
    return fingerprint(config.mcp_servers[server])


def recalled(
    server: str,
    *tools: str | Tool,
    epoch: int = 5,
    of: str | None = None,
    listed: bool = True,
    lists: Mapping[Kind, tuple[Definition, ...]] = NO_MORE,
    **more: Any,
) -> ServerRecord:
    """The store remembers these tools of a server, plain ones by name.

    Args:
        server: which.
        tools: its tools.
        epoch: its epoch.
        of: the fingerprint; None is that of the server as `servers` configures it.
        listed: whether it ever listed any.
        lists: its other lists.
        more: further fields of the fact.
    """
    full = tuple(tool(server, each) if isinstance(each, str) else each for each in tools)
    return ServerRecord(
        server=server,
        fingerprint=fingerprint_of(server) if of is None else of,
        epoch=epoch,
        lists={**({Kind.TOOL: full} if listed else {}), **lists},
        **more,
    )


def switched(*names: str) -> Switched:
    """Operators have switched these off, each `server` or `server/tool`, and nothing else."""
    pairs = (name.partition("/") for name in names)
    return Switched(off=frozenset((server, tool) for server, _, tool in pairs))


def configured(config: Mapping[str, Any], now: float = 3000.0) -> Configured:
    """The configuration is now this one."""
    return Configured(config=config_of(config), now=now)


def after(catalog: Catalog, facts: Iterable[Fact]) -> Catalog:
    """The catalog after some facts."""
    for fact in facts:
        catalog = fold(catalog, fact)
    return catalog


def up(config: Mapping[str, Any] = MappingProxyType({}), /, **lists: Iterable[str | Tool]) -> Catalog:
    """The catalog of servers that are ready and list these tools, by what else the configuration says."""
    begun = catalog_of({"mcpServers": servers(*lists), **config})
    listings = [listed(name, *tools) for name, tools in lists.items()]
    return after(begun, [*map(status, lists), *listings])


CONFIG: dict[str, Any] = {
    "mcpServers": servers("fs", "git"),
    "categories": {
        "files": {
            "server": "fs",
            "tools": {
                "includeNames": ["read", "write", "shell"],
                "overrides": {"shell": {"enabled": False}, "read": {"description": "the category's"}},
            },
        },
        "history": {"server": "git", "tools": {"includePatterns": ["log*"]}},
        "again": {
            "tools": {
                "includeNames": ["fs/read", "fs/write", "git/log"],
                "overrides": {"fs/write": {"enabled": False}},
            }
        },
    },
}
"""Two servers, and categories of which the first to have a tool switched on has it."""

FACTS: list[Fact] = [
    status("fs"),
    status("git"),
    listed("fs", tool("fs", "read", description="the server's"), "write", "shell", "loose"),
    listed("git", "log", "read"),
]
"""What those servers list."""
