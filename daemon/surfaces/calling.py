"""Finds the tool that a call means, on every surface, or explains why there is none."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import islice, takewhile

import msgspec
from msgspec import Raw

from daemon import errors
from daemon.catalog.kinds import switch_of
from daemon.catalog.naming import is_page
from daemon.catalog.offer import Offer, Offered
from daemon.catalog.snapshot import Catalog, ServerEntry
from daemon.config.config_model import Profile
from daemon.config.names import CLIENT_PREFIX, read_reference
from daemon.kit.wording import closest
from daemon.model import Kind, Tool, ToolKey
from daemon.protocol import decode_members, tool_head
from daemon.safety.legible import legible_tool
from daemon.surfaces import answers
from daemon.surfaces.additions import read_only, refuse_held
from daemon.surfaces.describing import definition, starting, unlisted
from daemon.surfaces.surface import (
    ALWAYS_LOAD,
    RUNS_ANYTHING,
    Action,
    AwaitListing,
    Does,
    Forward,
    Loading,
    MetaTool,
    Services,
    View,
    renamed,
)
from daemon.surfaces.wrapped import Wrapped, Wrapper, read_arguments

CALL_TOOL = "call_tool"
CALL_READ_ONLY = "call_read_only_tool"
CALL_EXAMPLE = '{"tool_name": "NAME", "arguments": {}}'

_BY_NAME = Wrapper("arguments", ("tool_name",), CALL_EXAMPLE)


def call_tool(meta_tools: Collection[str], view: View, sent: bytes, *, patient: bool) -> Action:
    """Call any tool of the profile by name. Raises as `find` and `run`, and refuses meta-tools."""
    wrapped = _BY_NAME.unwrap(sent)
    refuse_meta_tool(view, wrapped.name, meta_tools)
    return call_by_name(view, wrapped, patient=patient)


def call_by_name(view: View, wrapped: Wrapped, *, patient: bool) -> Forward | AwaitListing:
    """Call the tool that a wrapper call names. Raises as `find` and `run`."""
    found = find(view, wrapped.name, patient=patient)
    if isinstance(found, AwaitListing):
        return found
    tool = found.tool
    return run(wrapped, (tool.server, tool.name), tool, label_of(tool), asks=found.asks)


def run(
    wrapped: Wrapped, key: ToolKey, tool: Tool | None, label: str, *, asks: bool, lasts: bool = True
) -> Forward:
    """Decide to send a wrapper call to a tool; `lasts`: also all similar calls. Raises `InvalidArguments`."""
    page = "" if tool is None else tool.app.page
    read = read_arguments(tool, wrapped.name, wrapped.arguments, wrapped.beside, wrapped.example)
    return Forward(
        server=key[0],
        name=key[1],
        head=tool_head(key[1]),
        arguments=read.arguments,
        label=label,
        repair=read.repair,
        ask=tool if asks else None,
        tool=tool,
        wrapper=wrapped.wrapper if lasts and not page else None,
        page=page,
    )


def direct(
    offered: Offered, arguments: bytes, loading: Loading | None = None, contested: Collection[str] = ()
) -> Forward:
    """Decide to forward a call made by the tool's own name, without decoding the arguments."""
    tool = offered.tool
    return Forward(
        server=tool.server,
        name=tool.name,
        head=tool_head(tool.name),
        arguments=arguments,
        label=label_of(tool),
        loading=loading,
        # Not remembered: a call that opens an app, and one by a name that the last opened app decides.
        verbatim=not tool.app.page and tool.name not in contested,
        ask=tool if offered.asks else None,
        tool=tool,
        page=tool.app.page,
    )


def label_of(tool: Tool) -> str:
    """The name of a tool in log lines about its calls."""
    return f"{tool.server}/{tool.name}"


def refuse_meta_tool(view: View, name: str, meta_tools: Collection[str]) -> None:
    """Raise `InvalidArguments` if a meta-tool is called through another meta-tool."""
    plain = name.rpartition("__")[2] if name.startswith(CLIENT_PREFIX) else name
    servers = view.catalog.servers
    if plain in meta_tools and read_reference(name, servers).server not in servers:
        text = f"{plain} is one of mcpd's own tools and always there: call it directly, by its name."
        raise errors.InvalidArguments(text, tool=plain)


def public_name(view: View, key: ToolKey, meta_tools: Collection[str]) -> str:
    """A tool's name in a list with these meta-tools, which keep their names."""
    name = view.catalog.names.name_beside(key, meta_tools)
    return view.offer.apps.name_of(key, name) if view.apps else name


def call_by_app(view: View, name: str, arguments: bytes, decide: Callable[[], Action]) -> Action:
    """Decide on a call by a client that shows apps; `decide` is its surface's decision.

    An app uses its server's own names; if several servers have one, the server whose app was opened last
    counts.
    """
    apps, theirs = view.offer.apps, view.offer.apps.by_name.get(name, {})
    opened = dict.fromkeys(view.linked[uri] for uri in reversed([*view.linked]) if is_page(uri))
    server = next((each for each in opened if each in theirs), "")
    for later in takewhile(lambda each: each != server, opened):
        refuse_held(view, Kind.TOOL, (later, name), name)
    contested = name in apps.contested
    if contested and not server:
        names = [apps.name_of(each.key, each.name) for each in theirs.values()]
        text = f"several servers have a tool {answers.quoted(name)}. Call one of them: {', '.join(names)}."
        raise errors.UnknownTool(text, tool=answers.cut(name, answers.MAX_QUOTED), closest=names)
    if not contested:
        try:
            return decide()
        except (errors.UnknownTool, errors.ToolDisabled, errors.ToolNotLoaded) as error:
            key = view.catalog.names.key_of(name, view.catalog.servers) or ("", name)
            own = apps.hidden.get(key)
            if own is None and isinstance(error, errors.UnknownTool) and (own := apps.shown.get(key)):
                refuse_changed(view, own.tool, name, own.description)
            if own is not None:
                return direct(own, arguments)
            if not server:
                raise
    return direct(theirs[server], arguments, contested=apps.contested)


def call_tools(does: Does, find_with: str) -> tuple[MetaTool, MetaTool]:
    """Make `call_tool` and `call_read_only_tool`; `find_with` says where names and arguments come from."""
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
    """Find the tool that a name means. If the client has `chosen` its servers, any name may be theirs.

    Raises ToolChanged if the tool differs from the one that this client saw, ToolDisabled if the profile does
    not offer it, ToolHeld if it waits for approval, UpstreamUnavailable if its server never listed, and
    UnknownTool if no server has it.
    """
    catalog, offer = view.catalog, view.offer
    key = catalog.names.key_of(name, catalog.servers)
    if key is not None and key in offer.tools:
        offered = offer.tools[key]
        refuse_changed(view, offered.tool, name, offered.description)
        return offered
    refuse_held(view, Kind.TOOL, key, name)
    if key is not None and _is_off(view, key):
        raise disabled(view, key, name)
    # A bare unknown name wakes no server; a name with its server's prefix wakes that one.
    entries = list(view.servers.values()) if key is None else [catalog.servers[key[0]]]
    is_wanted = chosen or key is not None
    waiting = unlisted(entries) if is_wanted else starting(entries)
    if patient and waiting:
        return AwaitListing(servers=waiting, calling=is_wanted)
    if is_wanted and len(entries) == 1 and entries[0].tools is None:
        raise never_listed(view, entries[0])
    raise unknown_tool(view, name)


def refuse_changed(view: View, tool: Tool, name: str, description: str) -> None:
    """Raise `ToolChanged` if a tool has changed since the client saw or loaded it."""
    key = tool.server, tool.name
    seen = view.shown(key)
    if seen is None and key in view.loaded:
        seen = view.loaded.tools[key].schema_hash
    if seen in {None, tool.schema_hash}:
        return
    raise errors.ToolChanged(
        f"{answers.quoted(name)} has changed since you saw it; nothing was sent. error.definition has"
        " its present definition: call it again, with arguments that fit this definition.",
        key=key,
        tool=answers.cut(name, answers.MAX_QUOTED),
        server=tool.server,
        definition=definition(view, tool, description),
    )


def disabled(view: View, key: ToolKey, name: str) -> errors.ToolDisabled:
    """The error about a tool that exists but is switched off."""
    server, tool = key
    if (server, "") in view.catalog.switched:
        why = f"its server {server} is switched off by an operator (`mcpd enable {server}` brings it back)"
    elif key in view.catalog.switched_tools:
        word = shlex.quote(f"{server}/{switch_of(Kind.TOOL, tool)}")
        why = f"an operator has switched it off (`mcpd enable {word}` brings it back)"
    elif view.catalog.servers[server].disabled:
        why = f"its server {server} is switched off in mcpd's configuration"
    elif view.offer.rules.hides(key):
        why = "only the app of its server may call it"
    elif view.offer.rules.denies(key):
        why = f"a permission rule in profile {view.profile.name} of mcpd's configuration denies it"
    else:
        why = "it is switched off by mcpd's configuration"
    return errors.ToolDisabled(
        f"{answers.quoted(name)} cannot be called: {why}. Use another tool.",
        tool=answers.cut(tool, answers.MAX_QUOTED),
        server=server,
    )


def _is_off(view: View, key: ToolKey) -> bool:
    entry = view.catalog.servers[key[0]]
    if entry.tools is not None and key[1] not in entry.all_tools:
        return False
    return entry.disabled or not view.offer.rules.allows(key) or view.offer.rules.hides(key)


def unknown_tool(view: View, name: str) -> errors.UnknownTool:
    """The error about a name that no server has, or no longer has."""
    if (moved := renamed(view, name)) is not None:
        new = view.catalog.names.name_of(moved[1].key)
        return moved_away(name, moved[1], new, "Call that.")
    key = view.catalog.names.key_of(name, view.catalog.servers)
    names = [offered.name for offered in view.offer.tools.values()]
    near = closest(name, names) or ([] if key is None else closest(key[1], names))
    if key is not None and "/" in name:
        # Spelt as they were asked for, by operators above all.
        own = [tool for server, tool in (each.key for each in view.offer.tools.values()) if server == key[0]]
        names, near = ([f"{key[0]}/{each}" for each in tools] for tools in (own, closest(key[1], own)))
    catalog = view.catalog
    places = [key] if key is not None else [(server, name) for server in view.servers]
    why = next(
        (
            f" (server {server} lists it in a form that cannot be used: {problem})"
            for server, tool in places
            if (problem := catalog.servers[server].tool_list.quarantined.get(tool))
        ),
        "",
    )
    known = answers.instead(view, names, name, near)
    return errors.UnknownTool(
        f"there is no tool {answers.quoted(name)}{why}. {known}{_unlisted_hint(view)}",
        tool=answers.cut(name, answers.MAX_QUOTED),
        closest=near,
    )


def moved_away(name: str, offered: Offered, new: str, advice: str, **more: object) -> errors.UnknownTool:
    """The error about the former `name` of a renamed tool; `advice` is a sentence."""
    return errors.UnknownTool(
        f"{renaming(name, offered, new)} {advice}",
        tool=answers.cut(name, answers.MAX_QUOTED),
        server=offered.tool.server,
        renamedTo=new,
        closest=[new],
        **more,
    )


def renaming(name: str, offered: Offered, new: str) -> str:
    """The sentence about a renamed tool; arguments as for `moved_away`."""
    return f"server {offered.tool.server} has renamed {answers.quoted(name)}: it is called {new} now."


def never_listed(view: View, entry: ServerEntry) -> errors.UpstreamUnavailable:
    """The error about a tool whose server has never listed its tools."""
    why = entry.tool_list.problem or answers.told(entry.status.why) or str(entry.status.state)
    helps = answers.what_helps(entry.name, entry.status.why) or "Try again later."
    return errors.UpstreamUnavailable(
        f"server {entry.name} has not listed its tools yet ({why}). Nothing was sent. {helps}",
        server=entry.name,
        **answers.unavailable_entry(entry, view.now()),
    )


def _unlisted_hint(view: View) -> str:
    """Name the servers that have not listed yet and may have the tool; empty if all have listed."""
    silent = [f"{entry.name} ({entry.status.state})" for entry in view.servers.values() if entry.tools is None]
    return (
        " The tools of these servers are not known yet:"
        f" {', '.join(answers.some_of(silent, answers.share_of(view) // 2))}."
        if silent
        else ""
    )


def loaded_tools(view: View) -> list[Offered]:
    """The loaded tools that can be used, in the order of loading."""
    offer = view.offer
    found = (offer.tools.get(key) for key, each in view.loaded.tools.items() if each.verdict.valid)
    return [offered for offered in found if offered is not None]


MOST_USUAL = 7
"""Core tools; Serena has as many by default."""

SERENAS = (
    *("search_tools", "initial_instructions", "activate_project", "get_current_config"),
    *("check_onboarding_performed", "list_dir", "find_file"),
)
"""Serena's `DEFAULT_CORE_TOOLS`, used before any tool was called."""


def usual_tools(services: Services, catalog: Catalog, profile: Profile) -> tuple[ToolKey, ...]:
    """A profile's most called tools, even unlisted ones, or else Serena's; sorted, so that texts stay equal."""
    offer = services.offers.of(catalog, profile)
    shown = (key for key in services.most_called() if _may_be_shown(catalog, offer, key))
    called = tuple(sorted(islice(shown, MOST_USUAL)))
    return called or tuple(sorted(key for key in offer.tools if key[1] in SERENAS))[:MOST_USUAL]


def core_tools(view: View) -> Sequence[Offered]:
    """The core tools with known definitions."""
    if view.profile.core_tools is not None:
        return view.offer.core
    return [offered for key in view.usual() if (offered := view.offer.tools.get(key)) is not None]


def core_references(view: View) -> Sequence[str]:
    """The core tools, named as in the configuration."""
    if view.profile.core_tools is not None:
        return view.profile.core_tools
    return [f"{server}/{tool}" for server, tool in view.usual()]


def core_names(view: View, meta_tools: Collection[str]) -> Iterator[str]:
    """The names for calls of core tools; while a server has not listed, the configured names."""
    for name in core_references(view):
        offered = view.offer.find(name)
        if offered is not None:
            yield public_name(view, offered.key, meta_tools)
        elif view.catalog.held(view.catalog.names.key_of(name, view.catalog.servers) or ("", "")) is None:
            yield read_reference(name, view.catalog.servers).tool


def _may_be_shown(catalog: Catalog, offer: Offer, key: ToolKey) -> bool:
    entry = catalog.servers.get(key[0])
    if entry is None or entry.disabled:
        return False
    return key in offer.tools if entry.tools is not None else offer.rules.allows(key)


KEPT = 1024
"""Cached definitions: more than all sessions load at a time, and 3 MB of real ones."""

_META = "_meta"
_ALWAYS_LOAD = {key: Raw(msgspec.json.encode(value)) for key, value in ALWAYS_LOAD.items()}
_decode_meta = msgspec.json.Decoder(dict[str, Raw] | None).decode


def as_listed(view: View, offered: Offered, meta_tools: Collection[str]) -> bytes:
    """A tool's entry in a list with these meta-tools, raw JSON."""
    name = public_name(view, offered.key, meta_tools)
    return always_loaded(legible_tool(offered.listed(name), offered.description))


@lru_cache(maxsize=KEPT)
def always_loaded(raw: bytes) -> bytes:
    """A tool object with `ALWAYS_LOAD` added to its `_meta`."""
    members = decode_members(raw)
    if _META not in members:
        return b'%b,"_meta":%b}' % (raw.rstrip()[:-1], msgspec.json.encode(ALWAYS_LOAD))
    try:
        meta = _decode_meta(members[_META]) or {}
    except msgspec.MsgspecError:
        # Not an object, hence invalid: leave it as the server wrote it.
        return raw
    return msgspec.json.encode({**members, _META: {**meta, **_ALWAYS_LOAD}})
