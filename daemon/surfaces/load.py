"""The `load` surface: `load_mcp_server`, `load_mcp_tool` and the loaded tools; only these can be called."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from daemon.catalog.loaded import Source
from daemon.catalog.offer import Offered
from daemon.catalog.snapshot import ServerEntry
from daemon.config.config_model import USUAL
from daemon.config.names import CLIENT_PREFIX
from daemon.errors import InvalidArguments, ToolChanged, ToolNotLoaded, UnknownServer
from daemon.kit.wording import closest
from daemon.surfaces import answers, calling, finding
from daemon.surfaces.describing import paged, position, starting, unavailable, unlisted, unlisted_of
from daemon.surfaces.finding import Wanted
from daemon.surfaces.summing import first_instructions, server_line, server_words, tool_line
from daemon.surfaces.surface import (
    Action,
    AwaitListing,
    Loading,
    MetaTool,
    Reply,
    Surface,
    View,
    is_as_shown,
    renamed,
)

if TYPE_CHECKING:
    from daemon.search.index import ServerHit


SERVER = "load_mcp_server"
TOOL = "load_mcp_tool"
META_TOOLS = (SERVER, TOOL)

MAX_TOOL_LINES = 200
"""Most lines about the tools of one server; the largest real server has a few hundred."""

UNFITTED = "its schema did not fit into this answer: load it with the next call"

SERVER_EXAMPLE = '{"name": "version control"}'
TOOL_EXAMPLE = '{"names": ["TOOL", "what you need"]} or {"names": ["TOOL"], "server_name": "SERVER"}'


class _ServerArguments(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    cursor: str | None = None


class _ToolArguments(msgspec.Struct, forbid_unknown_fields=True):
    names: list[str] | str
    server_name: str | None = None


def _moved(view: View, name: str) -> Offered | None:
    """The renamed tool, if it may run under its former name; None if not renamed. Else raises `UnknownTool`."""
    moved = renamed(view, name)
    if moved is None:
        return None
    old, offered = moved
    if (view.auto_load or old in view.loaded) and is_as_shown(view, old, offered.tool):
        return offered
    new, known = _name(view, offered), view.loaded.tools.get(offered.key)
    if known is not None and known.verdict.valid:
        raise calling.moved_away(name, offered, new, f"It is loaded: call {new}.")
    advice, load = _loading(new)
    raise calling.moved_away(name, offered, new, f"Load it: {advice}, then call {new}.", load=load)


def _loading(name: str) -> tuple[str, dict[str, object]]:
    call: dict[str, object] = {"name": TOOL, "arguments": {"names": [name]}}
    return f"{TOOL}({answers.written(call)})", call


def _outdated(view: View, changed: ToolChanged) -> ToolChanged:
    name = _name(view, view.offer.tools[changed.key])
    advice, load = _loading(name)
    return ToolChanged(
        f"{name} has changed since you loaded it; nothing was sent. error.definition has its present"
        f" definition. Load it again: {advice}, then call it.",
        key=changed.key,
        unloads=True,
        **changed.details,
        load=load,
    )


def _not_loaded(view: View, offered: Offered) -> ToolNotLoaded:
    name = _name(view, offered)
    advice, load = _loading(name)
    return ToolNotLoaded(
        f"{name} is not loaded in this session. Load it first: {advice}, then call it again.",
        tool=name,
        server=offered.tool.server,
        load=load,
    )


# --- load_mcp_server -----------------------------------------------------------------------------------------


def _load_server(view: View, arguments: bytes, *, patient: bool) -> Action:
    asked = answers.decode_arguments(arguments, _ServerArguments, SERVER_EXAMPLE)
    if not asked.name.strip():
        raise InvalidArguments(f'"name" is empty. Say what you need: {SERVER_EXAMPLE}')
    servers = view.servers
    index = view.services.index()
    waiting = starting(servers.values())
    if patient and (waiting or not index.covers(view.catalog.servers)):
        return AwaitListing(servers=waiting, indexed=True)
    hits = _worthy(index.search_servers([asked.name], within=servers, limit=finding.MAX_FOUND))
    if not hits:
        raise UnknownServer(
            f"no server fits {answers.quoted(asked.name)}. {answers.instead(view, servers, asked.name)}",
            available=answers.some_of(servers, answers.share_of(view)),
        )
    entries = [servers[hit.server] for hit in hits]
    asleep = unlisted(entries)
    if patient and asleep:
        return AwaitListing(servers=asleep, indexed=True)
    tools = _tools_by_server(view)
    # A cursor applies to one server only.
    start = position(asked.cursor, len(tools.get(entries[0].name, ()))) if len(entries) == 1 else 0
    down = [entry for entry in entries if not entry.usable]
    meta = unavailable(
        view, entries, (_name(view, each) for entry in down for each in tools.get(entry.name, ()))
    )
    beside = {"meta": meta} if meta else {}
    room = (answers.room_of(view) - answers.size_of({"servers": {}, **beside})) // len(entries)
    summaries = {
        entry.name: _server_summary(view, entry, tools.get(entry.name, []), start, room) for entry in entries
    }
    return Reply(answers.result({"servers": summaries, **beside}))


def _worthy(hits: Sequence[ServerHit]) -> list[ServerHit]:
    """The best hit and nearly equal ones; only the best if its name is exact."""
    if not hits or hits[0].exact:
        return list(hits[:1])
    return [hit for hit in hits if hit.score >= finding.WORTH * hits[0].score]


def _server_summary(
    view: View, entry: ServerEntry, tools: Sequence[Offered], start: int, room: int
) -> dict[str, Any]:
    following = {"name": SERVER, "arguments": {"name": entry.name, "cursor": str(len(tools))}}
    described = answers.cut(server_words(entry), room // answers.SHARE)
    summary = {"summary": described} if described else {}
    shown = tools[start : start + MAX_TOOL_LINES]

    def line(number: int) -> str:
        return tool_line(entry, shown[number].tool, shown[number].description)

    beside = answers.size_of({entry.name: {**summary, "tools": {}, "toolsLeft": len(tools), "next": following}})
    lines = answers.lines_within([_name(view, each) for each in shown], line, room - beside)
    end = start + len(lines)
    following["arguments"] = {"name": entry.name, "cursor": str(end)}
    rest = {"toolsLeft": len(tools) - end, "next": following} if len(tools) > end else {}
    return {**summary, "tools": lines, **rest}


def _tools_by_server(view: View) -> dict[str, list[Offered]]:
    tools: dict[str, list[Offered]] = {}
    for offered in view.offer.tools.values():
        tools.setdefault(offered.tool.server, []).append(offered)
    return tools


# --- load_mcp_tool -------------------------------------------------------------------------------------------


def _load_tool(view: View, arguments: bytes, *, patient: bool) -> Action:
    asked = answers.decode_arguments(arguments, _ToolArguments, TOOL_EXAMPLE)
    names = [asked.names] if isinstance(asked.names, str) else asked.names
    names = [name for name in names if name.strip()]
    entries = _servers_meant(view, asked.server_name)
    waiting = unlisted(entries) if asked.server_name else starting(entries)
    if patient and (waiting or not view.services.index().covers(view.catalog.servers)):
        return AwaitListing(servers=waiting, indexed=True)
    wanted = finding.resolve(view, names, {entry.name for entry in entries}, META_TOOLS, TOOL_EXAMPLE)
    return _loaded(view, wanted)


def _servers_meant(view: View, name: str | None) -> list[ServerEntry]:
    servers = view.servers
    if not name:
        return list(servers.values())
    name = name.removeprefix(CLIENT_PREFIX)
    if name not in servers:
        raise UnknownServer(
            f"no server is named {answers.quoted(name)}. {answers.instead(view, servers, name)}",
            server=answers.cut(name, answers.MAX_QUOTED),
            closest=closest(name, servers),
        )
    return [servers[name]]


def _loaded(view: View, wanted: Wanted) -> Reply:
    tools = [(name, each.tool, each.description) for name, each in wanted.tools.items()]
    beside = answers.size_of({"tools": {}, "meta": _meta(view, wanted, wanted.tools, ())})
    page = paged(view, tools, answers.room_of(view) - beside)
    if len(page) < len(tools):
        beside = answers.size_of({"tools": {}, "meta": _meta(view, wanted, wanted.tools, tuple(wanted.tools))})
        page = paged(view, tools, answers.room_of(view) - beside)
    left = [name for name in wanted.tools if name not in page]
    keys = tuple(wanted.tools[name].key for name in page)
    answer = answers.result({"tools": page, "meta": _meta(view, wanted, page, left)})
    return Reply(answer, Loading(tools=keys), shown=keys)


def _meta(view: View, wanted: Wanted, names: Collection[str], left: Sequence[str]) -> dict[str, Any]:
    share = answers.share_of(view)
    loaded = {name: wanted.tools[name] for name in names}
    servers = dict.fromkeys(each.tool.server for each in loaded.values())
    entries = [view.catalog.servers[name] for name in servers]
    down = {entry.name for entry in entries if not entry.usable}
    failures = wanted.failures
    refused = {
        name: answers.cut(f"{error.code}: {error.message}", share // len(failures))
        for name, error in failures.items()
    }
    unfitted = answers.fitting(((name, UNFITTED) for name in left), share)
    following = {"name": TOOL, "arguments": {"names": list(unfitted)}}
    return {
        "sourceServer": ", ".join(servers),
        "epoch": sum(entry.epoch for entry in entries),
        **unavailable(view, entries, (name for name, each in loaded.items() if each.tool.server in down)),
        **first_instructions(view, entries),
        **({"notLoaded": {**refused, **unfitted}} if refused or unfitted else {}),
        **(
            {"alternatives": answers.fitting(wanted.alternatives.items(), share)} if wanted.alternatives else {}
        ),
        **({"toolsLeft": len(left), "next": following} if left else {}),
    }


# --- the surface ---------------------------------------------------------------------------------------------


def _name(view: View, offered: Offered) -> str:
    return calling.public_name(view, offered.key, META_TOOLS)


def _describe_servers(view: View) -> str:
    servers = view.servers.values()

    def entries(room: int) -> list[tuple[str, str]]:
        return [(entry.name, server_line(view, entry, room)) for entry in servers]

    rest = f"{SERVER} finds them by need"
    lines = (
        answers.roomy_lines(entries, view.services.index_characters, rest) if servers else "none are configured"
    )
    return (
        "Find MCP servers by need or keyword. Returns each one's summary and a line per tool."
        f"\n\nServers:\n{lines}"
    )


class LoadSurface(Surface):
    """The tools of the `load` surface."""

    name = "load"
    tools = (
        MetaTool(
            name=SERVER,
            describe=_describe_servers,
            properties={"name": {"type": "string", "description": "A need, keywords or a server's name."}},
            required=("name",),
            does=_load_server,
        ),
        MetaTool(
            name=TOOL,
            describe="Load tools: returns their schemas and makes them callable by name. Several at once save"
            " round trips.",
            properties={
                "names": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Names of tools, or what you need them for.",
                },
                "server_name": {"type": "string", "description": "Only tools of this server."},
            },
            required=("names",),
            does=_load_tool,
        ),
    )

    def instructions(self, view: View) -> str:
        """Explain the three steps of loading and calling a tool."""
        return (
            f"Tools of MCP servers are loaded on demand. 1. {SERVER} finds servers for a need and names their"
            f" tools. 2. {TOOL} loads tools by name or need: it returns their schemas and adds them to your"
            " list of tools. 3. Call a loaded tool by its name. A tool that is not loaded cannot be called."
        )

    def awaits(self, view: View) -> tuple[str, ...]:
        """The servers of preloaded tools; the servers of loaded tools have listed before."""
        return unlisted_of(view, [name for name in view.profile.preloaded if name != USUAL])

    def listed(self, view: View) -> Collection[Offered]:
        """The loaded tools that are valid."""
        return calling.loaded_tools(view)

    def list_listed(self, view: View) -> tuple[bytes, ...]:
        """The entries of `listed`, under names other than the meta-tools'."""
        return tuple(calling.as_listed(view, each, META_TOOLS) for each in self.listed(view))

    def call_other(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Forward to a loaded tool."""
        try:
            moved = _moved(view, name)
            found = moved or calling.find(view, name, patient=patient)
        except ToolChanged as changed:
            if view.auto_load or changed.key not in view.loaded:
                raise
            raise _outdated(view, changed) from None
        if isinstance(found, AwaitListing):
            return found
        known = view.loaded.tools.get(found.key)
        if known is not None and known.verdict.valid:
            return calling.direct(found, arguments)
        if moved is None and not view.auto_load:
            raise _not_loaded(view, found)
        forward = calling.direct(found, arguments, Loading(tools=(found.key,), source=Source.AUTO))
        if moved is None:
            return forward
        # Once only: the tool is loaded from now on.
        return attrs.evolve(
            forward, convert=partial(answers.with_text, calling.renaming(name, found, _name(view, found)))
        )
