"""Finds the servers of clients, and plans their import: each server once, and without secrets."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from glob import escape
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

import attrs

from daemon.config.command_lines import Advice, completed, isolating, runners, without_pins
from daemon.config.config_model import WRITTEN, Server, Share
from daemon.config.names import slug
from daemon.config.parse import parse
from daemon.config.redaction import secrets_of
from daemon.config.translation import SERVERS, Note, Translated
from daemon.documents.edited import EditedText, value_at
from daemon.documents.files import DocumentError, look
from daemon.documents.formats import read_document
from daemon.errors import ConfigError
from daemon.setup.clients.confining import asks_for_sandbox, refused, relative_paths, with_common, with_sandbox
from daemon.setup.clients.installing import NamedEntry, Records, command_line, is_own, launched, left_out
from daemon.setup.clients.programs import PROGRAMS, ClientPlace, ClientProgram, Known, Machine
from daemon.setup.drafts import Draft, Present, changed, in_keyring, known_values
from daemon.setup.moved_secrets import (
    Variables,
    asked_as_variables,
    in_our_words,
    is_read_by_programs,
    refer,
    references,
    with_references,
)

MOST_READS = 3
"""Reads of a broken file that changes meanwhile, because the client is writing it."""

_RELATIVE = re.compile(r"\.{1,2}(?:/.*)?", re.DOTALL)


@attrs.frozen(kw_only=True)
class Origin:
    """The place where a server was found."""

    program: ClientProgram
    place: ClientPlace
    name: str
    words: tuple[str, ...] = ()
    """The command line of mcpd's own entry; else empty."""

    @property
    def left_out(self) -> frozenset[str]:
        """The servers that mcpd's own entry hides."""
        return frozenset(left_out({"command": [*self.words]}))

    @property
    def is_local(self) -> bool:
        """Whether the entry is for one user in one directory."""
        return self.place.scope == "local"

    @property
    def scope(self) -> str:
        """`user`, or a scope with its directory, as `local /home/me/app`."""
        return f"local {self.place.trail[1]}" if self.is_local else self.place.scope


@attrs.frozen(kw_only=True)
class FoundServer:
    """A server found in a client."""

    origin: Origin
    entry: Mapping[str, Any] = attrs.field(repr=False)
    """The entry in mcpd's keys, with its secrets."""
    notes: tuple[Note, ...] = ()


@attrs.frozen(kw_only=True)
class LeftServer:
    """An entry that cannot be imported."""

    origin: Origin
    why: str


@attrs.frozen(kw_only=True)
class UnreadFile:
    """A client's file that cannot be read."""

    program: ClientProgram
    path: Path
    message: str
    """Names the file, and if possible line and column."""

    @property
    def in_a_line(self) -> str:
        """The message as one line."""
        return ": ".join(line.strip() for line in self.message.splitlines())


@attrs.define
class ClientServers:
    """Everything found in clients' files, each of which is read once."""

    servers: list[FoundServer] = attrs.field(factory=list)
    left: list[LeftServer] = attrs.field(factory=list)
    unread: list[UnreadFile] = attrs.field(factory=list)
    own: list[Origin] = attrs.field(factory=list)
    """Entries of mcpd itself."""
    looked: dict[str, list[Path]] = attrs.field(factory=dict)
    """The files of each client, including those that do not exist."""
    _read: dict[Path, object] = attrs.field(factory=dict, repr=False)

    @property
    def there(self) -> frozenset[Path]:
        """The files in `looked` that exist."""
        return frozenset(path for path, value in self._read.items() if value is not None)

    def look(self, program: ClientProgram, machine: Machine) -> None:
        """Add what is in a client's files. Blocks."""
        places = program.places(machine)
        self.looked[program.name] = [*dict.fromkeys(place.path for place in places)]
        for place in places:
            for name, written in self._entries(program, place):
                origin = Origin(program=program, place=place, name=name)
                match read_entry(origin, written, machine):
                    case None:
                        self.own.append(attrs.evolve(origin, words=tuple(command_line(written))))
                    case str(why):
                        self.left.append(LeftServer(origin=origin, why=why))
                    case found:
                        self.servers.append(found)

    def _entries(self, program: ClientProgram, place: ClientPlace) -> Iterator[tuple[str, object]]:
        if place.path not in self._read:
            try:
                self._read[place.path] = _value(place)
            except (ConfigError, DocumentError) as error:
                # Empty, not missing: it is there, and is named once.
                self._read[place.path] = {}
                self.unread.append(UnreadFile(program=program, path=place.path, message=str(error)))
        value = value_at(self._read[place.path], place.trail)
        if place.listed and isinstance(value, list):
            yield from ((_name_of(item, number), item) for number, item in enumerate(value, 1))
        elif isinstance(value, dict) and not place.listed:
            common = value_at(self._read[place.path], (*place.trail[:-1], "sandbox"))
            yield from ((str(name), with_common(item, common)) for name, item in value.items())
        elif value is not None:
            expected = "a list" if place.listed else "an object"
            message = f"{place.path}: {'.'.join(place.trail)} is not {expected}, so its servers were not read"
            self.unread.append(UnreadFile(program=program, path=place.path, message=message))


def find(machine: Machine, programs: Iterable[ClientProgram]) -> ClientServers:
    """All servers of these clients, in the order of clients and files. Blocks."""
    found = ClientServers()
    for program in programs:
        found.look(program, machine)
    return found


def found_clients(machine: Machine) -> list[dict[str, Any]]:
    """The clients on this machine, whether each has mcpd, and the servers that each starts itself. Blocks."""
    found, rows = find(machine, PROGRAMS.values()), list[dict[str, Any]]()
    origins = [*(each.origin for each in found.servers), *(each.origin for each in found.left)]
    for program in PROGRAMS.values():
        row = {
            "client": program.name,
            "title": program.title,
            "mcpd": [{**_placed(each), **_options_of(each)} for each in found.own if each.program is program],
            "servers": [_placed(each) for each in origins if each.program is program],
            "unread": [each.in_a_line for each in found.unread if each.program is program],
        }
        if row["mcpd"] or row["servers"] or row["unread"] or program.is_on(machine):
            rows.append(row)
    return rows


def _placed(origin: Origin) -> dict[str, Any]:
    return {"name": origin.name, "file": str(origin.place.path), "scope": origin.scope}


def _options_of(origin: Origin) -> dict[str, str | None]:
    given = dict(pairwise(word for each in origin.words for word in each.split("=", 1)))
    return {name: given.get(f"--{name}") for name in ("profile", "surface", "server")}


def _name_of(item: object, number: int) -> str:
    named = item.get("name") or item.get("uses") if isinstance(item, dict) else None
    return str(named or f"number {number}")


def _value(place: ClientPlace) -> object:
    for attempt in range(1, MOST_READS + 1):
        found = look(place.path)
        if found.content is None:
            return None
        try:
            return read_document(found.text() or "", place.form, source=str(place.path)).value()
        except (ConfigError, DocumentError):
            if attempt == MOST_READS or look(place.path).identity == found.identity:
                raise
    raise AssertionError


def read_entry(origin: Origin, written: object, machine: Machine) -> FoundServer | str | None:
    """Convert a client's entry to mcpd's keys, or say why it cannot be imported; None for mcpd's own entry."""
    if not isinstance(written, dict):
        return f"is not a server in the form of {origin.program.title}: it is not an object"
    shape = origin.place.shape
    try:
        read = shape.read({key: in_our_words(value, key, shape.refers) for key, value in written.items()})
        if isinstance(read, str):
            return read
        meant = Translated(read, milliseconds=shape.milliseconds)
        by_project = origin.place.scope not in {"user", "local"}
        is_out = origin.name in machine.unsandboxed
        entry, notes = with_sandbox(meant.entry, by_project=by_project, unsandboxed=is_out)
        # The configuration's default counts: a project's author does not say how far its servers are trusted.
        entry.pop("trust", None)
        if not by_project:
            entry = machine.published(origin.name, entry)
    except (AttributeError, TypeError, ValueError):
        # Values of other types than documented; which they are, the client itself says best.
        return f"is not a server in the form of {origin.program.title}"
    entry = asked_as_variables(entry)
    command, args = entry.get("command"), entry.get("args", [])
    if why := refused(origin.name, entry, machine):
        return why
    if isinstance(command, str) and isinstance(args, list):
        if is_own(entry):
            return None
        if (directory := _directory(origin.place, entry, machine)) is not None:
            entry["cwd"] = directory
    if origin.is_local:
        entry = _for_directory(entry, origin.place.trail[1], machine)
    return FoundServer(origin=origin, entry=entry, notes=(*meant.notes, *notes))


def _for_directory(entry: dict[str, Any], directory: str, machine: Machine) -> dict[str, Any]:
    runs = isinstance(entry.get("command"), str) and isinstance(entry.get("args", []), list)
    made = _divided(entry, directory, machine) if runs else entry
    return {**made, "workspaces": [escape(os.path.realpath(directory))]}


def _divided(entry: dict[str, Any], directory: str, machine: Machine) -> dict[str, Any]:
    """Replace the directory by ${workspace}, unless the server runs or reads a file there."""
    words = [str(entry["command"]), *(str(word).rpartition("=")[2] for word in entry.get("args", []))]
    env = {name: str(value) for name, value in (entry.get("env") or {}).items()}
    given = [word for word in (*words, *env.values()) if word == directory or word.startswith(f"{directory}/")]
    relative = [word for word in words if _RELATIVE.fullmatch(word)]
    cwd = str(Path(directory, str(entry.get("cwd") or "."))) if relative or entry.get("cwd") else None
    inside = [Path(cwd or directory, word) for word in (*given, *relative)]
    if directory in {"/", str(machine.home)} or not all(os.path.isdir(path) for path in inside):  # noqa: PTH112
        return {**entry, "cwd": cwd} if cwd else entry

    def moved(word: object) -> str:
        return re.sub(rf"(?:^|(?<==)){re.escape(directory)}(?=/|$)", WRITTEN, str(word))

    made = {**entry, "share": str(Share.WORKSPACE)}
    made |= {"args": [moved(word) for word in entry["args"]]} if entry.get("args") else {}
    made |= {"env": {name: moved(value) for name, value in env.items()}} if env else {}
    return {**made, "cwd": moved(cwd)} if cwd else made


def _directory(place: ClientPlace, entry: Mapping[str, Any], machine: Machine) -> str | None:
    """The directory in which a project's server must start; None if the home directory will do."""
    cwd = str(entry.get("cwd") or "")
    if place.scope in {"user", "local"} or cwd.startswith(("/", "~", "${")):
        return None
    words = [entry["command"], *(str(word).rpartition("=")[2] for word in entry.get("args", []))]
    words += relative_paths(entry)
    return str(machine.directory / cwd) if cwd or any(map(_RELATIVE.fullmatch, words)) else None


_REFERENCE = re.compile(r"(\$\$\{)|\$\{:-([^}]*)\}|\$\{(?:env:)?([A-Za-z_]\w*|keyring:[\w.-]+)\}", re.ASCII)

_UNASKED = frozenset({"-y", "--yes", "-q", "--quiet"})
"""Options that answer a program's questions: no user is there to answer them."""

_NEWEST = "@latest"


@attrs.frozen(kw_only=True)
class ConfiguredServers:
    """The servers in mcpd's configuration."""

    servers: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    variables: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def lookup(self, program: ClientProgram, machine: Machine, records: Records | None = None) -> Known:
        """Match a client's server, also by `records`. If mcpd's server cannot run, the client's must be off."""
        there, on = _by_identity(self.servers, self.variables), dict[str, bool]()
        taken = cache(lambda path: records.taken(program.name, path) if records else [])
        for name, entry in _translated(self.servers).items():
            runs = all(needed in self.variables for needed in references(entry))
            on[name] = runs and entry.get("enabled") is not False

        def known(place: ClientPlace, name: str, written: object) -> str | None:
            read = read_entry(Origin(program=program, place=place, name=name), written, machine)
            if not isinstance(read, FoundServer):
                return None
            was = NamedEntry(place.trail, name, place.listed), launched(written)
            # A pin or an upgrade changes what mcpd runs, not whose server it is.
            named = (each.ours or each.name for each, launch in taken(place.path) if (each, launch) == was)
            ours = _same_as(read.entry, there, self.variables) or next(named, None)
            if ours not in on:
                return None
            if asks_for_sandbox(read.entry) and not asks_for_sandbox(self.servers[ours]):
                return None
            return ours if on[ours] or read.entry.get("enabled") is False else None

        return known


def _translated(servers: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    return {name: Translated(each).entry for name, each in servers.items() if isinstance(each, dict)}


def _by_identity(servers: Mapping[str, object], variables: Mapping[str, str]) -> dict[tuple[object, ...], str]:
    """The names of servers by their identities; a pinned one also counts as the same without a version."""
    exact = _translated(servers)
    bare = {name: _without_pins(entry) for name, entry in exact.items()}
    both = [*bare.items(), *exact.items()]
    return {key: name for name, entry in both for key in _placed_identities(entry, variables)}


def _without_pins(entry: dict[str, Any]) -> dict[str, Any]:
    words = [entry.get("command"), *(args if isinstance(args := entry.get("args"), list) else [])]
    if not all(isinstance(each, str) for each in words):
        return entry
    return {**entry, "args": without_pins(words[0], words[1:])}


def _placed_identities(entry: Mapping[str, Any], variables: Mapping[str, str]) -> list[tuple[object, ...]]:
    """An entry's identities in each directory, by the values of variables and by their names."""
    kinds = identity(entry, None), identity(entry, variables)
    return [(where, kind) for where in entry.get("workspaces") or [None] for kind in kinds]


def _same_as(
    entry: Mapping[str, Any], there: Mapping[tuple[object, ...], str], variables: Mapping[str, str]
) -> str | None:
    """The entry's match, without a directory or in one of its own; variables that are not set match by name."""
    kinds = [identity(entry, variables)]
    if any(name not in variables for name in references(entry)):
        kinds.append(identity(entry, None))
    keys = [(where, kind) for kind in kinds for where in (None, *entry.get("workspaces", ()))]
    return next((there[key] for key in keys if key in there), None)


def identity(entry: Mapping[str, Any], variables: Mapping[str, str] | None) -> tuple[object, ...]:
    """A value, never to be shown, that is the same for entries with the same program or address.

    Versions, arguments and their order, tokens and directories make a difference; limits, descriptions and
    switches do not.
    """
    url = entry.get("url")
    if isinstance(url, str) and not entry.get("command"):
        headers = {name.lower(): value for name, value in _resolved(entry.get("headers"), variables)}
        return ("url", _with_values(url, variables).rstrip("/"), frozenset(headers.items()))
    given = (word for word in map(str, entry.get("args") or ()) if word not in isolating())
    words = [str(entry.get("command", "")), *given]
    return (
        "command",
        tuple(_plain([_with_values(word, variables) for word in words])),
        frozenset(_resolved(entry.get("env"), variables)),
        _with_values(str(entry.get("cwd") or ""), variables),
        str(entry.get("envFile") or ""),
    )


def _resolved(members: object, variables: Mapping[str, str] | None) -> list[tuple[str, str]]:
    items = members.items() if isinstance(members, dict) else ()
    return [(str(name), _with_values(str(value), variables)) for name, value in items]


def _with_values(text: str, variables: Mapping[str, str] | None) -> str:
    def value_of(found: re.Match[str]) -> str:
        brace, plain, name = found.groups()
        if name is None:
            return "${" if brace else plain
        # No value can hold a NUL.
        unset = f"\0{name.rpartition('__')[2]}"
        return unset if variables is None else variables.get(name, unset)

    return _REFERENCE.sub(value_of, text)


def _plain(words: Sequence[str]) -> list[str]:
    first, rest = words[0], [*words[1:]]
    if PurePath(first).name not in {runner.words[0] for runner in runners()}:
        return [*words]
    first = PurePath(first).name
    if first == "uv" and rest[:2] == ["tool", "run"]:
        first, rest = "uvx", rest[2:]
    while rest and rest[0] in _UNASKED:
        rest = rest[1:]
    return [first, *(word.removesuffix(_NEWEST) for word in rest[:1]), *rest[1:]]


_UNSET = "x"
"""Stands for a variable that is not set; too short to be a secret."""

_UNNAMED = "server"


@attrs.frozen(kw_only=True)
class PlannedServer:
    """A server that mcpd would add or already has."""

    name: str
    """The name; for an existing server, its name in mcpd."""
    entry: Mapping[str, Any]
    """The entry, with references in place of secrets; for an existing server, only whether it is enabled."""
    origins: tuple[Origin, ...]
    secrets: tuple[str, ...] = ()
    """Variables to store."""
    missing: tuple[str, ...] = ()
    """Variables that are not set, for which the server waits."""
    notes: tuple[Note, ...] = ()
    known: tuple[Advice, ...] = ()
    """Advice written into the entry."""
    beside: str | None = None
    """An existing server of that name with another version or token."""
    is_there: bool = False


class ImportPlan:
    """The servers and variables to add to the configuration; SecretTrouble if a secret cannot be read."""

    def __init__(
        self, findings: ClientServers, present: Present, environ: Mapping[str, str], *, keyring: bool = False
    ) -> None:
        known = known_values(present, environ, keyring_too=keyring)
        self.servers: list[PlannedServer] = []
        """Each server once, in the order in which they were found."""
        self.left = [*findings.left]
        self._variables = Variables(known=known, keyring=keyring)
        self.variables = self._variables.kept
        """Variables to store."""
        self._environ = environ
        self._source = present.config.path.absolute()
        self._names: set[str] = set(present.servers)
        self._there = _by_identity(present.servers, known)
        self._off = {
            name for name, entry in _translated(present.servers).items() if entry.get("enabled") is False
        }
        self._planned: dict[tuple[object, ...], int] = {}
        same: dict[tuple[object, ...], list[FoundServer]] = {}
        for server in findings.servers:
            same.setdefault(identity(server.entry, known), []).append(server)
        for servers in same.values():
            self._take(servers)

    @property
    def added(self) -> tuple[PlannedServer, ...]:
        """The servers that mcpd does not have yet."""
        return tuple(server for server in self.servers if not server.is_there)

    def _missing(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(each for each in references(entry) if each not in self._variables.known)

    def _take(self, servers: Sequence[FoundServer]) -> None:
        """Add one server for several equal ones, unless mcpd has it."""
        known = [(_same_as(server.entry, self._there, self._variables.known), server) for server in servers]
        for name in dict.fromkeys(each for each, _ in known if each is not None):
            origins = tuple(server.origin for each, server in known if each == name)
            entry = {"enabled": name not in self._off}
            self.servers.append(PlannedServer(name=name, entry=entry, origins=origins, is_there=True))
        if left := [server for each, server in known if each is None]:
            self._add(left)

    def _add(self, servers: Sequence[FoundServer]) -> None:
        origins = tuple(server.origin for server in servers)
        on = [server for server in servers if server.entry.get("enabled") is not False] or servers
        # What clients have in some directories alone is for these, unless somebody has the same everywhere.
        first = min(on, key=lambda server: "workspaces" in server.entry)
        where = [each for server in on for each in server.entry.get("workspaces", ())]
        taken = {**first.entry, **({"workspaces": where} if "workspaces" in first.entry else {})}
        key = identity(taken, self._variables.known)
        if (at := self._planned.get(key)) is not None:
            planned = self.servers[at]
            self.servers[at] = attrs.evolve(planned, origins=(*planned.origins, *origins))
            return
        # What most clients call it; of several the first.
        title = Counter(origin.name for origin in origins).most_common(1)[0][0]
        wanted = slug(title) or _UNNAMED
        name = slug(wanted, self._names) or _UNNAMED
        try:
            server = self._as_read(name, taken)
            entry = with_references(taken, name, secrets_of(server)[0], self._variables)
        except ConfigError as error:
            why = f"cannot be used: {'; '.join(fault.message for fault in error.faults)}"
            self.left += [LeftServer(origin=origin, why=why) for origin in origins]
        except ValueError as error:
            self.left += [LeftServer(origin=origin, why=f"cannot be used: {error}") for origin in origins]
        else:
            self._names.add(name)
            self._planned[key] = len(self.servers)
            notes = tuple(dict.fromkeys(note for each in servers for note in each.notes))
            entry, known = completed(entry, server)
            planned = self._server_of(name, title, entry, origins, notes)
            self.servers.append(attrs.evolve(planned, known=known))

    def _server_of(
        self, name: str, title: str, entry: dict[str, Any], origins: tuple[Origin, ...], notes: tuple[Note, ...]
    ) -> PlannedServer:
        missing = self._missing(entry)
        for each in references(entry):
            # A service does not have what is exported in this shell.
            if each in self._environ and not is_read_by_programs(each):
                entry = refer(entry, each, self._variables.keep(name, each, self._environ[each]))
        needed = [each for each in references(entry) if not is_read_by_programs(each)] + in_keyring(entry)
        entry = {key: value for key, value in entry.items() if not _says_nothing(key, value)}
        wanted = slug(title) or _UNNAMED
        if title not in {name, wanted} and title.isprintable():
            entry.setdefault("title", title)
        return PlannedServer(
            name=name,
            entry=entry,
            origins=origins,
            secrets=tuple(each for each in needed if each not in missing),
            missing=missing,
            notes=notes,
            beside=wanted if name != wanted else None,
        )

    def _as_read(self, name: str, entry: Mapping[str, Any]) -> Server:
        environ = {**dict.fromkeys(references(entry), _UNSET), **self._variables.known}
        text = json.dumps({"mcpServers": {name: {**entry, "enabled": True}}})
        return parse(text, source=str(self._source), environ=environ).mcp_servers[name]


def _says_nothing(key: str, value: object) -> bool:
    """Whether a client writes this key into every entry, so that the key means nothing."""
    return value in ({}, []) or [key, value] in (["type", "stdio"], ["enabled", True])


def drafted(present: Present, plan: ImportPlan, environ: Mapping[str, str]) -> Draft:
    """Apply a plan to both files in memory; raises like `changed`."""

    def add(document: EditedText) -> None:
        for server in plan.added:
            document.put([SERVERS, server.name], dict(server.entry))

    missing = {name for server in plan.added for name in server.missing}
    return changed(present, add, plan.variables, environ, missing)
