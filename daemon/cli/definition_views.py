"""Prompts, resources and templates as text for people; servers' words are escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text

from daemon.cli.terminal import Screen, draw, grid, paragraph, safe
from daemon.kit.wording import short_size
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

Json = dict[str, Any]

_SENTENCE = re.compile(r"(?<=[.!?])\s")


def render_prompts(answer: Json, screen: Screen) -> str:
    """Prompts as text.

    Args:
        answer: of the control method `prompts`.
        screen: where it is shown.
    """
    prompts: list[Json] = answer["prompts"]
    rows = [
        (f"{each['server']}/{each['name']}", _marked(each), _prompt(each["definition"])) for each in prompts
    ]
    return draw(
        [_table(rows, screen) if rows else Text("No server has listed a prompt."), *_notes(answer)], screen
    )


def render_resources(answer: Json, screen: Screen) -> str:
    """Resources and templates as text.

    Args:
        answer: of the control method `resources`.
        screen: where it is shown.
    """
    lines: list[str] = []
    for title in ("resources", "templates"):
        listed: list[Json] = answer[title]
        if listed:
            lines += [
                draw([Text(title, style="bold")], screen),
                *(_resource(each, screen) for each in listed),
                "",
            ]
    if not lines:
        lines.append("No server has listed a resource.")
    return "\n".join([*lines, draw([*_notes(answer)], screen)]).rstrip("\n")


def first_sentence(text: object) -> str:
    """The first sentence of what a server says, in one line."""
    return _SENTENCE.split(" ".join(text.split()), maxsplit=1)[0] if isinstance(text, str) else ""


def _table(rows: Sequence[tuple[str, str, list[str]]], screen: Screen) -> Table:
    table = grid(screen, head=False)
    width = min(max(cell_len(visible(name)) for name, _mark, _words in rows), screen.width // 2)
    # Names are never cut: they are typed in again.
    table.add_column(overflow="fold", width=width)
    table.add_column(overflow="fold")
    for name, mark, words in rows:
        told = safe(f"[{mark}] ", "yellow") if mark else Text("")
        for number, line in enumerate(words):
            told.append_text(Text("\n" if number else ""))
            told.append_text(safe(line, "dim" if number else ""))
        table.add_row(safe(name), told)
    return table


def _marked(each: Json) -> str:
    """Why something cannot be used now; empty if it can."""
    if not each["enabled"]:
        return "disabled"
    return "" if each["available"] else f"unavailable: {each['server']} is down"


def _prompt(definition: Json) -> list[str]:
    arguments = definition.get("arguments")
    named = [
        f"{each.get('name')}=…{'' if each.get('required') else ' [optional]'}"
        for each in (arguments if isinstance(arguments, list) else ())
        if isinstance(each, dict)
    ]
    about = first_sentence(definition.get("description")) or first_sentence(definition.get("title"))
    return [line for line in (", ".join(named), about) if line]


def _resource(each: Json, screen: Screen) -> str:
    """A resource or template: its URI in one line, however long, since it is copied from here."""
    definition: Json = each["definition"]
    name, kind, count = definition.get("title") or definition.get("name"), definition.get("mimeType"), None
    if isinstance(definition.get("size"), int):
        count = short_size(definition["size"])
    told = [", ".join(str(part) for part in (name, kind, count) if part)]
    told.append(first_sentence(definition.get("description")))
    mark = _marked(each)
    parts = [paragraph(f"[{mark}]", indent=2, style="yellow")] if mark else []
    parts += [paragraph(line, indent=2, style="dim") for line in told if line]
    return "\n".join([visible(f"{each['server']}/{each['uri']}"), *([draw(parts, screen)] if parts else ())])


def _notes(answer: Json) -> Iterator[RenderableType]:
    """What is wrong with servers whose lists these are."""
    for name, server in answer["servers"].items():
        if server["state"] not in {"ready", "degraded"}:
            reason = f": {server['reason']}" if server["reason"] else ""
            shown = "What it listed before is shown" if server["known"] else "It has listed nothing yet"
            yield safe(f"{name} is {server['state']}{reason}. {shown}.", "yellow")
        if server["problem"]:
            yield safe(f"{name}: {server['problem']}", "yellow")
        for thing, why in server["quarantined"].items():
            yield safe(f"{name}/{thing} cannot be used: {why}", "yellow")
