"""Commands for tools: list them by category or server, show one, search, show what a model sees."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from daemon.cli.command import UsageError, drawn, lines, show
from daemon.cli.control import EX_FAULT, EX_UNKNOWN, RemoteFault, ask_with, note
from daemon.config.labels import split_off
from daemon.host.paths import config_file
from daemon.kit.wording import BYTES_PER_TOKEN, counted, suggestion
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse

    from daemon.operators.reports import SurfaceReport, ToolsReport

_CLIENTS = "__"
"""Separates parts of tool names in clients (`git__git_log`, `mcp__git__git_log`)."""

# --- names ------------------------------------------------------------------------------------------------


def tool_name(word: str) -> str:
    """Return a word that may name a tool. Raises UsageError for another word."""
    if not word or ("/" in word and not split_off(word)[0]):
        raise UsageError(f"write SERVER/TOOL, not {word!r}: `mcpd tools` lists them")
    return word


def read_tool(options: argparse.Namespace, name: str) -> tuple[str, str]:
    """The server (or instance) and tool of a name in any spelling. Raises DaemonUnreachable and RemoteFault."""
    server, tool = split_off(name)
    if server:
        return server, tool
    answer = ask_with(options, "tool", {"tool": name, "profile": options.profile})
    note(f"{name} is {answer['server']}/{answer['tool']}")
    return str(answer["server"]), str(answer["tool"])


# --- tools ------------------------------------------------------------------------------------------------


def tools(options: argparse.Namespace) -> int:
    """Show categories and tools, one server's tools, one tool, or a model's view."""
    if options.name is not None and options.category is not None:
        raise UsageError("name either a category (--category), or a server or tool")
    if options.surface is not None and (options.name is not None or options.category is not None):
        raise UsageError("--surface shows a model's whole view: remove the server, tool or category")
    if options.format is not None and options.surface is None:
        raise UsageError("--format text goes with --surface, as in `mcpd tools --surface full --format text`")
    return _show_all(options) if options.name is None else _show_one(options)


def _show_all(options: argparse.Namespace) -> int:
    # Ask for every category, to suggest the closest name for an unknown one.
    wish = {"profile": options.profile, "surface": options.surface or None}
    answer: Any = ask_with(options, "tools", wish)
    if options.category is not None and options.category not in answer["categories"]:
        note(f"no category is named '{options.category}'{suggestion(options.category, answer['categories'])}")
        return EX_UNKNOWN
    return _show_categories(options, answer)


def _show_categories(options: argparse.Namespace, answer: ToolsReport) -> int:
    if options.category is not None:
        answer["categories"] = {options.category: answer["categories"][options.category]}
    if options.json:
        print(document(answer if options.surface is None else answer["surface"]))
    elif options.format is not None:
        from daemon.surfaces.full import tool_in_words  # noqa: PLC0415 - loads what surfaces need

        print(visible("\n\n".join(map(tool_in_words, answer["surface"]["tools"])), lines=True))
    elif options.surface is not None:
        print(surface_text(answer["surface"]))
    else:
        print(drawn("daemon.cli.views:render_tools")(answer["categories"]))
    return 0


def _show_one(options: argparse.Namespace) -> int:
    try:
        return _show_tool(options) if "/" in options.name else _show_server(options)
    except RemoteFault:
        answer: Any = ask_with(options, "tools", {"profile": options.profile})
        if options.name in answer["categories"]:
            options.category = options.name
            return _show_categories(options, answer)
        tools = (member for each in answer["categories"].values() for member in each["tools"].items())
        is_tool = _CLIENTS in options.name or any(options.name in {key, tool["tool"]} for key, tool in tools)
        # A client's spelling, or a bare name; any other word must be a server's name.
        if "/" not in options.name and is_tool:
            return _show_tool(options)
        raise


def _show_server(options: argparse.Namespace) -> int:
    answer: Any = ask_with(options, "tools", {"server": options.name, "profile": options.profile})
    if answer["isCategory"]:
        note(f"there is a category {options.name!r}, too: `mcpd tools --category {options.name}`")
    show(options, answer, drawn("daemon.cli.views:render_server_tools"))
    return 0


def _show_tool(options: argparse.Namespace) -> int:
    server, tool = read_tool(options, options.name)
    answer = ask_with(options, "tool", {"server": server, "tool": tool, "profile": options.profile})
    show(options, answer, drawn("daemon.cli.definition_views:render_tool"))
    return 0


def surface_text(surface: SurfaceReport) -> str:
    """A model's view: the instructions, each tool with its description and cost, and the sum."""
    instructions = surface["instructions"]
    total = len(instructions.encode(errors="replace"))
    blocks = [f"instructions  {_cost(total)}\n{_indented(instructions)}"]
    for tool in surface["tools"]:
        cost = len(json.dumps(tool, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))
        total += cost
        description = tool.get("description") or "(no description)"
        blocks.append(f"{visible(tool['name'])}  {_cost(cost)}\n{_indented(description)}")
    number = counted(len(surface["tools"]), "tool")
    blocks.append(f"surface '{visible(surface['name'])}': {number} and the instructions, {_cost(total)}")
    return "\n\n".join(blocks)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in visible(text, lines=True).split("\n"))


def _cost(count: int) -> str:
    return (
        f"{count:,} bytes, about {count // BYTES_PER_TOKEN:,} tokens (estimate: {BYTES_PER_TOKEN} bytes each)"
    )


# --- search -----------------------------------------------------------------------------------------------


def search(options: argparse.Namespace) -> int:
    """Find tools for a need, or servers in registries."""
    query = " ".join(options.words).strip()
    if not query and not options.also:
        raise UsageError("write words, as in: mcpd search read a file")
    phrasings = [query, *(" ".join(words) for words in options.also)]
    queries = [text for text in phrasings if text.strip()]
    if options.registry:
        return _search_registries(options, " ".join(queries).split())
    among = {"category": options.category, "profile": options.profile}
    params = {"queries": queries, "limit": options.limit, **among}
    answer = ask_with(options, "search", params)
    if options.json:
        print(document(answer))
    elif answer["tools"]:
        print(drawn("daemon.cli.views:render_search")(answer))
    else:
        note(_nothing(queries, answer["suggestions"]))
    return 0 if answer["tools"] else EX_FAULT


def _search_registries(options: argparse.Namespace, words: list[str]) -> int:
    from daemon.sources.registries import opened  # noqa: PLC0415 - an HTTP client

    registries = opened(config_file(os.environ), os.environ, offline=options.offline)
    found = registries.search(words, options.limit)
    nothing = f"no server matches {' '.join(words)!r}{' in what could be read' * bool(registries.notes)}"
    for line in registries.notes if found else [*registries.notes, nothing]:
        note(line)
    if options.json or found:
        rows = (f"{each['name']} {each['version']}: {each['description']}" for each in found)
        print(document({"servers": found, "unread": registries.notes}) if options.json else lines(*rows))
    return 0 if found else EX_FAULT


def _nothing(queries: list[str], suggestions: list[str]) -> str:
    hint = f" Did you mean: {', '.join(suggestions)}?" if suggestions else " `mcpd tools` shows all of them."
    return f"no tool matches {' or '.join(queries)!r}.{hint}"
