"""Entries of servers as other clients write them, in mcpd's keys: what each of their keys means here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import attrs

from daemon.config import model
from daemon.config.client_keys import (
    BESIDE_SECTIONS,
    CONSENT,
    IGNORED,
    NOT_TAKEN,
    OAUTH,
    RENAMED,
    SECTIONS,
    SHAPED,
    SHAPES,
    WAITS,
    as_text,
    command_line,
    is_plain,
    referring,
)
from daemon.config.jsonc import ROOT, below
from daemon.config.names import CLIENT_PREFIX, SERVER_NAME, slug
from daemon.config.structure import keys
from daemon.config.tuning import Timeouts
from daemon.errors import Fault
from daemon.kit.wording import camel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


MILLISECONDS_FROM = 1000
"""From this number on, a time limit without a unit counts as milliseconds: nobody waits 17 minutes for a call,
and no client's limit in milliseconds is below a second."""

LOCAL, REMOTE = "local", "remote"
"""OpenCode's words for `type`."""

_LONGER = {"call": "call_max", "initialize": "first_initialize"}
"""Time limits with another that must not be shorter."""

_TEXTS = ("command", "args", "env", "envFile", "cwd", "url", "headers")
"""Keys in which other clients' references are looked for."""

_WORKSPACE = re.compile(r"\$\{workspace\w*\}")


@attrs.frozen(kw_only=True)
class Note:
    """One key that was understood as something else, or that could not be taken."""

    key: str
    """The key of the entry, or a trail within it: `timeout`, `oauth.callbackPort`."""
    message: str
    """What it was taken as, or why it was not and what to do: a sentence."""
    lost: bool = False
    """Whether its meaning could not be taken over."""
    becomes: str | None = None
    """The trail within the entry at which its value now stands; None if nowhere."""


@attrs.frozen(kw_only=True)
class Translated:
    """A server's entry in mcpd's keys."""

    entry: Mapping[str, Any] = attrs.field(repr=False)
    """The entry; values of keys that mcpd has are as they were."""
    notes: tuple[Note, ...] = ()
    """What was understood as something else."""


def translated(entry: Mapping[str, Any], *, milliseconds: bool | None = None) -> Translated:
    """An entry of any common client in mcpd's keys.

    Args:
        entry: the decoded object; unknown keys stay as they are.
        milliseconds: whether the client's `timeout` is in milliseconds; None: judged by its size.
    """
    work = _Work(dict(entry), milliseconds=milliseconds)
    for key in entry:
        work.take(key)
    work.command()
    work.words()
    work.references()
    return Translated(entry=work.entry, notes=tuple(work.notes))


def fold(key: str) -> str:
    """A key as the tables of clients' keys are searched for it."""
    return key.replace("_", "").replace("-", "").lower()


_RENAMED = {fold(key): ours for key, ours in RENAMED.items()}
_WAITS = {fold(key): wait for key, wait in WAITS.items()}
_NOT_TAKEN = {fold(key): message for key, message in NOT_TAKEN.items()}
_IGNORED = {fold(key): message for key, message in IGNORED.items()}
_SHAPED = {fold(key) for key in SHAPED}
_OURS = {*RENAMED.values(), "oauth", "timeouts"}
"""Keys of mcpd's that a client's key can become: never taken for a client's."""


class _Work:
    """An entry while it is translated."""

    def __init__(self, entry: dict[str, Any], *, milliseconds: bool | None) -> None:
        self.entry = entry
        self.notes: list[Note] = []
        self._milliseconds = milliseconds
        self._is_opencodes = entry.get("type") in (LOCAL, REMOTE)

    def take(self, key: str) -> None:
        """Take over one key of the entry as it was written; unknown ones, and mcpd's own, stay."""
        folded = fold(key)
        if key in _OURS:
            self._own(key)
        elif folded in _RENAMED:
            self._rename(key, _RENAMED[folded])
        elif folded in _WAITS:
            wait = _WAITS[folded]
            known = self._milliseconds if wait.milliseconds is None else wait.milliseconds
            # OpenCode's is for the list of tools: 5 s of it would be too short for calls.
            ours = "list" if self._is_opencodes and key == "timeout" else wait.key
            self._wait(key, ours, milliseconds=known)
        elif folded in _SHAPED:
            self._shaped(key, folded)
        elif folded in _NOT_TAKEN:
            message = _NOT_TAKEN[folded]
            # Cline writes an empty list of every server.
            if message == CONSENT and not self.entry[key]:
                self._drop(key, "ignored: it says nothing")
            else:
                self._drop(key, message, lost=True)
        elif folded in _IGNORED or key.startswith(("_", "//", "#")):
            self._drop(key, _IGNORED.get(folded, "ignored: a comment"))

    def _drop(self, key: str, message: str, *, lost: bool = False) -> None:
        self.entry.pop(key)
        self.notes.append(Note(key=key, message=message, lost=lost))

    def _own(self, key: str) -> None:
        value = self.entry[key]
        if key == "type" and value == LOCAL:
            self.entry[key] = "stdio"
            self.notes.append(Note(key=key, message='understood as "stdio"', becomes=key))
        elif key == "type" and value == REMOTE:
            self._drop(key, "ignored: it follows from the url")
        elif key == "oauth" and isinstance(value, dict):
            self.entry[key] = self._oauth(value, key)

    def _rename(self, key: str, ours: str) -> None:
        value = self.entry[key]
        if ours == "type" and isinstance(value, dict):  # Continue: the whole entry in one key
            self._spread(key, value)
            return
        if value is None:
            self._drop(key, "ignored: it says nothing")
            return
        if ours == "url" and fold(key) == "httpurl" and not {"type", "transport"} & self.entry.keys():
            self.entry["type"] = "http"
        self._become(key, ours, value)
        if ours == "type":
            self._own(ours)

    def _become(self, key: str, ours: str, value: object) -> None:
        """Replace a client's key by one of mcpd's, which counts more if it is there."""
        del self.entry[key]
        present = self.entry.get(ours)
        if isinstance(present, dict) and isinstance(value, dict):
            self.entry[ours] = {**value, **present}
            self.notes.append(Note(key=key, message=f"understood as `{ours}`, beside what stands there"))
        elif present is not None and present != value:
            message = f"ignored: `{ours}` stands there, too, and counts more. Keep one of them"
            self.notes.append(Note(key=key, message=message, lost=True))
        else:
            self.entry[ours] = value
            # `disabled` is the opposite: its value is told, too.
            meant = f'"{ours}": {str(value).lower()}' if isinstance(value, bool) else f"`{ours}`"
            self.notes.append(Note(key=key, message=f"understood as {meant}", becomes=ours))

    def _spread(self, key: str, value: dict[str, Any]) -> None:
        self._drop(key, "understood as what stands in it")
        for inner, each in value.items():
            if self._inner(key, inner, each):
                self.take(inner)

    def _inner(self, key: str, inner: str, value: object) -> bool:
        """Add a key that stands within another; one of the entry itself counts more."""
        if inner in self.entry:
            message = f"ignored: the server has a `{inner}` itself"
            self.notes.append(Note(key=below(key, inner), message=message, lost=True))
            return False
        self.entry[inner] = value
        return True

    def _wait(self, key: str, ours: str, *, milliseconds: bool | None) -> None:
        value = self.entry[key]
        if isinstance(value, str) and value.isdecimal() and value.isascii():
            value = int(value)
        timeouts = self.entry.get("timeouts", {})
        if not isinstance(timeouts, dict) or ours in timeouts:
            self._drop(key, f"ignored: `timeouts.{ours}` counts more. Keep one of them", lost=True)
            return
        said = ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            if value <= 0:
                self._drop(key, f"ignored: it must be more than 0, as `timeouts.{ours}`", lost=True)
                return
            if value >= MILLISECONDS_FROM if milliseconds is None else milliseconds:
                said = f" of {value:g} milliseconds"
                value = value / 1000
            else:
                said = f" of {value:g} seconds"
            longer = _LONGER.get(ours, ours)
            if value > getattr(Timeouts(), longer) and camel(longer) not in timeouts:
                timeouts = {**timeouts, camel(longer): value}
        del self.entry[key]
        self.entry["timeouts"] = {**timeouts, ours: value}
        message = f"understood as `timeouts.{ours}`{said}"
        self.notes.append(Note(key=key, message=message, becomes=f"timeouts.{ours}"))

    def _shaped(self, key: str, folded: str) -> None:
        value = self.entry[key]
        made = SHAPES[folded](value)
        if made is None:
            return  # its type is wrong: it stays, and is reported as a key that is not known
        ours, new = made
        if ours == "oauth" and isinstance(new, dict):
            new = self._oauth(new, key)
        self._become(key, ours, new)
        rest = sorted(value.keys() - {"headers"}) if ours == "headers" and folded.startswith("request") else []
        for each in rest:
            self.notes.append(Note(key=below(key, each), message="ignored: mcpd has nothing for it", lost=True))

    def _oauth(self, value: dict[str, Any], key: str) -> dict[str, Any]:
        """The object with the spellings of mcpd."""
        found: dict[str, Any] = {}
        for name, each in value.items():
            ours = next((ours for theirs, ours in OAUTH.items() if fold(theirs) == fold(name)), name)
            ours = ours if ours == name or ours not in value else name
            new = each.split() if ours == "scopes" and isinstance(each, str) else each
            found[ours] = new
            if ours != name:
                message = f"understood as `oauth.{ours}`"
                self.notes.append(Note(key=below(key, name), message=message, becomes=f"oauth.{ours}"))
        return found

    def command(self) -> None:
        """A command that is a list, an object, or a whole command line."""
        value, args = self.entry.get("command"), self.entry.get("args", [])
        if not isinstance(args, list):
            return
        if isinstance(value, dict) and isinstance(value.get("path"), str):  # Zed
            self._drop("command", "understood as `command`, its `path`, and what else stands in it")
            for key, each in value.items():
                self._inner("command", "command" if key == "path" else key, each)
            self.command()
            return
        words = value if isinstance(value, list) else command_line(value)
        if words and isinstance(words[0], str):
            self.entry |= {"command": words[0], "args": [*words[1:], *args]}
            self.notes.append(Note(key="command", message="understood as `command` and the first of `args`"))

    def words(self) -> None:
        """Numbers, true and false where mcpd wants text, and variables as a list."""
        env = self.entry.get("env")
        if isinstance(env, list) and all(isinstance(each, str) and "=" in each for each in env):
            self.entry["env"] = dict(each.split("=", 1) for each in env)
            self.notes.append(Note(key="env", message="understood as an object of names and values"))
        for key in ("env", "headers", "args"):
            value = self.entry.get(key)
            if isinstance(value, dict) and key != "args":
                odd = [name for name, each in value.items() if is_plain(each)]
                self.entry[key] = {name: as_text(each) for name, each in value.items()}
            elif isinstance(value, list) and key == "args":
                odd = [f"number {at}" for at, each in enumerate(value, 1) if is_plain(each)]
                self.entry[key] = [as_text(each) for each in value]
            else:
                continue
            if odd:
                self.notes.append(Note(key=key, message=f"taken as text: {', '.join(odd)}"))

    def references(self) -> None:
        """References in the spelling of OpenCode and of Gemini CLI, and files of variables in a workspace."""
        path = self.entry.get("envFile")
        if isinstance(path, str) and _WORKSPACE.search(path):
            message = (
                "not read: mcpd reads files of variables before a client is there. Name the file by its"
                " absolute path, or the variables in `env`"
            )
            self._drop("envFile", message, lost=True)
        for key in _TEXTS:
            if key in self.entry:
                seen: list[str] = []
                self.entry[key] = referring(self.entry[key], seen)
                if seen:
                    told = ", ".join(dict.fromkeys(seen))
                    self.notes.append(Note(key=key, message=f"understood as references: {told}"))


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
