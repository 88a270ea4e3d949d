"""Renders single tools, prompts, resources and templates for people; servers' words are escaped."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from daemon.cli.terminal import Screen, draw, first_sentence, listing, paragraph, safe
from daemon.history.event_words import of_held
from daemon.kit.wording import short_size
from daemon.operators.report_words import ReportColumn, change_in_words, local_time
from daemon.operators.schema_words import Argument, arguments_of
from daemon.safety.escape import json_line, visible
from daemon.states import in_sentence

if TYPE_CHECKING:
    from rich.console import RenderableType

    from daemon.operators.reports import DefinitionReport, PromptsReport, ResourcesReport, ToolReport

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

_READS = frozenset({"destructiveHint", "idempotentHint"})
"""Annotations that mean nothing for a tool that only reads."""


def render_tool(answer: ToolReport, screen: Screen) -> str:
    """Render a tool: description, effects, arguments and an example call."""
    definition: Mapping[str, Any] = answer["definition"]
    parts: list[RenderableType] = [_heading(answer, definition)]
    for text in (definition.get("description"), *_effects(definition)):
        if isinstance(text, str) and text.strip():
            parts += [Text(""), *(paragraph(line, indent=2) for line in text.strip().splitlines())]
    if change := answer["changed"]:
        parts += [Text(""), paragraph(change_in_words(change), indent=2)]
    if approval := answer.get("approved"):
        approved = f"Approved by: {approval['by']}, {local_time(approval['at'])}."
        parts += [Text(""), paragraph(approved, indent=2)]
    arguments = arguments_of(definition.get("inputSchema"))
    parts += [Text(""), Text("arguments" if arguments else "It takes no arguments.", style="bold")]
    if arguments:
        parts.append(_argument_table(arguments, screen))
    if observed := answer.get("observed"):
        parts += [Text(""), Text("result, as observed", style="bold"), paragraph(observed, indent=2)]
    # Never wrapped, since users copy it.
    return draw(parts, screen) + "\n\n" + _example(answer)


def example_call(answer: ToolReport) -> str:
    """A command line that calls the tool; empty if no fitting arguments are known."""
    if answer["example"] is None:
        return ""
    name = shlex.quote(visible(f"{answer['server']}/{answer['tool']}"))
    arguments = f" {shlex.quote(json_line(answer['example']))}" if answer["example"] else ""
    return f"mcpd call {name}{arguments}"


def _heading(answer: ToolReport, definition: Mapping[str, Any]) -> Text:
    title = definition.get("title") or (definition.get("annotations") or {}).get("title")
    heading = safe(f"{answer['server']}/{answer['tool']}", "bold")
    if isinstance(title, str) and title and title != answer["tool"]:
        heading.append_text(safe(f"  {title}"))
    if held := answer.get("held"):
        why = of_held(held["because"], held["change"])
        heading.append_text(safe(f"  [waits for approval: {why}]", "yellow"))
    if not answer["enabled"]:
        heading.append_text(safe("  [disabled]", "yellow"))
    elif not answer["available"] and not held:
        heading.append_text(
            safe(f"  [unavailable: {answer['server']} is {in_sentence(answer['state'])}]", "yellow")
        )
    return heading


def _effects(definition: Mapping[str, Any]) -> list[str]:
    annotations = definition.get("annotations")
    if not isinstance(annotations, dict):
        return []
    reads = annotations.get("readOnlyHint") is True
    effects = [
        words
        for key, value, words in EFFECTS
        if annotations.get(key) is value and not (reads and key in _READS)
    ]
    return [f"Its server says: {', '.join(effects)}."] if effects else []


def _argument_table(arguments: list[Argument], screen: Screen) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(width=0)
    table.add_column(overflow="fold", max_width=screen.width // 2)
    table.add_column(overflow="fold")
    for each in arguments:
        words = safe(each.kind)
        if each.required:
            words.append_text(Text(" (required)", style="bold"))
        table.add_row("", Text(f"{'  ' * each.depth}{visible(each.name)}"), words)
        if each.about:
            table.add_row("", "", safe(each.about, "dim"))
    return table


def _example(answer: ToolReport) -> str:
    call = example_call(answer)
    return f"example\n  {call}" if call else "No example: mcpd found none that fits the schema."


LISTED = 40  # definitions in a list: a screen of them
LONGEST = 400  # lines of one difference
ALIGNED = 10_000  # lines of a difference that are aligned, which could take minutes
# Ends a line in a difference: a text that has grown differs in its new sentences.
_SENTENCE = re.compile(r"(?<=[.!?;] )")


_SIGNS = {"-": "red", "+": "green"}


def render_approval(answer: Mapping[str, Any], *, waits: str, screen: Screen) -> str:
    """Render approved definitions, and those that still wait; `waits` says why, or is empty."""
    waiting = answer["waiting"]
    full = [each for each in waiting if "difference" in each]
    lines = [line for each in full for line in (*_difference(each, screen), "")]
    lines += [each.removesuffix(f"  {of_held('new', {})}") for each in _listed(answer["approved"], "approved ")]
    lines += _listed(waiting[len(full) :], waits)
    lines += [visible(f"{name}: nothing waits for approval") for name in answer["idle"]]
    lines += map(visible, filter(None, [answer.get("note")]))
    if waiting:
        first = waiting[len(full) % len(waiting)]
        server, name = first["server"], first["name"]
        one, all_of_it = (shlex.quote(visible(each)) for each in (f"{server}/{name}", server))
        lines += [""] * bool(lines[-1])
        if len(full) < len(waiting):
            lines.append(f"Differences in full: mcpd approve --diff {one if full else all_of_it}")
        lines += [f"To approve: mcpd approve {one}, or mcpd approve {all_of_it}, or mcpd approve --all"]
    return "\n".join(lines or ["nothing waits for approval"])


def _listed(rows: Sequence[Mapping[str, Any]], done: str) -> Iterator[str]:
    yield from (f"{done}{_held(each)}" for each in rows[:LISTED])
    if len(rows) > LISTED:
        yield f"and {len(rows) - LISTED:,} more: --json has all"


def _held(each: Mapping[str, Any]) -> str:
    return visible(f"{each['server']}/{each['name']}  {of_held(each['because'], each['change'])}")


def _difference(each: Mapping[str, Any], screen: Screen) -> Iterator[str]:
    yield _held(each)
    parts: list[RenderableType] = []
    for name, before, now in each["difference"]:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False)
        old, new = _lines(before), _lines(now)
        if len(old) + len(new) > ALIGNED:
            places = range(min(len(old), len(new)))
            start = next((place for place in places if old[place] != new[place]), len(places))
            old, new = (["...", *lines[start : start + LONGEST], "..."] for lines in (old, new))
        # The first lines would name files. Signs have a column of their own: no text can pass for another part.
        for line in [*unified_diff(old, new)][3:]:
            sign, text = (" ", "...") if line[0] == "@" else (line[0], line[1:])
            table.add_row("   ", sign, safe(text, _SIGNS.get(sign, "")))
        parts += [safe(f"  {name}", "bold"), table]
    lines = draw(parts, screen).split("\n")
    yield from lines[:LONGEST]
    if len(lines) > LONGEST:
        yield f"and {len(lines) - LONGEST:,} more lines: --json has all"


def _lines(text: str | None) -> list[str]:
    whole = [] if text is None else visible(text, lines=True).expandtabs().split("\n")
    return [part for line in whole for part in _SENTENCE.split(line)]


def render_prompts(answer: PromptsReport, screen: Screen) -> str:
    """Render prompts with their arguments."""
    prompts = answer["prompts"]
    shown = (
        listing(_PROMPTS, prompts, screen, head=False) if prompts else Text("No server has listed a prompt.")
    )
    return draw([shown, *_notes(answer)], screen)


def render_resources(answer: ResourcesReport, screen: Screen) -> str:
    """Render resources, then templates."""
    lines: list[str] = []
    for title, listed in (("resources", answer["resources"]), ("templates", answer["templates"])):
        if listed:
            lines += [
                draw([Text(title, style="bold")], screen),
                *(_resource(each, screen) for each in listed),
                "",
            ]
    if not lines:
        lines.append("No server has listed a resource.")
    return "\n".join([*lines, draw([*_notes(answer)], screen)]).rstrip("\n")


def _marked(each: DefinitionReport) -> str:
    if not each["enabled"]:
        return "disabled"
    return "" if each["available"] else f"unavailable: {each['server']} is down"


def _prompt(each: DefinitionReport) -> Text:
    definition, mark = each["definition"], _marked(each)
    arguments = definition.get("arguments")
    named = [
        f"{one.get('name')}=…{'' if one.get('required') else ' [optional]'}"
        for one in (arguments if isinstance(arguments, list) else ())
        if isinstance(one, dict)
    ]
    about = first_sentence(definition.get("description")) or first_sentence(definition.get("title"))
    first, *rest = [line for line in (", ".join(named), about) if line] or [""]
    described = safe(f"[{mark}] ", "yellow") if mark else Text("")
    described.append_text(safe(first))
    return described.append_text(Text("".join(f"\n{visible(line)}" for line in rest), style="dim"))


# Names are never cut, since users type them in again.
_PROMPTS = (
    ReportColumn("", lambda each: f"{each['server']}/{each['name']}"),
    ReportColumn("", _prompt, least=20),
)


def _resource(each: DefinitionReport, screen: Screen) -> str:
    """Render a resource or template; people copy its URI, so it stays in one line."""
    definition: Mapping[str, Any] = each["definition"]
    name, kind, count = definition.get("title") or definition.get("name"), definition.get("mimeType"), None
    if isinstance(definition.get("size"), int):
        count = short_size(definition["size"])
    facts = [", ".join(str(part) for part in (name, kind, count) if part)]
    facts.append(first_sentence(definition.get("description")))
    mark = _marked(each)
    parts = [paragraph(f"[{mark}]", indent=2, style="yellow")] if mark else []
    parts += [paragraph(line, indent=2, style="dim") for line in facts if line]
    return "\n".join([visible(f"{each['server']}/{each['uri']}"), *([draw(parts, screen)] if parts else ())])


def _notes(answer: PromptsReport | ResourcesReport) -> Iterator[RenderableType]:
    for name, server in answer["servers"].items():
        if server["state"] not in {"ready", "degraded"}:
            reason = f": {server['reason']}" if server["reason"] else ""
            shown = "What it listed before is shown" if server["known"] else "It has listed nothing yet"
            yield safe(f"{name} is {in_sentence(server['state'])}{reason}. {shown}.", "yellow")
        if server["problem"]:
            yield safe(f"{name}: {server['problem']}", "yellow")
        for thing, why in server["quarantined"].items():
            yield safe(f"{name}/{thing} cannot be used: {why}", "yellow")
