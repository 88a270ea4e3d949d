"""The page of tools, which may be five thousand, and a tool's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import trio
from msgspec import Raw

from daemon.catalog.categories import Member, ToolCategory
from daemon.catalog.loaded import is_anonymous
from daemon.catalog.permissions import annotations_of
from daemon.catalog.snapshot import Catalog
from daemon.config.listen import DEFAULT_PROFILE
from daemon.console.page import (
    ConsoleAction,
    ConsolePage,
    Fragment,
    Holders,
    Notice,
    Viewer,
    command_action,
    element_id,
    page_number,
    part,
    server_page,
    steady,
    tool_page,
    with_query,
)
from daemon.console.pages.activity_pages import changes
from daemon.console.pages.approval_page import of_server
from daemon.errors import InvalidArguments, McpdError, UnknownCategory
from daemon.history.event_words import of_held
from daemon.kit.wording import counted
from daemon.model import Tool, ToolKey
from daemon.operators.base import OperatorContext
from daemon.operators.change_reports import newly_described, switched
from daemon.operators.config_changes import DESCRIBE, LONGEST, described
from daemon.operators.own_requests import OperatorCallParams, call
from daemon.operators.schema_words import arguments_of, sole_type
from daemon.operators.server_changes import SwitchParams, switch
from daemon.operators.session_commands import MAX_LISTED, loaded_tool
from daemon.operators.tool_reports import SearchParams, ToolParams, search, tool
from daemon.safety.escape import document
from daemon.safety.redact import Redactor
from daemon.states import in_sentence
from daemon.surfaces.answers import one_line

PER_PAGE = 100
"""Tools on a page: 80 KB, with a line of description each."""


FOUND = 50
"""Tools that a search shows; a model gets fewer."""


async def _of_list(viewer: Viewer) -> Holders:
    context, query = viewer.context, viewer.query
    words, category, server = (query.get(name, "") for name in ("q", "category", "server"))
    rows, notes, before, after = list[dict[str, Any]](), list[str](), "", ""
    if words:
        rows, notes = await _found(viewer, words, category or None)
    elif category or server:
        rows, notes, before, after = _listed(viewer, category, server, page_number(query.get("page", "")))
    return {
        "categories": [] if words or category or server else [_categories(context), await changes(context)],
        "tools-notes": [part("notes", "tools_notes", notes=notes, before=before, after=after)],
        "tools": [_as_part(row) for row in rows],
    }


def _as_part(row: dict[str, Any]) -> Fragment:
    return part(element_id("tool", row["server"], row["tool"]), "tools_row", **row)


def tool_rows(viewer: Viewer, server: str) -> Iterator[Fragment]:
    """The first tools of a server as rows, for the server's page."""
    return map(_as_part, _listed(viewer, "", server, 1)[0])


LOADED_SECONDS = 30.0
"""Seconds until pages show newly loaded tools: counting them takes long with hundreds of tools."""


TOOLS_PAGE = ConsolePage(
    path="/tools", title="Tools", template="tools.html", fragments=_of_list, calls_every=LOADED_SECONDS
)


async def _switch(viewer: Viewer, fields: Mapping[str, str]) -> str:
    name = fields.get("disable") or fields.get("enable") or ""
    if "/" not in name:
        raise InvalidArguments("name the tool, as SERVER/TOOL")
    told: Any = await switch(viewer.context, SwitchParams(name, "disable" in fields))
    return "\n".join(switched(told))


SWITCH_TOOL = ConsoleAction(path="/tools/switch", act=_switch)


def loaded_by(context: OperatorContext) -> Counter[ToolKey]:
    """The number of sessions in use that have loaded each tool, valid or not."""
    named = [record.loaded.tools for record, _users in context.clients.in_use()]
    own = [each.own.loaded.tools for each in context.clients.statistics() if each.key is None]
    return Counter(key for loaded in (*named, *own) for key in loaded)


def why_off(catalog: Catalog, key: ToolKey) -> str:
    """The origin of a switch that turns off a tool or its server; empty if the tool is on."""
    entry = catalog.servers[key[0]]
    if entry.disabled:
        return f"server {key[0]} is switched off"
    if key in catalog.switched_tools:
        return "switched off by an operator"
    return "switched off in the configuration" if key in catalog.off else ""


def _categories(context: OperatorContext) -> Fragment:
    catalog = context.catalog
    made = [_category(catalog, name, catalog.categories[name]) for name in catalog.categories]
    shown = {server for each in made for server in each["servers"]}
    # Disabled servers, which no category has, so that their tools can be found.
    for name, entry in catalog.servers.items():
        if entry.disabled and name not in shown:
            made.append(_counted(catalog, name, [name], [(name, tool) for tool in entry.tools or ()]))
            made[-1] |= {
                "description": "its server is switched off",
                "address": with_query("/tools", server=name),
            }
    return part("category-list", "tools_categories", categories=made)


def _category(catalog: Catalog, name: str, category: ToolCategory) -> dict[str, Any]:
    if category.whole:
        # Its members would be made of every tool first.
        keys = [(server, tool) for server in category.servers for tool in catalog.servers[server].tool_list.all]
    else:
        keys = [(member.server, member.tool) for member in category.members.values()]
    return {
        **_counted(catalog, name, [*category.servers], keys),
        "address": with_query("/tools", category=name),
        "description": one_line(category.description),
    }


def _counted(catalog: Catalog, name: str, servers: list[str], keys: Sequence[ToolKey]) -> dict[str, Any]:
    known = [key for key in keys if key[0] in catalog.servers]
    usable = {server for server in servers if server in catalog.servers and catalog.servers[server].usable}
    return {
        "name": name,
        "servers": servers,
        "tools": len(keys),
        "off": sum(bool(why_off(catalog, key)) for key in known),
        "held": sum(catalog.held(key) is not None for key in keys),
        "unavailable": sum(key[0] not in usable for key in keys),
    }


def _listed(
    viewer: Viewer, name: str, server: str, page: int
) -> tuple[list[dict[str, Any]], list[str], str, str]:
    """Rows of a category's or server's tools, notes, and the addresses of the pages before and after."""
    context = viewer.context
    catalog = context.catalog
    if name:
        if name not in catalog.categories:
            raise UnknownCategory(f"there is no category {name!r}", category=name)
        members = list(catalog.categories[name].members.values())
    else:
        members = list(_members_of(context, server))
    start = (page - 1) * PER_PAGE
    counts = loaded_by(context)
    rows = [
        _row(viewer, (each.server, each.tool), counts, described=each.description)
        for each in members[start : start + PER_PAGE]
        if each.server in catalog.servers
    ]
    kept = {"category": name, "server": server}
    last = start + PER_PAGE >= len(members)
    notes = [f"{start + 1} to {start + len(rows)} of {len(members):,} tools"] if rows else ["No tools"]
    before = with_query("/tools", **kept, page=page - 1) if page > 1 else ""
    return rows, notes, before, "" if last else with_query("/tools", **kept, page=page + 1)


def _members_of(context: OperatorContext, server: str) -> Iterator[Member]:
    for name in context.entry_of(server).tool_list.all:
        yield Member(server=server, tool=name, enabled=True, description=None, listed=True)


async def _found(viewer: Viewer, words: str, category: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    context = viewer.context
    profile = viewer.query.get("profile") or DEFAULT_PROFILE
    params = SearchParams([words], category=category, limit=FOUND, profile=profile)
    try:
        told: Any = await search(context, params)
    except McpdError as error:
        return [], [str(error)]
    counts, names = loaded_by(context), context.catalog.names.owners
    rows = []
    for hit in told["tools"]:
        key = names.get(hit["name"], (hit["server"], hit["name"]))
        if key[0] in context.catalog.servers:
            rows.append({**_row(viewer, key, counts, described=hit["description"]), "score": hit["score"]})
    notes = (
        [f"{counted(told['total'], 'tool fits', 'tools fit')}, best first, as a model finds them"]
        if rows
        else ["No tool fits"]
    )
    if told["suggestions"]:
        notes.append(f"A model is told to try: {', '.join(told['suggestions'])}")
    return rows, notes


def _row(viewer: Viewer, key: ToolKey, counts: Counter[ToolKey], *, described: str | None) -> dict[str, Any]:
    catalog = viewer.context.catalog
    entry, known = catalog.servers[key[0]], (catalog.servers[key[0]].tools or {}).get(key[1])
    own = known.description if known is not None else ""
    off = why_off(catalog, key)
    state = "off" if off else "on" if entry.usable and known is not None else "unavailable"
    if (held := catalog.held(key)) is not None:
        state, off = "held", of_held(held.because, held.change)
    return {
        "server": key[0],
        "tool": key[1],
        "description": one_line(own if described is None else described),
        "state": state,
        "why": off or ("" if state == "on" else f"server {key[0]} is {in_sentence(entry.status.state)}"),
        "loaded": counts[key],
        "score": None,
    }


MAX_JSON = 100_000
"""Characters shown of a definition: a tool may have a megabyte."""


MAX_ARGUMENTS = 200
"""Listed arguments; the definition has all."""


MAX_SESSIONS = 100


def _state_of(
    context: OperatorContext, key: ToolKey, known: Tool, told: Mapping[str, Any], facts: Mapping[str, Any]
) -> Fragment:
    entry, off, change = context.catalog.servers[key[0]], why_off(context.catalog, key), told["changed"] or {}
    return part(
        "tool-state",
        state="off" if off else "on" if entry.usable else "unavailable",
        why=off or ("" if entry.usable else f"server {key[0]} is {in_sentence(entry.status.state)}"),
        server_off=entry.disabled,
        categories=told["categories"],
        since=round(change.get("at", entry.tool_list.since.get(key[1], entry.begun))),
        change=change.get("what", ""),
        annotations=_annotations(known),
        says=known.parts.get("annotations", b"{}").strip() not in {b"{}", b"null"},
        hidden=entry.tool_list.hidden.get(key[1], ""),
        **facts,
    )


async def _of_tool(viewer: Viewer) -> Holders:
    context = viewer.context
    key = viewer.path["server"], viewer.path["tool"]
    if (held := context.catalog.held(key)) is not None:
        return {"tool": [of_server("tool-held", [held], in_full=True)], "call": []}
    told: Any = await tool(context, ToolParams(server=key[0], tool=key[1]))
    entry = context.catalog.servers[key[0]]
    known = (entry.tools or {})[key[1]]
    facts: dict[str, Any] = {
        "name": "/".join(key),
        "server": key[0],
        "tool": key[1],
        "hash": known.schema_hash,
        "typed": viewer.typed if viewer.typed.get("hash") == known.schema_hash else {},
    }
    definition = msgspec.json.decode(known.raw)
    return {
        "call": [part("tool-call", fields=_fields(definition), destructive=_may_destroy(known), **facts)],
        "tool": [
            part(
                "tool-texts",
                own=known.description,
                ours=described(context.config, key, told["categories"]),
                longest=LONGEST,
                **facts,
            ),
            _state_of(context, key, known, told, facts),
            part(
                "tool-schema",
                arguments=arguments_of(definition.get("inputSchema"))[:MAX_ARGUMENTS],
                definition=document(definition)[:MAX_JSON],
                observed=told["observed"],
                example=None if told["example"] is None else document(told["example"]),
            ),
            part("tool-loaded", **await _sessions(context, key)),
        ],
    }


TOOL_PAGE = ConsolePage(
    path="/tools/{server}/{tool}",
    title="Tool",
    template="tool.html",
    fragments=_of_tool,
    calls_every=LOADED_SECONDS,
    in_navigation=False,
)


MAX_RESULT = 20_000
"""Characters of a result that are shown."""

_JSON = "a text in quotes, a number, true, [...] or {...}"

_WRITTEN = {"string": "text", "number": "number", "integer": "number", "boolean": "choice"}


def _members(definition: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[object]]:
    """The properties and required names in a tool's schema; empty where the schema has other types."""
    schema = definition.get("inputSchema")
    of: dict[str, Any] = schema if isinstance(schema, dict) else {}
    properties, required = of.get("properties"), of.get("required")
    return properties if isinstance(properties, dict) else {}, required if isinstance(required, list) else []


def _choices(member: Mapping[str, Any]) -> list[Any]:
    choices = [True, False] if sole_type(member) == "boolean" else member.get("enum")
    return choices[:MAX_ARGUMENTS] if isinstance(choices, list) else []


def _fields(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A tool's arguments as fields of a form: a choice, a number, a text, or JSON."""
    properties, required = _members(definition)
    if len(properties) > MAX_ARGUMENTS:
        return []
    made = []
    for name, member in properties.items():
        of: dict[str, Any] = member if isinstance(member, dict) else {}
        choices = _choices(of)
        texts = [each if isinstance(each, str) else document(each) for each in choices]
        written = "choice" if texts else _WRITTEN.get(sole_type(of), "json")
        about = one_line(str(of.get("description", "")))
        made.append(
            {"name": name, "as": written, "choices": texts, "required": name in required, "about": about}
        )
    return made


def _may_destroy(tool: Tool) -> bool:
    said = annotations_of(tool)
    return bool(said.destructive) and not said.read_only


def _meant(member: object, value: str) -> object:
    """The value of a form's field: a choice by its number, a text, or JSON. Raises ValueError."""
    of: dict[str, Any] = member if isinstance(member, dict) else {}
    if choices := _choices(of):
        return choices[int(value)]
    return value if sole_type(of) == "string" else msgspec.json.decode(value.encode())


async def _call(viewer: Viewer, fields: Mapping[str, str]) -> Notice:
    """Call a tool as `mcpd call` does, under the rules of the profile `default`."""
    server, name = viewer.path["server"], viewer.path["tool"]
    known = viewer.context.entry_of(server).all_tools.get(name)
    if known is None or known.schema_hash != fields.get("hash"):
        raise InvalidArguments(f"{server}/{name} has changed since its form was shown: look at it again")
    arguments = {}
    for number, (argument, member) in enumerate(_members(msgspec.json.decode(known.raw))[0].items()):
        if not (value := fields.get(f"argument-{number}", "")):
            continue
        try:
            arguments[argument] = _meant(member, value)
        except (ValueError, IndexError, RecursionError):
            raise InvalidArguments(f"{argument} is not JSON: write {_JSON}") from None
    raw = Raw(msgspec.json.encode(arguments))
    params = OperatorCallParams(server=server, tool=name, arguments=raw, profile=DEFAULT_PROFILE)
    result = await call(viewer.context, params)
    shown = await trio.to_thread.run_sync(_shown, bytes(result), viewer.context.redact.of(server))
    return Notice(f"{server}/{name} has {shown}", is_error=shown.startswith("failed:"))


def _shown(result: bytes, redact: Redactor) -> str:
    """A result as text: its texts, or all of it as JSON. It may be large: call this in a thread."""
    told: Any = msgspec.json.decode(result)
    content = told.get("content")
    parts = content if isinstance(content, list) else [None]
    texts = [each["text"] for each in parts if isinstance(each, dict) and isinstance(each.get("text"), str)]
    words = "\n".join(texts) if len(texts) == len(parts) else document(told)
    return f"{'failed' if told.get('isError') else 'answered'}:\n{redact(words, MAX_RESULT)}"


CALL_TOOL = ConsoleAction(path="/tools/{server}/{tool}/call", act=_call, keeps=True)


DESCRIBE_TOOL = command_action("/tools/describe", DESCRIBE, newly_described)


def _annotations(tool: Tool) -> list[str]:
    said = annotations_of(tool)
    words = {
        "only reads": said.read_only,
        "may destroy something": said.destructive,
        "may be called twice": said.idempotent,
        "reaches into the open world": said.open_world,
    }
    return [word for word, holds in words.items() if holds]


async def _sessions(context: OperatorContext, key: ToolKey) -> dict[str, object]:
    """The sessions that have loaded a tool, connected ones first, and whether kept ones could be read."""
    connected, kept = [record for record, _users in context.clients.in_use()], True
    try:
        stored = await context.archive.sessions(MAX_LISTED)
    except McpdError:
        stored, kept = (), False
    unnamed = [each for each in context.clients.statistics() if each.key is None]
    keys = {record.key for record in connected}
    holders = [
        *((record.key, record.client, record.loaded, False) for record in connected),
        *((f"#{each.number}", each.client, each.own.loaded, False) for each in unnamed),
        *((record.key, record.client, record.loaded, True) for record in stored if record.key not in keys),
    ]
    found = [
        {
            **steady(loaded_tool(loaded.tools[key], context.catalog, context.wall()), "age"),
            "session": session,
            "client": client,
            "away": away,
        }
        for session, client, loaded, away in holders
        if key in loaded and not is_anonymous(session)
    ]
    return {"sessions": found[:MAX_SESSIONS], "kept": kept, "most": MAX_LISTED}


FOUND_TO_GO = 20
"""Servers and tools that a search by a few letters shows, at most."""


async def _places(viewer: Viewer) -> Holders:
    """The servers and tools whose names contain the words of a query, servers first."""
    words, catalog = viewer.query.get("q", "").lower().split(), viewer.context.catalog
    found = [
        {"title": name, "what": f"server, {entry.status.state}", "address": server_page(name)}
        for name, entry in catalog.servers.items()
        if words and all(word in name.lower() for word in words)
    ]
    for server, entry in catalog.servers.items():
        if len(found) >= FOUND_TO_GO or not words:
            break
        found += [
            {"title": name, "what": f"tool of {server}", "address": tool_page(server, name)}
            for name in entry.tools or ()
            if all(word in f"{server}/{name}".lower() for word in words)
        ]
    return {"found": [part(f"place-{at}", "place", **each) for at, each in enumerate(found[:FOUND_TO_GO])]}


FIND_PAGE = ConsolePage(
    path="/find", title="Go to", template="find.html", fragments=_places, calls_every=None, in_navigation=False
)
