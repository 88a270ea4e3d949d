"""`mcpd tools`: the categories with their tools, and what a model sees of them."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from daemon.cli.control import EX_FAULT, RemoteFault, ask_with, guarded
from daemon.cli.options import add_control, add_json, parser
from daemon.kit.wording import BYTES_PER_TOKEN, counted, suggestion
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse

Json = dict[str, Any]


def main(argv: list[str]) -> int:
    """Show the categories and their tools, one tool, or a surface.

    Returns:
        0: shown; 1: no such category or tool; 2: usage; 3: the daemon is not reachable.
    """
    options = _parser().parse_args(argv)
    names_tool = "/" in (options.category or "") and options.surface is None and options.profile is None
    return guarded(lambda: _show_tool(options) if names_tool else _show(options))


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "tools",
        "Show the categories and the tools in them; tools that are switched off or cannot be called now are"
        " marked. With SERVER/TOOL: what the tool takes, what its server says of its effects, and an example"
        " call. With --surface: what a model is told when it connects, with what it costs.",
        examples=(
            "mcpd tools",
            "mcpd tools files",
            "mcpd tools git/git_log",
            "mcpd tools --surface search",
            "mcpd tools --json",
        ),
        exits={0: "shown", 1: "no such category, tool, profile or surface"},
    )
    made.add_argument(
        "category", metavar="CATEGORY|SERVER/TOOL", nargs="?", help="only this category, or one tool"
    )
    made.add_argument(
        "--surface",
        metavar="NAME",
        nargs="?",
        const="",
        help="show exactly what a model sees: on this surface, or without a name on that of an unknown client",
    )
    made.add_argument("--profile", metavar="N", help="as clients of this profile see it (default: `default`)")
    add_json(made)
    add_control(made)
    return made


def _show(options: argparse.Namespace) -> int:
    # All categories are asked for, so that an unknown name can be answered with the closest known one.
    wish = {"profile": options.profile, "surface": options.surface}
    answer = ask_with(options, "tools", {key: value for key, value in wish.items() if value})
    known: Json = answer["categories"]
    if options.category is not None:
        if options.category not in known:
            print(visible(_unknown(options.category, known)), file=sys.stderr)
            return EX_FAULT
        answer["categories"] = {options.category: known[options.category]}
    if options.json:
        print(document(answer if options.surface is None else answer["surface"]))
    elif options.surface is not None:
        print(surface_text(answer["surface"]))
    else:
        from daemon.cli.terminal import Screen  # noqa: PLC0415 - imports rich, which `--json` does without
        from daemon.cli.views import render_tools  # noqa: PLC0415

        print(render_tools(answer["categories"], Screen.of(sys.stdout, os.environ)))
    return 0


def _show_tool(options: argparse.Namespace) -> int:
    server, _, tool = options.category.partition("/")
    try:
        answer = ask_with(options, "tool", {"server": server, "tool": tool})
    except RemoteFault:
        # The name of a category may have a slash.
        if options.category not in ask_with(options, "tools", {})["categories"]:
            raise
        return _show(options)
    if options.json:
        print(document(answer))
    else:
        from daemon.cli.terminal import Screen  # noqa: PLC0415 - imports rich, which `--json` does without
        from daemon.cli.tool_view import render_tool  # noqa: PLC0415

        print(render_tool(answer, Screen.of(sys.stdout, os.environ)))
    return 0


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
