"""Translates other MCP clients' entries and whole files into mcpd's keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import msgspec

from daemon.config import client_keys, config_model
from daemon.config.jsonc import ROOT, below, is_within
from daemon.config.names import CLIENT_PREFIX, SERVER_NAME, slug
from daemon.config.structure import keys
from daemon.config.tuning import Timeouts
from daemon.errors import Fault
from daemon.kit.wording import camel

MILLISECONDS_FROM = 1000
"""A limit whose unit is unknown is in milliseconds from this number on: a call does not wait 17 minutes."""

LOCAL, REMOTE = "local", "remote"

_LONGER = {"call": "call_max", "initialize": "first_initialize"}
"""Limits, each with another limit that must be at least as long."""

_TEXTS = ("command", "args", "env", "envFile", "cwd", "url", "headers")

_OURS = frozenset(keys(config_model.Server))

_WORKSPACE = re.compile(r"\$\{workspace\w*\}")
_COMMENT = ("_", "//", "#")


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was translated or dropped."""

    key: str
    """The key, or a trail within the entry: `timeout`, `oauth.callbackPort`."""
    message: str
    """The translation, or why the key was dropped and the remedy."""
    lost: bool = False
    becomes: str | None = None
    """The value's new trail within the entry; None if it was dropped."""


def _is_ours(key: str, value: object) -> bool:
    if key == "auth":
        return isinstance(value, dict) and "type" in value
    return key != "trust" or not isinstance(value, bool)


class Translated:
    """An entry of any client in mcpd's keys; if `milliseconds` is None, a time limit's size tells its unit."""

    def __init__(self, entry: Mapping[str, Any], *, milliseconds: bool | None = None) -> None:
        self.entry = dict(entry)
        self.notes: list[Note] = []
        self._milliseconds = milliseconds
        self._is_opencodes = entry.get("type") in (LOCAL, REMOTE)
        for key in entry:
            self._take(key)
        self._command()
        self._words()
        self._references()

    def _take(self, key: str) -> None:
        value = self.entry[key]
        is_ours = key in _OURS and _is_ours(key, value)
        meant = None if is_ours else client_keys.keys_of_servers().get(client_keys.fold(key))
        if is_ours:
            self._own(key)
        elif meant is None:
            if key.startswith(_COMMENT):
                self._drop(key, "ignored: a comment")
        elif meant.may_be_empty and not self.entry[key]:
            self._drop(key, "ignored: it has no effect")
        elif meant.becomes:
            self._rename(key, meant.becomes)
        elif meant.limits:
            self._limit(key, meant)
        elif meant.shaped:
            self._shape(key)
        else:
            self._drop(key, meant.lost or meant.ignored, lost=bool(meant.lost))

    def _note(self, key: str, message: str, *, lost: bool = False, becomes: str | None = None) -> None:
        self.notes.append(Note(key=key, message=message, lost=lost, becomes=becomes))

    def _drop(self, key: str, message: str, *, lost: bool = False) -> None:
        del self.entry[key]
        self._note(key, message, lost=lost)

    def _own(self, key: str) -> None:
        value = self.entry[key]
        if key == "type" and value == LOCAL:
            self.entry[key] = "stdio"
            self._note(key, 'understood as "stdio"', becomes=key)
        elif key == "type" and value == REMOTE:
            self._drop(key, "ignored: it follows from the url")
        elif key == "oauth" and isinstance(value, dict):
            self.entry[key] = self._oauth(value, key)

    def _rename(self, key: str, ours: str) -> None:
        value = self.entry[key]
        if value is None:
            self._drop(key, "ignored: it has no effect")
        elif ours == "type" and isinstance(value, dict):  # Continue: the whole entry in one key
            self._drop(key, "understood as its content")
            for inner, each in value.items():
                if self._add(key, inner, each):
                    self._take(inner)
        else:
            if client_keys.fold(key) == "httpurl" and not {"type", "transport"} & self.entry.keys():
                self.entry["type"] = "http"
            self._become(key, ours, value)
            if ours == "type":
                self._own(ours)

    def _become(self, key: str, ours: str, value: object) -> None:
        del self.entry[key]
        present = self.entry.get(ours)
        if isinstance(present, dict) and isinstance(value, dict):
            self.entry[ours] = {**value, **present}
            self._note(key, f"understood as an addition to `{ours}`")
        elif present is not None and present != value:
            self._note(
                key, f"ignored: `{ours}` is there, too, and takes precedence. Keep one of them", lost=True
            )
        else:
            self.entry[ours] = value
            # `disabled` is the opposite: its value is told, too.
            meant = f'"{ours}": {str(value).lower()}' if isinstance(value, bool) else f"`{ours}`"
            self._note(key, f"understood as {meant}", becomes=ours)

    def _add(self, key: str, inner: str, value: object) -> bool:
        if inner in self.entry:
            self._note(below(key, inner), f"ignored: the server has a `{inner}` itself", lost=True)
            return False
        self.entry[inner] = value
        return True

    def _limit(self, key: str, meant: client_keys.ClientKey) -> None:
        value, timeouts = self.entry[key], self.entry.get("timeouts", {})
        # OpenCode's is for the list of tools: 5 s of it would be too short for calls.
        ours = "list" if self._is_opencodes and key == "timeout" else meant.limits
        if isinstance(value, str) and value.isdecimal() and value.isascii():
            value = int(value)
        if not isinstance(timeouts, dict) or ours in timeouts:
            self._drop(key, f"ignored: `timeouts.{ours}` takes precedence. Keep one of them", lost=True)
            return
        amount = ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            if value <= 0:
                self._drop(key, f"ignored: it must be more than 0, as `timeouts.{ours}`", lost=True)
                return
            known = self._milliseconds if meant.milliseconds is None else meant.milliseconds
            in_milliseconds = value >= MILLISECONDS_FROM if known is None else known
            amount = f" of {value:g} {'milliseconds' if in_milliseconds else 'seconds'}"
            value = value / 1000 if in_milliseconds else value
            longer = _LONGER.get(ours, ours)
            if value > getattr(Timeouts(), longer) and camel(longer) not in timeouts:
                timeouts = {**timeouts, camel(longer): value}
        del self.entry[key]
        self.entry["timeouts"] = {**timeouts, ours: value}
        self._note(key, f"understood as `timeouts.{ours}`{amount}", becomes=f"timeouts.{ours}")

    def _shape(self, key: str) -> None:
        value, folded = self.entry[key], client_keys.fold(key)
        made = client_keys.shaped(folded, value)
        if made is None:
            return  # its type is wrong: it stays, and is reported as a key that is not known
        ours, new = made
        self._become(key, ours, self._oauth(new, key) if ours == "oauth" and isinstance(new, dict) else new)
        for each in sorted(value.keys() - {"headers"}) if folded.startswith("request") else ():
            self._note(below(key, each), "ignored: mcpd has no such setting", lost=True)

    def _oauth(self, value: dict[str, Any], key: str) -> dict[str, Any]:
        spellings = {client_keys.fold(theirs): ours for theirs, ours in client_keys.table().oauth.items()}
        found: dict[str, Any] = {}
        for name, each in value.items():
            ours = spellings.get(client_keys.fold(name), name)
            ours = name if ours in value else ours
            found[ours] = each.split() if ours == "scopes" and isinstance(each, str) else each
            if ours != name:
                self._note(below(key, name), f"understood as `oauth.{ours}`", becomes=f"oauth.{ours}")
        return found

    def _command(self) -> None:
        value, args = self.entry.get("command"), self.entry.get("args", [])
        if not isinstance(args, list):
            return
        if isinstance(value, dict) and isinstance(value.get("path"), str):  # Zed
            self._drop("command", "understood as `command`, from its `path` and other members")
            for key, each in value.items():
                self._add("command", "command" if key == "path" else key, each)
            self._command()
            return
        words = value if isinstance(value, list) else client_keys.command_line(value)
        if words and isinstance(words[0], str):
            self.entry |= {"command": words[0], "args": [*words[1:], *args]}
            self._note("command", "understood as `command` and the first of `args`")

    def _words(self) -> None:
        env = self.entry.get("env")
        if isinstance(env, list) and all(isinstance(each, str) and "=" in each for each in env):
            self.entry["env"] = dict(each.split("=", 1) for each in env)
            self._note("env", "understood as an object of names and values")
        for key, kind in (("env", dict), ("headers", dict), ("args", list)):
            value = self.entry.get(key)
            if not isinstance(value, kind):
                continue
            items = dict(enumerate(value, 1)) if isinstance(value, list) else value
            odd = [
                f"number {at}" if kind is list else str(at)
                for at, each in items.items()
                if client_keys.is_plain(each)
            ]
            if odd:
                plain = {at: client_keys.as_text(each) for at, each in items.items()}
                self.entry[key] = list(plain.values()) if kind is list else plain
                self._note(key, f"taken as text: {', '.join(odd)}")

    def _references(self) -> None:
        """Translate references of OpenCode and Gemini CLI, and drop an `envFile` in a workspace."""
        path = self.entry.get("envFile")
        if isinstance(path, str) and _WORKSPACE.search(path):
            message = (
                "not read: mcpd reads variable files before a client connects. Write an absolute path, or the"
                " variables into `env`"
            )
            self._drop("envFile", message, lost=True)
        for key in _TEXTS:
            if key in self.entry:
                seen: list[str] = []
                self.entry[key] = client_keys.referring(self.entry[key], seen)
                if seen:
                    self._note(key, f"understood as references: {', '.join(dict.fromkeys(seen))}")


SERVERS = "mcpServers"

_NAMING = ("categories.*.server", "listen.servers.*")
"""Trails at which a server is named; `*` stands for any member."""

_NAMING_TOOLS = (
    *(f"categories.*.tools.{key}.*" for key in ("includeNames", "includePatterns", "excludePatterns")),
    *(f"profiles.*.{key}.*" for key in ("coreTools", "preload", "excludedTools", "includedOptionalTools")),
    *("profiles.*.permissions.*.match", "categories.*.tools.overrides.keys"),
    "profiles.*.toolDescriptionOverrides.keys",
)
"""Trails at which a tool is named; `keys` means the keys of an object."""

_HOLDING_NAMES = frozenset({SERVERS, "categories", "profiles"})
_HOLDING_NAMES_WITHIN = frozenset({"env", "headers", "overrides", "toolDescriptionOverrides"})
"""Objects whose keys the user chooses."""

_OWN_KEYS = frozenset(
    key for cls in vars(config_model).values() if isinstance(cls, type) and attrs.has(cls) for key in keys(cls)
)

_NOT_IN_PREFIXES = re.compile(r"[^A-Za-z0-9_-]")
"""Matches characters that clients replace by `_` in prefixes of tool names."""


@attrs.define
class Normalized:
    """A configuration in mcpd's form."""

    sections: dict[str, Any] = attrs.field(repr=False)
    notes: list[Fault] = attrs.field(factory=list)
    moved: list[tuple[str, str]] = attrs.field(factory=list)
    """Pairs of a new and a written trail, outer trails first."""

    def written(self, faults: Iterable[Fault]) -> list[Fault]:
        """Give faults the trails at which the user has written the values."""
        return [attrs.evolve(fault, path=self._origin(fault.path)) for fault in faults]

    def _origin(self, trail: str) -> str:
        for ours, theirs in reversed(self.moved):
            if is_within(trail, ours):
                trail = theirs + trail.removeprefix(ours)
        return trail

    def note(self, trail: str, message: str) -> None:
        """Add a remark about a trail of the new form."""
        self.notes.append(Fault(path=self._origin(trail), message=message))


def normalized(raw: Mapping[str, Any]) -> Normalized:
    """Convert any client's decoded file into mcpd's form; faulty values stay."""
    normal = Normalized(dict(raw))
    for key in [key for key in raw if key not in keys(config_model.Config)]:
        remark = "ignored: a comment" if key.startswith(_COMMENT) else client_keys.top_level_keys().get(key)
        if key in client_keys.table().sections:
            _move_section(normal, key)
        elif remark is not None:
            del normal.sections[key]
            normal.note(below(ROOT, key), remark)
    normal.sections = _in_camel_case(normal, normal.sections, ROOT)
    servers = normal.sections.get(SERVERS)
    if isinstance(servers, dict):
        servers = _named(normal, servers)
        normal.sections[SERVERS] = {name: _entry(normal, name, entry) for name, entry in servers.items()}
    return normal


def _in_camel_case(normal: Normalized, value: Any, trail: str, *, named: bool = False) -> Any:
    """Rename mcpd's keys from snake_case; keys in `named` objects are the user's and stay."""
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
            normal.note(trail, 'ignored: in mcpd, write "enabled": false to switch a server off')
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
            normal.moved.append((below(ROOT, SERVERS, name), below(trail, name)))
    normal.sections[SERVERS] = {**found, **ours}


def _named(normal: Normalized, servers: Mapping[str, Any]) -> dict[str, Any]:
    trail = below(ROOT, SERVERS)
    names: dict[str, str] = {}
    used = {name for name in servers if SERVER_NAME.fullmatch(name)}
    for name in servers:
        better = None if name in used else slug(name, used)
        if better is not None:
            used.add(better)
            names[name] = better
            message = f"renamed to '{better}', with this name as its title; in this file both names work"
            normal.note(below(trail, name), message)
            normal.moved.append((below(trail, better), below(trail, name)))
    if names:
        rename_references(normal.sections, names)
    return {
        names.get(name, name): {"title": name, **entry} if name in names and isinstance(entry, dict) else entry
        for name, entry in servers.items()
    }


def rename_references(raw: dict[str, Any], names: Mapping[str, str]) -> None:
    """Rename servers wherever a configuration refers to them."""
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
    naming = _NAMING if "categories" in raw else (*_NAMING, "profiles.*.categories.*")
    for places, change in ((naming, lambda name: names.get(name, name)), (_NAMING_TOOLS, tool)):
        for place in places:
            raw |= _changed(raw, place.split("."), change)


def _changed(value: Any, steps: list[str], change: Callable[[str], str]) -> Any:
    """Copy a value with `change` applied to the texts that `steps` lead to."""
    if not steps:
        return change(value) if isinstance(value, str) else value
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        if step == "keys":
            return {change(key): item for key, item in value.items()}
        return {
            key: _changed(item, rest, change) if step in {"*", key, camel(key)} else item
            for key, item in value.items()
        }
    if isinstance(value, list) and step == "*":
        return [_changed(item, rest, change) for item in value]
    return value


def _entry(normal: Normalized, name: str, entry: object) -> object:
    if not isinstance(entry, dict):
        return entry
    trail = below(ROOT, SERVERS, name)
    found = Translated(entry)
    normal.moved += [(f"{trail}.{note.becomes}", f"{trail}.{note.key}") for note in found.notes if note.becomes]
    for note in found.notes:
        normal.note(f"{trail}.{note.key}", note.message)
    return found.entry
