"""One tool for people: what it does, the schema of its arguments in words, what it affects, an example call."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from daemon.cli.terminal import Screen, draw, paragraph, safe
from daemon.operators.report_words import change_in_words
from daemon.operators.schema_words import arguments_of
from daemon.safety.escape import json_line, visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from daemon.operators.schema_words import Argument


Json = dict[str, Any]

EFFECTS = (
    ("readOnlyHint", True, "only reads"),
    ("readOnlyHint", False, "changes things"),
    ("destructiveHint", True, "may destroy or overwrite"),
    ("destructiveHint", False, "destroys nothing"),
    ("idempotentHint", True, "the same call again changes nothing more"),
    ("idempotentHint", False, "the same call again changes more"),
    ("openWorldHint", True, "reaches the world beyond its server"),
    ("openWorldHint", False, "stays within its server's own data"),
)
"""What each annotation of a tool means (MCP, `ToolAnnotations`)."""

_READS = frozenset({"destructiveHint", "idempotentHint"})
"""Annotations that say nothing of a tool that only reads."""


def render_tool(answer: Json, screen: Screen) -> str:
    """A tool as text.

    Args:
        answer: of the control method `tool`.
        screen: where it is shown.
    """
    definition: Json = answer["definition"]
    parts: list[RenderableType] = [_heading(answer, definition)]
    for text in (definition.get("description"), *_effects(definition)):
        if isinstance(text, str) and text.strip():
            parts += [Text(""), *(paragraph(line, indent=2) for line in text.strip().splitlines())]
    # A daemon of before does not tell of it.
    if change := answer.get("changed"):
        parts += [Text(""), paragraph(change_in_words(change), indent=2)]
    arguments = arguments_of(definition.get("inputSchema"))
    parts += [Text(""), Text("arguments" if arguments else "It takes no arguments.", style="bold")]
    if arguments:
        parts.append(_argument_table(arguments, screen))
    # Never wrapped: it is there to be copied.
    return draw(parts, screen) + "\n\n" + _example(answer)


def example_call(answer: Json) -> str:
    """A command line that calls the tool; empty if no arguments are known that fit."""
    if answer["example"] is None:
        return ""
    name = shlex.quote(visible(f"{answer['server']}/{answer['tool']}"))
    arguments = f" {shlex.quote(json_line(answer['example']))}" if answer["example"] else ""
    return f"mcpd call {name}{arguments}"


def _heading(answer: Json, definition: Json) -> Text:
    title = definition.get("title") or (definition.get("annotations") or {}).get("title")
    heading = safe(f"{answer['server']}/{answer['tool']}", "bold")
    if isinstance(title, str) and title and title != answer["tool"]:
        heading.append_text(safe(f"  {title}"))
    if not answer["enabled"]:
        heading.append_text(safe("  [disabled]", "yellow"))
    elif not answer["available"]:
        heading.append_text(safe(f"  [unavailable: {answer['server']} is {answer['state']}]", "yellow"))
    return heading


def _effects(definition: Json) -> list[str]:
    annotations = definition.get("annotations")
    if not isinstance(annotations, dict):
        return []
    reads = annotations.get("readOnlyHint") is True
    said = [
        words
        for key, value, words in EFFECTS
        if annotations.get(key) is value and not (reads and key in _READS)
    ]
    return [f"Its server says: {', '.join(said)}."] if said else []


def _argument_table(arguments: list[Argument], screen: Screen) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    named = [f"{'  ' * each.depth}{visible(each.name)}" for each in arguments]
    width = min(max(map(cell_len, named)), screen.width // 2)
    table.add_column(width=0)
    table.add_column(overflow="fold", width=width)
    table.add_column(overflow="fold")
    for name, each in zip(named, arguments, strict=True):
        words = safe(each.kind)
        if each.required:
            words.append_text(Text(" (required)", style="bold"))
        table.add_row("", Text(name), words)
        if each.about:
            table.add_row("", "", safe(each.about, "dim"))
    return table


def _example(answer: Json) -> str:
    call = example_call(answer)
    return f"example\n  {call}" if call else "No example: none was found that fits its schema."
