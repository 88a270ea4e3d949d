"""Prompts, resources and templates as operators see them: of all servers, also what profiles hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from daemon.catalog.kinds import switch_of
from daemon.model import Kind
from daemon.states import ServerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from daemon.catalog.entry import ServerEntry
    from daemon.catalog.known import KnownList
    from daemon.model import Definition
    from daemon.operators.base import OperatorContext


class DefinitionsParams(Struct):
    """Whose prompts or resources are asked for; None is all servers'."""

    server: str | None = None


def servers_of(context: OperatorContext, server: str | None) -> Mapping[str, ServerEntry]:
    """The server that is asked for, or all.

    Raises:
        UnknownServer: there is none of that name.
    """
    servers = context.catalog.servers
    if server is None:
        return servers
    if server not in servers:
        raise context.unknown(server)
    return {server: servers[server]}


def listed(context: OperatorContext, servers: Mapping[str, ServerEntry], kind: Kind) -> list[dict[str, object]]:
    """What servers list of one kind, each with whether it can be used now."""
    catalog = context.catalog
    names = catalog.prompt_names if kind is Kind.PROMPT else catalog.uris
    return [
        {
            "server": server,
            "name" if kind is Kind.PROMPT else "uri": own,
            "offeredAs": names.given.get((server, own), own),
            "enabled": (enabled := not is_off(context, entry, kind, own)),
            "available": enabled and (entry.available or entry.status.state is ServerState.DORMANT),
            "definition": Raw(definition.raw),
        }
        for server, entry in servers.items()
        for own, definition in known_of(entry, kind).items()
    ]


def problems(
    context: OperatorContext, servers: Mapping[str, ServerEntry], kinds: Iterable[Kind]
) -> dict[str, dict[str, object]]:
    """The servers of which something is to be known: those that list such things, could not, or are down."""
    kinds = tuple(kinds)
    told: dict[str, dict[str, object]] = {}
    for server, entry in servers.items():
        lists = list(_lists(entry, kinds))
        unknown = not lists and not entry.disabled and not entry.available
        if not unknown and not any(each.definitions or each.quarantined or each.problem for each in lists):
            continue
        redact = context.redact.of(server)
        told[server] = {
            **context.state_of(server),
            "known": bool(lists),
            "problem": redact("; ".join(dict.fromkeys(each.problem for each in lists if each.problem))),
            "quarantined": {
                redact(name): redact(why) for each in lists for name, why in each.quarantined.items()
            },
        }
    return told


def known_of(entry: ServerEntry, kind: Kind) -> Mapping[str, Definition]:
    """What a server lists of one kind, by its own name for it."""
    known = entry.lists.get(kind)
    return {} if known is None else known.definitions


def is_off(context: OperatorContext, entry: ServerEntry, kind: Kind, name: str) -> bool:
    """Whether an operator or the configuration has switched it off, or its server."""
    return entry.disabled or (entry.name, switch_of(kind, name)) in context.catalog.switched


def told_off(entry: ServerEntry, kind: Kind, name: str) -> str:
    """What is told of something that is switched off, or whose server is (`is_off`)."""
    what, on = f"{kind} {name}", f"{entry.name}/{switch_of(kind, name)}"
    if entry.disabled:
        what, on = f"server {entry.name}", entry.name
    return f"{what} is switched off; `mcpd enable {on}` switches it on again"


def _lists(entry: ServerEntry, kinds: Iterable[Kind]) -> Iterator[KnownList]:
    for kind in kinds:
        known = entry.lists.get(kind)
        if known is not None:
            yield known
