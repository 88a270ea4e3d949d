"""`mcpd prompts`, `prompt`, `resources`, `read`: all definitions, including those that profiles hide."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Raw

from daemon.catalog.kinds import switch_of
from daemon.clients.requests.forwarding import find_resource
from daemon.errors import InvalidArguments, UnknownResource
from daemon.kit.wording import suggestion
from daemon.model import Definition, Kind
from daemon.operators.base import Command, OperatorContext, ServerOrAll
from daemon.operators.own_requests import Forwarding, serve
from daemon.operators.tool_reports import view_of
from daemon.states import ServerState
from daemon.surfaces.answers import choices, quoted

if TYPE_CHECKING:
    from daemon.catalog.entry import ServerEntry
    from daemon.operators.reports import DefinitionReport, ListedReport, PromptsReport, ResourcesReport


def servers_of(context: OperatorContext, server: str | None) -> Mapping[str, ServerEntry]:
    """The named server, or all; raises `UnknownServer`."""
    return context.catalog.servers if server is None else {server: context.entry_of(server)}


def listed(context: OperatorContext, servers: Mapping[str, ServerEntry], kind: Kind) -> list[DefinitionReport]:
    """Reports the definitions of one kind, and whether each can be used now."""
    catalog = context.catalog
    names = catalog.names_of(kind)
    listed = [
        {
            "server": server,
            "name" if kind is Kind.PROMPT else "uri": own,
            "offeredAs": names.given.get((server, own), own),
            "enabled": (enabled := not is_off(context, entry, kind, own)),
            "available": enabled and (entry.available or entry.status.state is ServerState.DORMANT),
            "definition": Raw(definition.raw),
        }
        for server, entry in servers.items()
        for own, definition in entry.list_of(kind).definitions.items()
    ]
    return cast("list[DefinitionReport]", listed)


def problems(
    context: OperatorContext, servers: Mapping[str, ServerEntry], kinds: Collection[Kind]
) -> dict[str, ListedReport]:
    """Reports on servers that list definitions of these kinds, failed to list them, or are down."""
    report: dict[str, ListedReport] = {}
    for server, entry in servers.items():
        lists = [entry.lists[kind] for kind in kinds if kind in entry.lists]
        unknown = not lists and not entry.disabled and not entry.available
        if not unknown and not any(each.definitions or each.quarantined or each.problem for each in lists):
            continue
        redact = context.redact.of(server)
        report[server] = {
            **context.state_of(server),
            "known": bool(lists),
            "problem": redact("; ".join(dict.fromkeys(each.problem for each in lists if each.problem))),
            "quarantined": {
                redact(name): redact(why) for each in lists for name, why in each.quarantined.items()
            },
        }
    return report


def is_off(context: OperatorContext, entry: ServerEntry, kind: Kind, name: str) -> bool:
    """Whether an operator or the configuration has switched off a definition or its server."""
    return entry.disabled or (entry.name, switch_of(kind, name)) in context.catalog.switched


async def prompts(context: OperatorContext, params: ServerOrAll) -> PromptsReport:
    """The prompts, and the problems of servers with prompts; raises `UnknownServer`."""
    servers = servers_of(context, params.server)
    return {
        "prompts": listed(context, servers, Kind.PROMPT),
        "servers": problems(context, servers, (Kind.PROMPT,)),
    }


PROMPTS = Command("prompts", ServerOrAll, prompts, reads=True)


async def resources(context: OperatorContext, params: ServerOrAll) -> ResourcesReport:
    """The resources and templates, and the problems of servers with them; raises `UnknownServer`."""
    servers = servers_of(context, params.server)
    return {
        "resources": listed(context, servers, Kind.RESOURCE),
        "templates": listed(context, servers, Kind.TEMPLATE),
        "servers": problems(context, servers, (Kind.RESOURCE, Kind.TEMPLATE)),
    }


RESOURCES = Command("resources", ServerOrAll, resources, reads=True)


class PromptParams(Forwarding, kw_only=False):
    """A prompt of a server or an instance, by the server's own name, and its arguments."""

    server: str
    name: str
    arguments: dict[str, str] = msgspec.field(default_factory=dict)


async def prompt(context: OperatorContext, params: PromptParams) -> Raw:
    """Get a prompt; cancelled if the operator disconnects. Raises `CallError` or `InvalidArguments`."""
    name = params.name
    members = (b'"name":%b,"arguments":' % msgspec.json.encode(name), msgspec.json.encode(params.arguments))

    def check(entry: ServerEntry) -> None:
        if (known := entry.list_of(Kind.PROMPT).definitions.get(name)) is not None:
            _check(known, params.arguments)

    return await serve(context, params, Kind.PROMPT, (params.server, name), members, check)


PROMPT = Command("prompt", PromptParams, prompt, reads=True)


def _check(definition: Definition, given: dict[str, str]) -> None:
    """Refuse arguments that a prompt does not declare, and calls without those that it requires."""
    described: dict[str, Any] = msgspec.json.decode(definition.raw)
    arguments = described.get("arguments") or []
    declared = {str(each.get("name")): each for each in arguments if isinstance(each, dict)}
    if unknown := [key for key in given if key not in declared]:
        raise InvalidArguments(
            f"prompt {definition.name} has no {unknown[0]!r}{suggestion(unknown[0], declared)}"
        )
    if missing := [key for key, each in declared.items() if each.get("required") is True and key not in given]:
        raise InvalidArguments(f"prompt {definition.name} needs {', '.join(missing)}")


class ReadParams(Forwarding, kw_only=False):
    """A server or an instance, and the server's own URI of a resource, listed or not."""

    server: str
    uri: str


async def read(context: OperatorContext, params: ReadParams) -> Raw:
    """Read a resource; cancelled if the operator disconnects; raises `CallError`."""
    members = b'"uri":', msgspec.json.encode(params.uri)
    return await serve(context, params, Kind.RESOURCE, (params.server, params.uri), members)


READ = Command("read", ReadParams, read, reads=True)


class LocateParams(msgspec.Struct):
    """A URI to look up as a profile sees it; `profile` is None for the operator's own view."""

    uri: str
    profile: str | None = None


async def locate(context: OperatorContext, params: LocateParams) -> dict[str, object]:
    """The server that has a URI, and that server's own URI for it; raises a `CallError`."""
    view = view_of(context, params.profile)[1]
    try:
        server, own = find_resource(view, params.uri, {})
    except UnknownResource:
        known = choices(view.offer.definitions(Kind.RESOURCE), params.uri)
        text = f"no server is known to have {quoted(params.uri)}, or that resource is switched off. {known}"
        way = "`mcpd read SERVER/URI` also reads a resource that the server does not list."
        raise UnknownResource(f"{text} {way}") from None
    return {"server": server, "uri": own}


LOCATE = Command("locate", LocateParams, locate, reads=True)
