"""How a call finds its tool on all surfaces, and what is answered if it finds none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.catalog.kinds import switch_of
from daemon.config.names import CLIENT_PREFIX, read_reference
from daemon.errors import InvalidArguments, ToolChanged, ToolDisabled, UnknownTool, UpstreamUnavailable
from daemon.kit.wording import closest
from daemon.model import Kind
from daemon.protocol import tool_head
from daemon.surfaces.additions import read_only
from daemon.surfaces.answers import (
    MAX_QUOTED,
    choices,
    cut,
    quoted,
    share_of,
    some_of,
    told,
    unavailable_entry,
    what_helps,
)
from daemon.surfaces.base import RUNS_ANYTHING, AwaitListing, Forward, MetaTool, Target, renamed
from daemon.surfaces.describing import definition, starting, unlisted
from daemon.surfaces.wrapped import Wrapper

if TYPE_CHECKING:
    from collections.abc import Collection

    from daemon.catalog.offer import Offered
    from daemon.catalog.snapshot import ServerEntry
    from daemon.model import Tool, ToolKey
    from daemon.surfaces.base import Action, Does, Loading, View
    from daemon.surfaces.wrapped import Wrapped

CALL_TOOL = "call_tool"
CALL_READ_ONLY = "call_read_only_tool"
CALL_EXAMPLE = '{"tool_name": "NAME", "arguments": {}}'

_BY_NAME = Wrapper("arguments", ("tool_name",), CALL_EXAMPLE)


def call_tool(meta_tools: Collection[str], view: View, sent: bytes, *, patient: bool) -> Action:
    """What `call_tool(tool_name, arguments)` means (seed 003): run any tool that the profile offers, by name.

    Raises:
        InvalidArguments: the tool is a meta-tool, or no reading of the arguments fits it.
        ToolDisabled, UnknownTool: as for `find`.
    """
    wrapped = _BY_NAME.unwrap(sent)
    refuse_meta_tool(view, wrapped.name, meta_tools)
    found = find(view, wrapped.name, patient=patient)
    if isinstance(found, AwaitListing):
        return found
    tool = found.tool
    target = Target(server=tool.server, name=tool.name, label=label_of(tool), tool=tool, asks=found.asks)
    return run(view, target, wrapped)


def run(view: View, target: Target, wrapped: Wrapped) -> Forward:
    """Decide to send a tool the arguments in a wrapper call.

    Raises:
        InvalidArguments: no reading of the arguments fits the tool.
    """
    read = view.means.checker.read(
        target.tool, wrapped.name, wrapped.arguments, wrapped.beside, example=wrapped.example
    )
    return Forward(
        server=target.server,
        name=target.name,
        head=tool_head(target.name),
        arguments=read.arguments,
        label=target.label,
        repair=read.repair,
        ask=target.tool if target.asks else None,
        tool=target.tool,
        wrapper=wrapped.wrapper if target.lasts else None,
    )


def direct(offered: Offered, arguments: bytes, loading: Loading | None = None) -> Forward:
    """Decide to send a tool the arguments that it was called with by its own name, without decoding them."""
    tool = offered.tool
    return Forward(
        server=tool.server,
        name=tool.name,
        head=tool_head(tool.name),
        arguments=arguments,
        label=label_of(tool),
        loading=loading,
        verbatim=True,
        ask=tool if offered.asks else None,
    )


def label_of(tool: Tool) -> str:
    """The name that the log gives to calls of a tool."""
    return f"{tool.server}/{tool.name}"


def refuse_meta_tool(view: View, name: str, meta_tools: Collection[str]) -> None:
    """Refuse to call a meta-tool through a meta-tool.

    Raises:
        InvalidArguments: the name is a meta-tool's.
    """
    plain = name.rpartition("__")[2] if name.startswith(CLIENT_PREFIX) else name
    servers = view.catalog.servers
    if plain in meta_tools and read_reference(name, servers).server not in servers:
        text = f"{plain} is one of mcpd's own tools and always there: call it directly, by its name."
        raise InvalidArguments(text, tool=plain)


def public_name(view: View, key: ToolKey, meta_tools: Collection[str]) -> str:
    """The name of a tool in a list beside these meta-tools, whose names are taken."""
    return view.catalog.names.name_beside(key, meta_tools)


def call_tools(does: Does, find_with: str) -> tuple[MetaTool, MetaTool]:
    """The tools `call_tool` and `call_read_only_tool`; `find_with` says where names and arguments are found."""
    call = MetaTool(
        name=CALL_TOOL,
        describe=f"Run a tool by name. {find_with}",
        properties={"tool_name": {"type": "string"}, "arguments": {"type": "object"}},
        required=("tool_name", "arguments"),
        hints=RUNS_ANYTHING,
        does=does,
    )
    return call, read_only(CALL_READ_ONLY, call)


def find(view: View, name: str, *, patient: bool, chosen: bool = False) -> Offered | AwaitListing:
    """The tool that a name means.

    Args:
        view: the view of the session.
        name: what the client calls it.
        patient: whether the call may wait for a list.
        chosen: whether the client has chosen the servers of this view: any name may be one of theirs.

    Raises:
        ToolChanged: it is not what this client was shown.
        ToolDisabled: it exists, and this profile does not offer it.
        UpstreamUnavailable: its server is named, and has never listed its tools.
        UnknownTool: no server has it.
    """
    catalog, offer = view.catalog, view.offer
    key = catalog.names.key_of(name, catalog.servers)
    if key is not None and key in offer.tools:
        offered = offer.tools[key]
        refuse_changed(view, offered.tool, name, offered.description)
        return offered
    if key is not None and _is_off(view, key):
        raise disabled(view, key, name)
    # A bare name that no server has wakes none; a name with its server's wakes that one.
    entries = list(view.servers.values()) if key is None else [catalog.servers[key[0]]]
    is_wanted = chosen or key is not None
    waiting = unlisted(entries) if is_wanted else starting(entries)
    if patient and waiting:
        return AwaitListing(servers=waiting, calling=is_wanted)
    if is_wanted and len(entries) == 1 and entries[0].tools is None:
        raise never_listed(view, entries[0])
    raise unknown_tool(view, name)


def refuse_changed(view: View, tool: Tool, name: str, description: str) -> None:
    """Refuse a call of a tool that has changed since the client was shown it or its session loaded it.

    Args:
        view: the view of the session.
        tool: the tool as it is now.
        name: what the client calls it.
        description: its description in this profile.

    Raises:
        ToolChanged: it has changed; the error holds its new definition.
    """
    key = tool.server, tool.name
    seen = view.shown(key)
    if seen is None and key in view.loaded:
        seen = view.loaded.tools[key].schema_hash
    if seen in {None, tool.schema_hash}:
        return
    raise ToolChanged(
        f"{quoted(name)} has changed since you were shown it; nothing was sent. Its definition as it is now"
        " stands under error.definition: call it again, with arguments that fit that.",
        key=key,
        tool=cut(name, MAX_QUOTED),
        server=tool.server,
        definition=definition(view, tool, description),
    )


def disabled(view: View, key: ToolKey, name: str) -> ToolDisabled:
    """The error about a tool that exists and is switched off."""
    server, tool = key
    if (server, "") in view.catalog.switched:
        why = f"its server {server} is switched off by an operator (`mcpd enable {server}` brings it back)"
    elif key in view.catalog.switched_tools:
        word = switch_of(Kind.TOOL, tool)
        why = f"an operator has switched it off (`mcpd enable {server}/{word}` brings it back)"
    elif view.catalog.servers[server].disabled:
        why = f"its server {server} is switched off in mcpd's configuration"
    elif view.offer.rules.denies(key):
        why = f"a rule of permission in profile {view.profile.name} of mcpd's configuration denies it"
    else:
        why = "it is switched off by mcpd's configuration"
    return ToolDisabled(
        f"{quoted(name)} cannot be called: {why}. Use another tool.", tool=cut(tool, MAX_QUOTED), server=server
    )


def _is_off(view: View, key: ToolKey) -> bool:
    """Whether a tool that is not offered exists, as far as is known, and is switched off."""
    entry = view.catalog.servers[key[0]]
    if entry.tools is not None and key[1] not in entry.tools:
        return False
    return entry.disabled or not view.offer.rules.allows(key)


def unknown_tool(view: View, name: str) -> UnknownTool:
    """The error about a name that no server has, or no longer has."""
    if (moved := renamed(view, name)) is not None:
        new = view.catalog.names.name_of(moved[1].key)
        return moved_away(name, moved[1], new, "Call that.")
    key = view.catalog.names.key_of(name, view.catalog.servers)
    names = [offered.name for offered in view.offer.tools.values()]
    near = closest(name, names)
    catalog = view.catalog
    places = [key] if key is not None else [(server, name) for server in view.servers]
    why = next(
        (
            f" (server {server} lists it in a form that cannot be used: {problem})"
            for server, tool in places
            if (problem := catalog.servers[server].quarantined.get(tool))
        ),
        "",
    )
    known = choices(names, name, near, room=share_of(view))
    return UnknownTool(
        f"there is no tool {quoted(name)}{why}. {known}{_unlisted_hint(view)}",
        tool=cut(name, MAX_QUOTED),
        closest=near,
    )


def moved_away(name: str, offered: Offered, new: str, advice: str, **more: object) -> UnknownTool:
    """The error about a tool that its server has renamed.

    Args:
        name: the old name.
        offered: the tool as it is now.
        new: the new name.
        advice: what to do.
        **more: further details of the error.
    """
    return UnknownTool(
        f"{renaming(name, offered, new)} {advice}",
        tool=cut(name, MAX_QUOTED),
        server=offered.tool.server,
        renamedTo=new,
        closest=[new],
        **more,
    )


def renaming(name: str, offered: Offered, new: str) -> str:
    """The sentence about a tool that its server has renamed; arguments as for `moved_away`."""
    return f"server {offered.tool.server} has renamed {quoted(name)}: it is called {new} now."


def never_listed(view: View, entry: ServerEntry) -> UpstreamUnavailable:
    """The error about a tool that cannot be judged before its server has listed its tools."""
    why = entry.listing_error or told(entry.status.why) or str(entry.status.state)
    helps = what_helps(entry.name, entry.status.why) or "Try again later."
    return UpstreamUnavailable(
        f"server {entry.name} has not listed its tools yet ({why}). Nothing was sent. {helps}",
        server=entry.name,
        **unavailable_entry(entry, view.now()),
    )


def _unlisted_hint(view: View) -> str:
    """A hint at the servers that may have what was asked for; empty if all have listed their tools."""
    silent = [f"{entry.name} ({entry.status.state})" for entry in view.servers.values() if entry.tools is None]
    return (
        f" Not known yet are the tools of: {', '.join(some_of(silent, share_of(view) // 2))}." if silent else ""
    )


def loaded_tools(view: View) -> list[Offered]:
    """The loaded tools that the session can still use, in the order in which it loaded them."""
    offer = view.offer
    found = (offer.tools.get(key) for key, each in view.loaded.tools.items() if each.verdict.valid)
    return [offered for offered in found if offered is not None]
