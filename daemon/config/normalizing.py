"""Files as other clients write them, in mcpd's shape: where their servers stand, and what they are called.

What was understood as something else is noted. Trails within the result lead back to where a thing is written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import attrs

from daemon.config import model
from daemon.config.client_keys import BESIDE_SECTIONS, SECTIONS
from daemon.config.jsonc import ROOT, below
from daemon.config.names import CLIENT_PREFIX, SERVER_NAME, slug
from daemon.config.structure import keys
from daemon.config.translation import translated
from daemon.errors import Fault
from daemon.kit.wording import camel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SERVERS = "mcpServers"

_NAMING = (("categories", "*", "server"), ("listen", "servers", "*"))
"""Where names of servers stand, as steps; `*` is any member."""

_NAMING_TOOLS = (
    *(("categories", "*", "tools", key, "*") for key in ("includeNames", "includePatterns", "excludePatterns")),
    *(
        ("profiles", "*", key, "*")
        for key in ("coreTools", "preload", "excludedTools", "includedOptionalTools")
    ),
    ("profiles", "*", "permissions", "*", "match"),
)
"""Where tools are named, maybe with their server."""

_KEYED_BY_TOOLS = (("categories", "*", "tools", "overrides"), ("profiles", "*", "toolDescriptionOverrides"))
"""Objects whose keys name tools."""

_HOLDING_NAMES = frozenset({SERVERS, "categories", "profiles"})
_HOLDING_NAMES_WITHIN = frozenset({"env", "headers", "overrides", "toolDescriptionOverrides"})
"""Objects whose keys are names that somebody has given: sections, and objects within entries."""

_OWN_KEYS = frozenset(
    key for cls in vars(model).values() if isinstance(cls, type) and attrs.has(cls) for key in keys(cls)
)
"""All keys that mcpd has, wherever they belong."""

_NOT_IN_PREFIXES = re.compile(r"[^A-Za-z0-9_-]")
"""What clients replace by `_` in the names of servers before they put them into those of tools."""


@attrs.define
class Normalized:
    """A configuration in mcpd's shape."""

    sections: dict[str, Any] = attrs.field(repr=False)
    """Its decoded sections, by name."""
    notes: list[Fault] = attrs.field(factory=list)
    """What was understood as something else, each where it is written."""
    moved: list[tuple[str, str]] = attrs.field(factory=list)
    """Trails within `sections` and those at which the same is written, outer ones first."""

    def written(self, faults: Iterable[Fault]) -> list[Fault]:
        """The faults, each with the trail at which the thing is written."""
        return [attrs.evolve(fault, path=self._origin(fault.path)) for fault in faults]

    def _origin(self, trail: str) -> str:
        for ours, theirs in reversed(self.moved):
            rest = trail.removeprefix(ours)
            if trail.startswith(ours) and rest[:1] in {"", ".", "["}:
                trail = theirs + rest
        return trail

    def note(self, trail: str, message: str) -> None:
        """Note something about a trail within `sections`."""
        self.notes.append(Fault(path=self._origin(trail), message=message))


def normalized(raw: Mapping[str, Any]) -> Normalized:
    """A decoded configuration, as any client may have written it, in mcpd's shape. Faults stay in it."""
    normal = Normalized(dict(raw))
    for key in raw:
        if key in SECTIONS:
            _move_section(normal, key)
        elif key in BESIDE_SECTIONS:
            del normal.sections[key]
            normal.note(below(ROOT, key), BESIDE_SECTIONS[key])
        elif key.startswith(("_", "//", "#")):
            del normal.sections[key]
            normal.note(below(ROOT, key), "ignored: a comment")
    normal.sections = _in_camel_case(normal, normal.sections, ROOT)
    servers = normal.sections.get(SERVERS)
    if isinstance(servers, dict):
        servers = _named(normal, servers)
        normal.sections[SERVERS] = {name: _entry(normal, name, entry) for name, entry in servers.items()}
    return normal


def _in_camel_case(normal: Normalized, value: Any, trail: str, *, named: bool = False) -> Any:
    """A value with the keys that mcpd has in camelCase, where they are written in snake_case.

    Args:
        normal: gets a note of each.
        value: the value.
        trail: where it stands.
        named: whether its own keys are names that somebody has given.
    """
    if isinstance(value, list):
        return [_in_camel_case(normal, each, below(trail, at)) for at, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, each in value.items():
        ours = camel(key)
        if named or ours == key or ours not in _OWN_KEYS or ours in value:
            ours = key
        else:
            normal.note(below(trail, key), f"understood as `{ours}`")
            normal.moved.append((below(trail, ours), below(trail, key)))
        holds_names = ours in (_HOLDING_NAMES if trail == ROOT else _HOLDING_NAMES_WITHIN)
        made[ours] = _in_camel_case(normal, each, below(trail, ours), named=holds_names)
    return made


def _move_section(normal: Normalized, key: str) -> None:
    found, trail = normal.sections[key], below(ROOT, key)
    if key == "mcp" and isinstance(found, dict):
        if isinstance(found.get("servers"), dict):
            for other in found.keys() - {"servers"}:
                normal.note(below(trail, other), "ignored: a setting of the client's")
            found, trail = found["servers"], below(trail, "servers")
        elif not all(isinstance(entry, dict) for entry in found.values()):
            del normal.sections[key]  # Gemini CLI's: which servers it uses
            normal.note(trail, 'ignored: what is not to be used has "enabled": false in mcpd')
            return
    ours = normal.sections.get(SERVERS, {})
    if not isinstance(found, dict) or not isinstance(ours, dict):
        return
    del normal.sections[key]
    normal.note(trail, f"understood as `{SERVERS}`")
    for name in found:
        if name in ours:
            normal.note(below(trail, name), f"ignored: `{SERVERS}` has this server, too. Keep one of them")
        else:
            normal.moved.append((below(below(ROOT, SERVERS), name), below(trail, name)))
    normal.sections[SERVERS] = {**found, **ours}


def _named(normal: Normalized, servers: Mapping[str, Any]) -> dict[str, Any]:
    """The servers under names that mcpd can have; what names them elsewhere is changed, too."""
    trail = below(ROOT, SERVERS)
    names: dict[str, str] = {}
    used = {name for name in servers if SERVER_NAME.fullmatch(name)}
    for name in servers:
        better = None if name in used else slug(name, used)
        if better is not None:
            used.add(better)
            names[name] = better
            message = f"called '{better}', and this name is its title; in this file both stand for it"
            normal.note(below(trail, name), message)
            normal.moved.append((below(trail, better), below(trail, name)))
    if names:
        _rename_references(normal.sections, names)
    return {names.get(name, name): _titled(name, entry, names) for name, entry in servers.items()}


def _titled(name: str, entry: object, names: Mapping[str, str]) -> object:
    return {"title": name, **entry} if name in names and isinstance(entry, dict) else entry


def _rename_references(raw: dict[str, Any], names: Mapping[str, str]) -> None:
    prefixes: dict[str, str] = {}
    for name, ours in names.items():
        prefixes[f"{name}/"] = f"{ours}/"
        for spelt in (name, _NOT_IN_PREFIXES.sub("_", name)):
            prefixes[f"{CLIENT_PREFIX}{spelt}__"] = f"{CLIENT_PREFIX}{ours}__"

    # The longest first: a name may begin like another.
    longest_first = sorted(prefixes, key=len, reverse=True)

    def tool(written: str) -> str:
        for prefix in longest_first:
            if written.startswith(prefix):
                return prefixes[prefix] + written.removeprefix(prefix)
        return written

    # Without categories each server is one.
    naming = _NAMING if "categories" in raw else (*_NAMING, ("profiles", "*", "categories", "*"))
    for places, change in ((naming, lambda name: names.get(name, name)), (_NAMING_TOOLS, tool)):
        for steps in places:
            raw |= _changed(raw, steps, change)
    for steps in _KEYED_BY_TOOLS:
        raw |= _changed(raw, (*steps, "keys"), tool)


def _changed(value: Any, steps: tuple[str, ...], change: Callable[[str], str]) -> Any:
    """A copy of a value with the texts at the end of `steps` changed; what is of another shape stays."""
    if not steps:
        return change(value) if isinstance(value, str) else value
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        if step == "keys":
            return {change(key): item for key, item in value.items()}
        return {
            key: _changed(item, rest, change) if step in {"*", key} else item for key, item in value.items()
        }
    if isinstance(value, list) and step == "*":
        return [_changed(item, rest, change) for item in value]
    return value


def _entry(normal: Normalized, name: str, entry: object) -> object:
    if not isinstance(entry, dict):
        return entry
    trail = below(below(ROOT, SERVERS), name)
    found = translated(entry)
    normal.moved += [(f"{trail}.{note.becomes}", f"{trail}.{note.key}") for note in found.notes if note.becomes]
    for note in found.notes:
        normal.note(f"{trail}.{note.key}", note.message)
    return dict(found.entry)
