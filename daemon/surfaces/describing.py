"""Describes tools on all surfaces: compact schemas or lines, with notes on tools that cannot be used now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from daemon.catalog.categories import Member, ToolCategory
from daemon.catalog.definitions import compact, shown_parts
from daemon.catalog.snapshot import ServerEntry
from daemon.causes import Reason
from daemon.config.names import own_name
from daemon.errors import InvalidArguments, SchemaFetchError, UnknownCategory, UnknownTool
from daemon.facts import ServerStatus
from daemon.kit.wording import closest, some
from daemon.model import Kind, Tool
from daemon.protocol import decoded
from daemon.safety.escape import legible
from daemon.safety.legible import legible_schema
from daemon.states import ServerState
from daemon.surfaces import answers
from daemon.surfaces.additions import refuse_held
from daemon.surfaces.summing import category_line, first_instructions, tool_line
from daemon.surfaces.surface import Action, AwaitListing, Reply, View

HASH_DIGITS = 12
"""Hex digits of a hash for models: 48 bits distinguish definitions, and a whole hash costs many tokens."""

_SCHEMAS = ("inputSchema", "outputSchema")
_EMPTY = frozenset({b"null", b"{}", b"[]", b'""'})
_ANNOTATIONS = msgspec.json.Decoder(dict[str, Any])


Described = tuple[str, "Tool", str]


def definition(view: View, tool: Tool, description: str) -> dict[str, object]:
    """Describe a tool to a model: `{description, inputSchema, outputSchema?, annotations?, schemaHash}`."""
    parts = shown_parts(tool, view.profile.schemas)
    schemas = {
        key: Raw(legible_schema(compact(parts[key])))
        for key in _SCHEMAS
        if key in parts and parts[key] not in _EMPTY
    }
    annotations = _annotations(tool.parts.get("annotations", b"{}"))
    return {
        "description": description,
        **schemas,
        **({"annotations": annotations} if annotations else {}),
        "schemaHash": tool.schema_hash[:HASH_DIGITS],
    }


def _annotations(raw: bytes) -> Raw | None:
    annotations = decoded(_ANNOTATIONS.decode, raw) or {}
    given = {key: value for key, value in annotations.items() if value not in (None, "", {}, [])}
    return Raw(legible_schema(msgspec.json.encode(given))) if given else None


def paged(view: View, tools: Sequence[Described], room: int, start: int = 0) -> dict[str, object]:
    """The definitions from `start` on that fit into `room` bytes; at least one, so that it can be called."""
    defined = ((name, definition(view, tool, description)) for name, tool, description in tools[start:])
    return answers.fitting(defined, room)


def outlined(view: View, tools: Sequence[Described], room: int, start: int = 0) -> dict[str, object]:
    """A line for each tool from `start` on, as many as fit into `room` bytes."""

    def line(number: int) -> str:
        _name, tool, description = tools[start + number]
        return tool_line(view.catalog.servers[tool.server], tool, description)

    names = [name for name, _tool, _description in tools[start:]]
    lines = answers.lines_within(names, line, room, answers.size_of({"description": ""}) + answers.MEMBER_BYTES)
    return {name: {"description": text} for name, text in lines.items()}


def position(cursor: str | None, count: int) -> int:
    """Parse a cursor among `count` tools. Raises `InvalidArguments` for a cursor that was never issued."""
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdigit() and len(cursor) <= len(str(count)) and int(cursor) <= count:
        return int(cursor)
    raise InvalidArguments(
        f"{cursor[:20]!r} is not a cursor. To begin at the first tool, leave the cursor out; to go on, use"
        " meta.next of the last answer."
    )


def unlisted(entries: Iterable[ServerEntry], kinds: tuple[Kind, ...] = (Kind.TOOL,)) -> tuple[str, ...]:
    """The servers that have not listed these kinds but may soon; waiting for them wakes dormant ones."""
    return tuple(
        entry.name
        for entry in entries
        if may_list(entry.status) and not all(has_listed(entry, kind) for kind in kinds)
    )


def may_list(status: ServerStatus) -> bool:
    """Whether it is worth waiting for a server's first list; waiting wakes a dormant server."""
    if status.of_instance and status.state is not ServerState.DISABLED:
        return True
    return status.is_unsettled or status.state in {ServerState.READY, ServerState.DORMANT}


def has_listed(entry: ServerEntry, kind: Kind) -> bool:
    """Whether the server has listed this kind, in any run of the daemon, or has failed to."""
    return kind in entry.lists


def unlisted_of(view: View, names: Iterable[str]) -> tuple[str, ...]:
    """The servers that are worth waiting for, because they may have tools with these names."""
    catalog = view.catalog
    keys = [catalog.names.key_of(name, catalog.servers) for name in names]
    servers = {key[0] for key in keys if key is not None}
    return unlisted(entry for entry in view.servers.values() if entry.name in servers or None in keys)


def starting(entries: Iterable[ServerEntry]) -> tuple[str, ...]:
    """The servers that are about to list their tools for the first time; does not wake any."""
    return tuple(entry.name for entry in entries if entry.awaits(Kind.TOOL))


def require_lists(entries: Iterable[ServerEntry]) -> None:
    """Raise `SchemaFetchError` if a server is up but has never listed its tools."""
    for entry in entries:
        if entry.tools is None and entry.tool_list.problem and entry.available:
            raise SchemaFetchError(
                f"server {entry.name} does not list its tools: {entry.tool_list.problem}. It is asked again"
                f" regularly; `mcpd restart {entry.name}` starts it afresh.",
                server=entry.name,
            )


def unavailable(view: View, entries: Iterable[ServerEntry], names: Iterable[str]) -> dict[str, object]:
    """Members of `meta` about servers that are down and the uncallable tools `names`; cut to fit."""
    meta: dict[str, object] = {}
    room = answers.share_of(view)
    absent = list(dict.fromkeys(names))
    named = answers.names_within(absent, room)
    down = [entry for entry in entries if not entry.usable]
    about = answers.fitting(
        ((entry.name, answers.unavailable_entry(entry, view.now())) for entry in down), room
    )
    if named:
        meta["unavailableTools"] = named
    if len(named) < len(absent):
        meta["unavailableToolsLeft"] = len(absent) - len(named)
    if about:
        meta["unavailableServers"] = about
    if len(about) < len(down):
        meta["unavailableServersLeft"] = len(down) - len(about)
    return meta


def words(entry: ServerEntry, why: Reason) -> str:
    """Say why a server is down and what helps, in whole sentences."""
    happened = why.remedy.happened if why.remedy else f"{why.text or entry.status.state}."
    return legible(f"{happened} {answers.what_helps(entry.name, why)}".rstrip())


def absent_lines(entries: Iterable[ServerEntry], characters: int) -> str:
    """A line about each of these servers, which are down; empty without any."""
    reasons = [(f"{each.name} ({each.status.state})", words(each, each.status.why)) for each in entries]
    return answers.index_lines(reasons, characters, "`mcpd status` tells the user", answers.MAX_REASON)


NAMED_IN_NOTE = 2
"""Tools in the example call: two, which shows that several are possible."""

NO_CATEGORIES = "There are no categories: mcpd has no servers for this client."


DESCRIBE_EXAMPLE = '{"category": "NAME"} or {"category": "NAME", "toolNames": ["TOOL"]}'


class _DescribeArguments(msgspec.Struct, forbid_unknown_fields=True):
    category: str
    toolNames: list[str] | None = None  # noqa: N815 - the seed's name
    cursor: str | None = None


DESCRIBING_PROPERTIES: dict[str, object] = {
    "category": {"type": "string"},
    "toolNames": {"type": "array", "items": {"type": "string"}},
}


def find_category(view: View, name: str) -> ToolCategory:
    """The category with a name. Raises `UnknownCategory`."""
    category = view.categories.get(name)
    if category is None:
        raise UnknownCategory(
            f"there is no category {answers.quoted(name)}. {answers.instead(view, view.categories, name)}",
            category=answers.cut(name, answers.MAX_QUOTED),
            available=answers.some_of(view.categories, answers.share_of(view)),
        )
    return category


def category_lines(view: View) -> str:
    """A line for each category, limited in number and length."""
    categories = view.categories.values()
    if not categories:
        return NO_CATEGORIES
    rest_text = "the answer to an unknown category name has their names"

    def entries(room: int) -> list[tuple[str, str]]:
        return [(category.name, category_line(view, category, room)) for category in categories]

    return "Categories:\n" + answers.roomy_lines(entries, view.services.index_characters, rest_text)


def describe_category(
    view: View, arguments: bytes, name_of: Callable[[str, Member], str], *, tool: str, patient: bool
) -> Action:
    """Answer with the schemas of a category's tools, or lines if there are many, and with unavailable tools.

    `name_of` returns a member's name for calls, `tool` is the meta-tool called. Raises CallError for bad
    arguments, and for a server that is up but cannot list its tools.
    """
    asked = answers.decode_arguments(arguments, _DescribeArguments, DESCRIBE_EXAMPLE)
    category, wanted, cursor = find_category(view, asked.category), asked.toolNames or [], asked.cursor
    entries = entries_of(view, category)
    waiting = unlisted(entries)
    if patient and waiting:
        return AwaitListing(servers=waiting)
    require_lists(entries)
    chosen = _chosen(view, category, wanted)
    described: list[Described] = []
    for key, member in chosen.items():
        known = (view.catalog.servers[member.server].tools or {}).get(member.tool)
        if known is not None:
            described.append((name_of(key, member), known, view.offer.rules.describe(known, member)))
    absent = [
        name_of(key, member)
        for key, member in chosen.items()
        if not member.listed or not view.catalog.servers[member.server].usable
    ]
    absent += [
        answers.cut(name, answers.MAX_QUOTED) for name in wanted if member_key(category, name) not in chosen
    ]
    meta = {
        "category": category.name,
        "sourceServer": some(category.servers, answers.MAX_NAMED),
        "epoch": sum(entry.epoch for entry in entries),
        **unavailable(view, entries, absent),
        **(first_instructions(view, entries) if cursor is None else {}),
        **({"skill": answers.cut(category.skill, answers.room_of(view) // 2)} if category.skill else {}),
    }
    return _page(view, described, position(cursor, len(described)), meta, tool, chosen=bool(wanted))


def _page(
    view: View, tools: Sequence[Described], start: int, meta: dict[str, Any], tool: str, *, chosen: bool
) -> Reply:
    """Answer with the tools from `start` on that fit; `meta` gets the call that leads to the others.

    With definitions, if the model has `chosen` the tools or all definitions fit one answer, else with lines.
    """
    names, room, beside = [name for name, _tool, _description in tools], answers.room_of(view), _beside(meta)
    most = (room - beside) // 3  # bytes of names, some 400
    defines = chosen or len(paged(view, tools, room - beside)) == len(tools)

    def call(**arguments: object) -> dict[str, Any]:
        return {"name": tool, "arguments": {"category": meta["category"], **arguments}}

    def rest(begin: int) -> dict[str, object]:
        # Chosen ones are named, so that the model need not remember them.
        named = answers.names_within(names[begin:], most) if chosen else []
        following = call(toolNames=named) if chosen else call(cursor=str(begin))
        return {"toolsLeft": len(names) - begin, "next": following}

    if not defines:
        example = call(toolNames=names[start : start + NAMED_IN_NOTE])
        meta["note"] = (
            f"The definitions of all {len(tools)} tools do not fit one answer, so these are lines. Ask for the"
            f" definitions that you need: {tool}({answers.written(example)})"
        )
    if chosen or not defines:
        room -= _beside({**meta, **rest(0)}) + len(str(len(tools)))
    shown = (paged if defines else outlined)(view, tools, room, start)
    if start + len(shown) < len(tools):
        meta |= rest(start + len(shown))
    seen = ((known.server, known.name) for name, known, _text in tools if name in shown)
    return Reply(answers.result({"tools": shown, "meta": meta}), shown=tuple(seen) if defines else ())


def _beside(meta: Mapping[str, Any]) -> int:
    return answers.size_of({"tools": {}, "meta": meta})


def entries_of(view: View, category: ToolCategory) -> list[ServerEntry]:
    """The servers of a category."""
    return [view.catalog.servers[server] for server in category.servers]


def shown(view: View, category: ToolCategory) -> dict[str, Member]:
    """The category's members that the profile shows, listed or not, but not those that are held."""
    members, rules, held = category.members.items(), view.offer.rules, view.catalog.held
    return {key: each for key, each in members if rules.shows(each) and held((each.server, each.tool)) is None}


def member_key(category: ToolCategory, name: str) -> str | None:
    """The category's key for a tool's name with or without prefixes."""
    if name in category.members:
        return name
    for server in category.servers:
        own = own_name(name, server).removeprefix(f"{server}__")
        for key in (own, f"{server}/{own}"):
            member = category.members.get(key)
            if member is not None and member.server == server:
                return key
    return None


def _chosen(view: View, category: ToolCategory, wanted: Sequence[str]) -> Mapping[str, Member]:
    members = shown(view, category)
    if not wanted:
        return members
    keys = [key for key in (member_key(category, name) for name in wanted) if key is not None]
    if not keys:
        raise UnknownTool(
            f"category {category.name} has none of: {answers.cut(', '.join(wanted), answers.MAX_QUOTED)}."
            f" {answers.instead(view, members, wanted[0])}",
            category=category.name,
            closest=closest(wanted[0], members),
        )
    found = {key: members[key] for key in dict.fromkeys(keys) if key in members}
    for member in () if found else map(category.members.__getitem__, keys):
        if view.offer.rules.shows(member):
            refuse_held(view, Kind.TOOL, (member.server, member.tool), member.tool)
    return found
