"""`mcpd tools`: the categories with their tools, those of a server, one tool, and what a model sees of them."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from daemon.cli.control import EX_FAULT, RemoteFault, ask_with, guarded
from daemon.cli.options import add_control, add_json, parser
from daemon.cli.tool_name import read_tool
from daemon.kit.wording import BYTES_PER_TOKEN, counted, suggestion
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse

    from daemon.cli.terminal import Screen

_CLIENTS = "__"
"""What clients write between the names of servers and tools (`git__git_log`, `mcp__git__git_log`)."""

Json = dict[str, Any]


def main(argv: list[str]) -> int:
    """Show the categories and their tools, those of a server, one tool, or a surface.

    Returns:
        0: shown; 1: no such server, category or tool; 2: usage; 3: the daemon is not reachable.
    """
    made = _parser()
    options = made.parse_args(argv)
    if options.name is not None and options.category is not None:
        made.error("name a category (--category), or a server or a tool, not both")
    is_of_clients = options.surface is not None or options.profile is not None
    if options.surface is not None and (options.name is not None or options.category is not None):
        made.error("--surface shows all that a model sees: leave the server, the tool or the category out")
    if options.format is not None and options.surface is None:
        made.error("--format text goes with --surface, as in `mcpd tools --surface full --format text`")
    if options.name is not None and is_of_clients:
        # What clients see is told by category.
        options.category, options.name = options.name, None
    if options.name is None:
        return guarded(lambda: _show(options))
    return guarded(lambda: _show_tool(options) if "/" in options.name else _show_server(options))


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "tools",
        "Show the categories and the tools in them; tools that are switched off or cannot be called now are"
        " marked. With SERVER: its tools, whatever category they are in. With SERVER/TOOL: what the tool takes,"
        " what its server says of its effects, and an example call. With --surface: what a model is told when"
        " it connects, with what it costs.",
        examples=(
            "mcpd tools",
            "mcpd tools git",
            "mcpd tools git/git_log",
            "mcpd tools --category files",
            "mcpd tools --surface search",
            "mcpd tools --surface full --format text",
            "mcpd tools --json",
        ),
        exits={0: "shown", 1: "no such server, category, tool, profile or surface"},
    )
    made.add_argument(
        "name",
        metavar="SERVER[/TOOL]",
        nargs="?",
        help="a server's tools, or one tool; a category where no server has that name",
    )
    made.add_argument("--category", metavar="C", help="only this category")
    made.add_argument(
        "--surface",
        metavar="NAME",
        nargs="?",
        const="",
        help="show exactly what a model sees: on this surface, or without a name on that of an unknown client",
    )
    made.add_argument("--profile", metavar="N", help="as clients of this profile see it (default: `default`)")
    made.add_argument(
        "--format",
        choices=("text",),
        help="text: with --surface, its tools as a text for a model that takes no list of tools, as the prompt"
        " mcpd_tools has them",
    )
    add_json(made)
    add_control(made)
    return made


def _show(options: argparse.Namespace) -> int:
    # All categories are asked for, so that an unknown name can be answered with the closest known one.
    wish = {"profile": options.profile, "surface": options.surface}
    answer = ask_with(options, "tools", {key: value for key, value in wish.items() if value})
    if options.category is not None and options.category not in answer["categories"]:
        print(visible(_unknown(options.category, answer["categories"])), file=sys.stderr)
        return EX_FAULT
    return _show_categories(options, answer)


def _show_categories(options: argparse.Namespace, answer: Json) -> int:
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
        from daemon.cli.views import render_tools  # noqa: PLC0415 - imports rich, which `--json` does without

        print(render_tools(answer["categories"], _screen()))
    return 0


def _show_server(options: argparse.Namespace) -> int:
    """The tools of a server; else the category of that name, else the tool that clients call so."""
    try:
        answer = ask_with(options, "tools", {"server": options.name})
    except RemoteFault as fault:
        return _show_instead(options, fault)
    if "tools" not in answer:
        # An older daemon knows categories only.
        options.category = options.name
        return _show(options)
    if answer["isCategory"]:
        words = f"mcpd: there is a category {options.name!r}, too: `mcpd tools --category {options.name}`"
        print(visible(words), file=sys.stderr)
    if options.json:
        print(document(answer))
    else:
        from daemon.cli.views import render_server_tools  # noqa: PLC0415 - as above

        print(render_server_tools(answer, _screen()))
    return 0


def _show_instead(options: argparse.Namespace, fault: RemoteFault) -> int:
    """What has a name that no server has."""
    answer = ask_with(options, "tools", {})
    if options.name in answer["categories"]:
        options.category = options.name
        return _show_categories(options, answer)
    members = [member for each in answer["categories"].values() for member in each["tools"].items()]
    # As clients write them, or alone; what resembles neither is taken for the name of a server.
    if _CLIENTS in options.name or any(options.name in {key, tool["tool"]} for key, tool in members):
        return _show_tool(options)
    raise fault


def _show_tool(options: argparse.Namespace) -> int:
    try:
        server, tool = read_tool(options, options.name)
        answer = ask_with(options, "tool", {"server": server, "tool": tool})
    except RemoteFault:
        # The name of a category may have a slash.
        known = ask_with(options, "tools", {})
        if options.name not in known["categories"]:
            raise
        options.category = options.name
        return _show_categories(options, known)
    if options.json:
        print(document(answer))
    else:
        from daemon.cli.tool_view import render_tool  # noqa: PLC0415 - as above

        print(render_tool(answer, _screen()))
    return 0


def _screen() -> Screen:
    from daemon.cli.terminal import Screen  # noqa: PLC0415 - as above

    return Screen.of(sys.stdout, os.environ)


def _unknown(name: str, known: Json) -> str:
    return f"mcpd: no category is named '{name}'{suggestion(name, known)}"


def surface_text(surface: Json) -> str:
    """What a model is told: the instructions, then each tool's name, full description and cost, and the sum."""
    instructions = surface["instructions"]
    total = len(instructions.encode(errors="replace"))
    blocks = [f"instructions  {_cost(total)}\n{_indented(instructions)}"]
    for tool in surface["tools"]:
        cost = len(json.dumps(tool, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))
        total += cost
        description = tool.get("description") or "(no description)"
        blocks.append(f"{visible(tool['name'])}  {_cost(cost)}\n{_indented(description)}")
    tools = counted(len(surface["tools"]), "tool")
    blocks.append(f"surface '{visible(surface['name'])}': {tools} and the instructions, {_cost(total)}")
    return "\n\n".join(blocks)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in visible(text, lines=True).split("\n"))


def _cost(count: int) -> str:
    return (
        f"{count:,} bytes, about {count // BYTES_PER_TOKEN:,} tokens (estimate: {BYTES_PER_TOKEN} bytes each)"
    )
