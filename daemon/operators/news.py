"""Changes of servers: of their lists, as data and log lines; definitions that wait for approval; outages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.catalog.definitions import SCHEMA, canonical
from daemon.catalog.kinds import BESIDE_TOOLS, LISTS, switch_of
from daemon.catalog.trust import HeldBecause
from daemon.config.lock_file import MEMBERS
from daemon.history.event import Event, EventKind
from daemon.history.journal import EventQuery
from daemon.kit.wording import some

if TYPE_CHECKING:
    from daemon.catalog.entry import ServerEntry
    from daemon.catalog.trust import HeldDefinition
    from daemon.model import Definition, Kind, Tool
    from daemon.operators.base import OperatorContext
    from daemon.operators.reports import HeldReport, LatelyReport, OverReport


MOST = 20
"""Most arguments of each sort that an event names, so that it stays a line."""


def differing(before: Tool, after: Tool) -> dict[str, list[str]]:
    """The members of a definition that differ, and arguments that came, went, changed or became required."""
    had, has = _parts(before.raw), _parts(after.raw)
    differ, needed = _differ(had, has), _required(had)
    arguments = [key for key in differ if key[0]]
    found = {
        "members": list(dict.fromkeys(SCHEMA if of_argument else name for of_argument, name in differ)),
        "argumentsCame": [key[1] for key in arguments if key not in had],
        "argumentsWent": [key[1] for key in arguments if key not in has],
        "argumentsChanged": [key[1] for key in arguments if key in had and key in has],
        "argumentsRequired": [name for name in _required(has) if name not in needed],
    }
    return {what: names[:MOST] for what, names in found.items() if names}


Parts = Mapping[tuple[str, str], Any]
"""The members of a definition as `("", NAME)`, and a tool's arguments as `("argument ", NAME)`."""


def _parts(raw: bytes) -> Parts:
    members: dict[str, Any] = msgspec.json.decode(raw)
    arguments = members[SCHEMA].get("properties") if isinstance(members.get(SCHEMA), dict) else None
    if not isinstance(arguments, dict):
        return {("", name): value for name, value in members.items()}
    del members[SCHEMA]["properties"]
    own = {("argument ", name): value for name, value in arguments.items()}
    return {("", name): value for name, value in members.items()} | own


def _differ(had: Parts, has: Parts) -> list[tuple[str, str]]:
    was, now = ({key: canonical(value) for key, value in parts.items()} for parts in (had, has))
    return [key for key in {**was, **now} if was.get(key) != now.get(key)]


def _required(parts: Parts) -> list[str]:
    schema = parts.get(("", SCHEMA))
    required = schema.get("required") if isinstance(schema, dict) else None
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


NAMED = 10
"""Most tools of each kind in a log line; `mcpd tools` shows all."""

COMPARED = 20
"""Most changed tools that an event compares in full: this takes some milliseconds."""


def difference(before: ServerEntry, after: ServerEntry) -> dict[str, Any]:
    """The changes between two entries of a server as data: of its tools, and of its other lists by kind."""
    had = before.tools or {}
    return {
        "state": str(after.status.state),
        "epoch": after.epoch,
        "tools": len(after.tools or {}),
        **_changes(had, after.tools or {}),
        "renamed": {old: new for old, new in after.tool_list.renamed.items() if old in had and new not in had},
        "lists": {
            LISTS[kind].member: changes
            for kind in BESIDE_TOOLS
            if any((changes := _changes(_known(before, kind), _known(after, kind))).values())
        },
    }


def news(before: ServerEntry, after: ServerEntry) -> str:
    """The changes as a log line; empty if nothing changed, or one of the entries has no known list."""
    if before.tools is None or after.tools is None or before.epoch == after.epoch:
        return ""
    changes = {"tools": _changes(before.tools, after.tools or {})}
    for kind in BESIDE_TOOLS:
        if kind in before.lists:
            changes[LISTS[kind].member] = _changes(_known(before, kind), _known(after, kind))
    changed_lists = [
        f"its {what} have changed: {'; '.join(_some(word, names) for word, names in found.items() if names)}"
        for what, found in changes.items()
        if any(found.values())
    ]
    if changed_lists:
        return f"epoch {after.epoch}: {', and '.join(changed_lists)}"
    if before.lists.keys() != after.lists.keys():
        return ""
    if before.disabled != after.disabled:
        return f"epoch {after.epoch}: it was switched {'off' if after.disabled else 'on'}"
    return f"epoch {after.epoch}: taken from another daemon, or tools were switched or approved"


def changed(before: ServerEntry, after: ServerEntry) -> Event:
    """The changes as an event, with the names of the changed lists."""
    found = difference(before, after)
    tools = {how: names for how in ("came", "went", "changed") if (names := found[how])}
    lists = {
        what: changes for what, changes in {"tools": tools, **found["lists"]}.items() if any(changes.values())
    }
    details = {**lists, "epoch": after.epoch, "before": before.epoch}
    if compared := _compared(before, after, found["changed"]):
        details["toolsDiffer"] = compared
    if found["renamed"]:
        details["renamed"] = found["renamed"]
    kind = EventKind.LISTS_CHANGED if lists else EventKind.EPOCH
    return Event(kind=kind, server=after.name, run=after.status.incarnation, details=details)


NOTED = 20
"""Most held definitions in one event."""


def newly_held(
    before: ServerEntry, after: ServerEntry, noted: Collection[str]
) -> tuple[Event, list[str]] | None:
    """The event for definitions that newly wait for approval; None if earlier events `noted` all of them."""
    held, had = waiting(after), waiting(before)
    if not (new := [path for path in held if path not in had and path not in noted]):
        return None
    # Flat: details of an event have few levels.
    found = {
        path.partition("/")[2]: {"because": str(held[path].because), **held[path].change}
        for path in new[:NOTED]
    }
    details: dict[str, Any] = {"definitions": found, "more": max(0, len(new) - NOTED)}
    return Event(kind=EventKind.HELD, server=after.name, run=after.status.incarnation, details=details), new


def waiting(*entries: ServerEntry) -> dict[str, HeldDefinition]:
    """The definitions of servers that wait for approval, as operators type them (`kinds.path_of`)."""
    return {
        f"{entry.name}/{word}": held
        for entry in entries
        for word, held in held_in(entry).items()
        if held.because is not HeldBecause.UNKNOWN
    }


def held_in(entry: ServerEntry) -> dict[str, HeldDefinition]:
    """The held definitions of a server, by operators' words for them (`kinds.switch_of`)."""
    return {switch_of(kind, name): each for kind in MEMBERS for name, each in entry.list_of(kind).held.items()}


def held_report(held: HeldDefinition) -> HeldReport:
    """The report of a held definition: why it is held, and how it changed."""
    return {"because": str(held.because), "change": held.change}


def members_differing(held: HeldDefinition) -> list[tuple[str, str | None, str | None]]:
    """Each member that differs from the approved form, with its old and its new text or JSON, or None."""
    had, has = _parts(held.before or b"{}"), _parts(held.definition.raw)
    old, new = ({key: _text(parts[key]) for key in parts} for parts in (had, has))
    return [("".join(key), old.get(key), new.get(key)) for key in _differ(had, has)]


MOSTLY_TEXT = 4  # bytes of indented JSON for each byte: members of 20 bytes take three at a depth of 20


def _text(value: Any) -> str:
    """Text or JSON for people; on one line if deep nesting would make indented JSON mostly blanks."""
    if isinstance(value, str):
        return value
    line = msgspec.json.encode(value)
    text = msgspec.json.format(line, indent=2)
    return (text if len(text) <= MOSTLY_TEXT * len(line) else line).decode()


def _compared(before: ServerEntry, after: ServerEntry, names: Sequence[str]) -> dict[str, Any]:
    """The differences of the first changed tools, by name."""
    had, has = before.tools or {}, after.tools or {}
    return {name: what for name in names[:COMPARED] if (what := differing(had[name], has[name]))}


def _known(entry: ServerEntry, kind: Kind) -> Mapping[str, Definition]:
    return entry.list_of(kind).definitions


def _some(word: str, names: list[str]) -> str:
    return f"{len(names)} {word} ({some(names, NAMED)})"


def _changes(had: Mapping[str, Definition], has: Mapping[str, Definition]) -> dict[str, list[str]]:
    # Nearly always the list is the same, and then it is the same object; so is most of what is in another one.
    if had is has:
        return {"came": [], "went": [], "changed": []}
    others = [(name, was) for name, each in has.items() if (was := had.get(name)) is not each]
    return {
        "came": [name for name, was in others if was is None],
        "went": [name for name in had if name not in has],
        "changed": [
            name for name, was in others if was is not None and was.schema_hash != has[name].schema_hash
        ],
    }


LATELY_SECONDS = 12 * 3600.0  # seconds that `lately` covers: in the morning, back to the evening before

LATELY_EVENTS = 500  # most events that `lately` reads, the newest: some milliseconds

_LATELY = frozenset({EventKind.READY, EventKind.LISTS_CHANGED, EventKind.HELD})


async def lately(context: OperatorContext) -> LatelyReport:
    """Past outages, changes of tools, and definitions that still wait for approval, by server."""
    since = context.history.now() - LATELY_SECONDS
    events = await context.history.recent(EventQuery(kinds=_LATELY, since=since, limit=LATELY_EVENTS))
    waiting = {name: held_in(entry) for name, entry in context.catalog.servers.items()}
    report = summed((event for event in events if event.server in waiting), waiting)
    return {"seconds": LATELY_SECONDS, "servers": report}


def summed(events: Iterable[Event], waiting: Mapping[str, Collection[str]]) -> dict[str, OverReport]:
    """The outages and changes of each server in these events (oldest first), and what waits for approval."""
    outages: dict[str, list[float]] = {}
    held: dict[str, Collection[str]] = {}
    tools: dict[str, dict[str, str]] = {}
    for event in events:
        away = event.details.get("awaySeconds")
        if isinstance(away, (int, float)):
            outages.setdefault(event.server, []).append(float(away))
        found = event.details.get("tools")
        if isinstance(found, dict):
            _change(tools.setdefault(event.server, {}), found)
        words = event.details.get("definitions")
        if isinstance(words, dict) and any(word in words for word in waiting[event.server]):
            held[event.server] = waiting[event.server]
    report: dict[str, OverReport] = {}
    for server in dict.fromkeys([*outages, *tools, *held]):
        lengths, changes, waits = outages.get(server, []), tools.get(server, {}), held.get(server, ())
        changes = {name: what for name, what in changes.items() if name not in waits}
        if lengths or changes or waits:
            changed, came, went = (
                sorted(name for name, what in changes.items() if what == how)
                for how in ("changed", "came", "went")
            )
            report[server] = {
                "outages": len(lengths),
                "awaySeconds": round(sum(lengths), 1),
                "changed": changed,
                "came": came,
                "went": went,
                "held": [*waits],
            }
    return report


def _change(known: dict[str, str], found: Mapping[str, object]) -> None:
    """Merge the changes of one list: a name that went and came has changed; one that came and went has not."""
    for how in ("went", "came", "changed"):
        names = found.get(how)
        for name in names if isinstance(names, (list, tuple)) else ():
            before = known.pop(name, "")
            if {before, how} == {"came", "went"}:
                if before == "went":
                    known[name] = "changed"
            else:
                known[name] = "came" if before == "came" else how
