"""The servers that the clients of a machine have, and what is taken of them.

Each is taken once, under a name of its own, without its secrets. Nothing is written here.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from glob import escape
from pathlib import Path, PurePath
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from daemon.config.command_lines import completed, isolating, runners
from daemon.config.config_model import WRITTEN, Share
from daemon.config.names import slug
from daemon.config.parse import parse
from daemon.config.redaction import secrets_of
from daemon.config.translation import SERVERS, translated
from daemon.documents.files import DocumentError, look
from daemon.documents.formats import read_document
from daemon.errors import ConfigError
from daemon.setup.clients.installing import at, is_own, left_out
from daemon.setup.clients.programs import NotTaken
from daemon.setup.drafts import changed
from daemon.setup.moved_secrets import (
    Variables,
    asked_as_variables,
    in_our_words,
    is_read_by_programs,
    refer,
    references,
    with_references,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from daemon.config.command_lines import Advice
    from daemon.config.config_model import Server
    from daemon.config.translation import Note
    from daemon.documents.edited import EditedText
    from daemon.setup.clients.programs import ClientPlace, ClientProgram, Known, Machine
    from daemon.setup.drafts import Draft, Present


MOST_READS = 3
"""How often a file is read that makes no sense and changes meanwhile: a client is writing it."""

_RELATIVE = re.compile(r"\.{1,2}(?:/.*)?", re.DOTALL)


@attrs.frozen(kw_only=True)
class Origin:
    """Where a server was found."""

    program: ClientProgram
    """The client that has it."""
    place: ClientPlace
    """In which of its files."""
    name: str
    """Its name there."""
    left_out: frozenset[str] = frozenset()
    """Of mcpd itself: the servers that it shows nothing of there."""

    @property
    def is_local(self) -> bool:
        """Whether its client has it in one directory alone, for one user."""
        return self.place.scope == "local"

    @property
    def scope(self) -> str:
        """For whom it is there; `local /home/me/app`: for the user in that directory alone."""
        return f"local {self.place.trail[1]}" if self.is_local else self.place.scope


@attrs.frozen(kw_only=True)
class FoundServer:
    """A server that a client has."""

    origin: Origin
    entry: Mapping[str, Any] = attrs.field(repr=False)
    """Its entry in mcpd's keys, secrets and all."""
    notes: tuple[Note, ...] = ()
    """What was understood as something else, or has no meaning here."""


@attrs.frozen(kw_only=True)
class LeftServer:
    """An entry that cannot be taken."""

    origin: Origin
    why: str
    """Why, after its name: `is part of Goose itself`."""


@attrs.frozen(kw_only=True)
class UnreadFile:
    """A client's file that could not be read."""

    program: ClientProgram
    path: Path
    message: str
    """What is wrong with it, with line and column; it names the file."""

    @property
    def in_a_line(self) -> str:
        """The same in one line."""
        return ": ".join(line.strip() for line in self.message.splitlines())


@attrs.frozen(kw_only=True)
class ClientServers:
    """What the clients of a machine have."""

    servers: tuple[FoundServer, ...]
    left: tuple[LeftServer, ...]
    """Entries that cannot be taken."""
    unread: tuple[UnreadFile, ...]
    """Files that could not be read."""
    own: tuple[Origin, ...]
    """Where mcpd itself stands already."""
    looked: Mapping[str, tuple[Path, ...]]
    """The files that were looked for, by client."""
    there: frozenset[Path]
    """Those of them that exist."""


def find(machine: Machine, programs: Iterable[ClientProgram]) -> ClientServers:
    """Every server that these clients have, in the order of clients and files. Blocks: it reads files."""
    servers: list[FoundServer] = []
    left: list[LeftServer] = []
    own: list[Origin] = []
    looked: dict[str, tuple[Path, ...]] = {}
    files = _Files()
    for program in programs:
        places = program.places(machine)
        looked[program.name] = tuple(dict.fromkeys(place.path for place in places))
        for place in places:
            for name, written in files.entries(program, place):
                origin = Origin(program=program, place=place, name=name)
                match read_entry(origin, written, machine):
                    case None:
                        own.append(attrs.evolve(origin, left_out=frozenset(left_out(written))))
                    case str(why):
                        left.append(LeftServer(origin=origin, why=why))
                    case found:
                        servers.append(found)
    return ClientServers(
        servers=tuple(servers),
        left=tuple(left),
        unread=tuple(files.unread),
        own=tuple(own),
        looked=looked,
        there=frozenset(path for path, value in files.read.items() if value is not None),
    )


class _Files:
    """The files that were read: each once, though a client may keep several lists in one."""

    def __init__(self) -> None:
        self.read: dict[Path, object] = {}
        self.unread: list[UnreadFile] = []

    def entries(self, program: ClientProgram, place: ClientPlace) -> Iterator[tuple[str, object]]:
        """The entries at a place, by name; none if there is no such file, or it cannot be read."""
        if place.path not in self.read:
            try:
                self.read[place.path] = _value(place)
            except (ConfigError, DocumentError) as error:
                # Empty, not missing: it is there, and is named once.
                self.read[place.path] = {}
                self.unread.append(UnreadFile(program=program, path=place.path, message=str(error)))
        value = at(self.read[place.path], place.trail)
        if place.listed and isinstance(value, list):
            yield from ((_name_of(item, number), item) for number, item in enumerate(value, 1))
        elif isinstance(value, dict) and not place.listed:
            yield from ((str(name), item) for name, item in value.items())
        elif value is not None:
            expected = "a list" if place.listed else "an object"
            message = f"{place.path}: {'.'.join(place.trail)} is not {expected}, so its servers were not read"
            self.unread.append(UnreadFile(program=program, path=place.path, message=message))


def _name_of(item: object, number: int) -> str:
    named = item.get("name") or item.get("uses") if isinstance(item, dict) else None
    return str(named or f"number {number}")


def _value(place: ClientPlace) -> object:
    """What a file says; None if there is none.

    Raises:
        ConfigError: it is not written in its format.
        DocumentError: it cannot be read.
    """
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
    """A client's entry in mcpd's keys, or why it cannot be taken; None if it is mcpd's own."""
    if not isinstance(written, dict):
        return f"is not written as {origin.program.title} writes servers: it is no object"
    shape = origin.place.shape
    try:
        read = shape.read({key: in_our_words(value, key, shape.refers) for key, value in written.items()})
        if not isinstance(read, NotTaken) and _is_sandboxed(written) and origin.name not in machine.unsandboxed:
            read = NotTaken(
                why="runs in a sandbox, which mcpd does not have: it stays there. To have mcpd run it without,"
                f" name it: `mcpd import --write --unsandboxed {quote(origin.name)}`"
            )
        if isinstance(read, NotTaken):
            return read.why
        meant = translated(read, milliseconds=shape.milliseconds)
    except (AttributeError, TypeError, ValueError):
        # Values of other types than documented; which they are, the client itself says best.
        return f"is not written as {origin.program.title} writes servers"
    entry: dict[str, Any] = asked_as_variables(meant.entry)
    command, args = entry.get("command"), entry.get("args", [])
    if not isinstance(command, str) and not isinstance(entry.get("url"), str):
        return "has neither a command nor a url"
    if isinstance(command, str) and isinstance(args, list):
        if is_own(entry):
            return None
        if (directory := _directory(origin.place, entry, machine)) is not None:
            entry["cwd"] = directory
    if origin.is_local:
        entry = _for_directory(entry, origin.place.trail[1], machine)
    return FoundServer(origin=origin, entry=entry, notes=meant.notes)


def _is_sandboxed(written: Mapping[str, Any]) -> bool:
    return bool(written.get("sandboxEnabled", written.get("sandbox")))


def _for_directory(entry: dict[str, Any], directory: str, machine: Machine) -> dict[str, Any]:
    """The entry of a server that a client has in one directory alone."""
    runs = isinstance(entry.get("command"), str) and isinstance(entry.get("args", []), list)
    made = _divided(entry, directory, machine) if runs else entry
    return {**made, "workspaces": [escape(os.path.realpath(directory))]}


def _divided(entry: dict[str, Any], directory: str, machine: Machine) -> dict[str, Any]:
    """The entry of such a server as it may be had in other directories, too.

    Each directory gets an instance of its own, and what it is given of that directory is the directory that its
    client works in (`${workspace}`). One that runs or reads a file of there is divided by nobody.
    """
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
    """The directory that a server of a project needs to be started in; None if it makes no difference.

    A client starts it in the project, mcpd in the home directory.
    """
    cwd = str(entry.get("cwd") or "")
    if place.scope in {"user", "local"} or cwd.startswith(("/", "~", "${")):
        return None
    words = [entry["command"], *(str(word).rpartition("=")[2] for word in entry.get("args", []))]
    return str(machine.directory / cwd) if cwd or any(map(_RELATIVE.fullmatch, words)) else None


_REFERENCE = re.compile(r"(\$\$\{)|\$\{:-([^}]*)\}|\$\{(?:env:)?([A-Za-z_]\w*)\}", re.ASCII)
T = TypeVar("T")

_UNASKED = frozenset({"-y", "--yes", "-q", "--quiet"})
"""Options of npx and others that change nothing for a server: it has nobody to ask."""

_NEWEST = "@latest"
"""What a package without a version is, too."""


@attrs.frozen(kw_only=True)
class ConfiguredServers:
    """The servers of mcpd's configuration."""

    servers: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Their entries, as written."""
    variables: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """What `${NAME}` stands for in them."""

    def lookup(self, program: ClientProgram, machine: Machine) -> Known:
        """Which of a client's servers mcpd has; one that cannot run counts only if it is off there, too."""
        there = dict[tuple[object, ...], tuple[str, bool]]()
        for name, written in self.servers.items():
            if isinstance(written, dict):
                entry = translated(written).entry
                runs = all(needed in self.variables for needed in references(entry))
                is_on = runs and entry.get("enabled") is not False
                there |= dict.fromkeys(_placed_identities(entry, self.variables), (name, is_on))

        def known(place: ClientPlace, name: str, written: object) -> str | None:
            read = read_entry(Origin(program=program, place=place, name=name), written, machine)
            if not isinstance(read, FoundServer):
                return None
            ours, is_on = _same_as(read.entry, there, self.variables) or (None, False)
            return ours if is_on or read.entry.get("enabled") is False else None

        return known


def _placed_identities(entry: Mapping[str, Any], variables: Mapping[str, str]) -> list[tuple[object, ...]]:
    """The identities of an entry for `_same_as`: in each directory, by the values of variables and by names."""
    kinds = identity(entry, None), identity(entry, variables)
    return [(where, kind) for where in entry.get("workspaces") or [None] for kind in kinds]


def _same_as(
    entry: Mapping[str, Any], there: Mapping[tuple[object, ...], T], variables: Mapping[str, str]
) -> T | None:
    """What is there for a client's entry, for all or in its directory; by names if variables are not set."""
    kinds = [identity(entry, variables)]
    if any(name not in variables for name in references(entry)):
        kinds.append(identity(entry, None))
    keys = [(where, kind) for kind in kinds for where in (None, *entry.get("workspaces", ()))]
    return next((there[key] for key in keys if key in there), None)


def identity(entry: Mapping[str, Any], variables: Mapping[str, str] | None) -> tuple[object, ...]:
    """What two entries have in common that start the same program in the same way, or reach the same address.

    Other versions, other arguments or their order, other tokens and other directories make another server.
    Limits, descriptions and switches do not. It holds secrets, so it is never to be shown.

    Args:
        entry: in mcpd's keys.
        variables: what `${NAME}` stands for. One that is not among them is equal to itself only, and to
            `${SERVER__NAME}`, under which mcpd keeps it; None: so is each.
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
    def said(found: re.Match[str]) -> str:
        brace, plain, name = found.groups()
        if name is None:
            return "${" if brace else plain
        # No value can hold a NUL.
        unset = f"\0{name.rpartition('__')[2]}"
        return unset if variables is None else variables.get(name, unset)

    return _REFERENCE.sub(said, text)


def _plain(words: Sequence[str]) -> list[str]:
    """A command line without what only differs by who wrote it."""
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
"""What stands for a variable that is set nowhere while an entry is judged: too short to be a secret."""

_UNNAMED = "server"
"""What a server is called of whose name nothing can be kept."""


@attrs.frozen(kw_only=True)
class PlannedServer:
    """A server as mcpd would have it."""

    name: str
    """Its name in mcpd; of one that is there already, the name that it has there."""
    entry: Mapping[str, Any]
    """Its entry, with references in place of secrets; of one that is there already, whether it is enabled."""
    origins: tuple[Origin, ...]
    """Where it was found; all of them start the same."""
    secrets: tuple[str, ...] = ()
    """The variables that it needs and that are kept for it."""
    missing: tuple[str, ...] = ()
    """Those that are set nowhere: until they are, it is not started."""
    notes: tuple[Note, ...] = ()
    """What its clients say in another way, or what has no meaning here."""
    known: tuple[Advice, ...] = ()
    """What its entry says because it is known of such a server."""
    beside: str | None = None
    """The server of the same name that starts something else: another version, or another token."""
    is_there: bool = False
    """Whether mcpd has it already."""


@attrs.frozen(kw_only=True)
class ImportPlan:
    """What would be added to mcpd's configuration."""

    servers: tuple[PlannedServer, ...]
    """Each different server once, in the order in which they were found."""
    left: tuple[LeftServer, ...]
    """Entries that cannot be taken, and why."""
    variables: Mapping[str, str] = attrs.field(repr=False)
    """What is to be written to the file `env`."""

    @property
    def added(self) -> tuple[PlannedServer, ...]:
        """The servers that mcpd does not have yet."""
        return tuple(server for server in self.servers if not server.is_there)


def plan(
    findings: ClientServers,
    *,
    written: Mapping[str, Any],
    kept: Mapping[str, str],
    environ: Mapping[str, str],
    source: Path,
) -> ImportPlan:
    """What would be taken of these findings. Reads the files that entries refer to, and writes nothing.

    Args:
        findings: what clients have.
        written: the servers of mcpd's configuration.
        kept: the variables of the file `env` beside it.
        environ: the environment, which counts more.
        source: the configuration, from whose directory relative paths start.
    """
    planning = _Planning(written, Variables(known={**kept, **environ}), environ, source)
    same: dict[tuple[object, ...], list[FoundServer]] = {}
    for server in findings.servers:
        same.setdefault(identity(server.entry, planning.variables.known), []).append(server)
    for servers in same.values():
        planning.take(servers)
    return ImportPlan(
        servers=tuple(planning.servers),
        left=(*findings.left, *planning.left),
        variables=planning.variables.kept,
    )


class _Planning:
    """A plan that is being made."""

    def __init__(
        self, written: Mapping[str, Any], variables: Variables, environ: Mapping[str, str], source: Path
    ) -> None:
        self.servers: list[PlannedServer] = []
        self.left: list[LeftServer] = []
        self.variables = variables
        self._environ = environ
        self._source = source
        self._names: set[str] = set(written)
        self._there = {
            key: (name, taken.get("enabled") is not False)
            for name, taken in (
                (name, translated(entry).entry) for name, entry in written.items() if isinstance(entry, dict)
            )
            for key in _placed_identities(taken, variables.known)
        }
        self._planned: dict[tuple[object, ...], int] = {}
        """Where in `servers` each stands."""

    def missing(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        """The variables that an entry needs and that are set nowhere."""
        return tuple(each for each in references(entry) if each not in self.variables.known)

    def take(self, servers: Sequence[FoundServer]) -> None:
        """Take over servers that are the same one, as far as mcpd does not have it."""
        known = [(_same_as(server.entry, self._there, self.variables.known), server) for server in servers]
        for there in dict.fromkeys(each for each, _ in known if each is not None):
            origins = tuple(server.origin for each, server in known if each == there)
            name, is_on = there
            entry = {"enabled": is_on}
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
        key = identity(taken, self.variables.known)
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
            entry = with_references(taken, name, secrets_of(server)[0], self.variables)
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
        self,
        name: str,
        title: str,
        entry: dict[str, Any],
        origins: tuple[Origin, ...],
        notes: tuple[Note, ...],
    ) -> PlannedServer:
        missing = self.missing(entry)
        for each in references(entry):
            # A service does not have what is exported in this shell.
            if each in self._environ and not is_read_by_programs(each):
                entry = refer(entry, each, self.variables.keep(name, each, self._environ[each]))
        needed = [each for each in references(entry) if not is_read_by_programs(each)]
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
        """The server of an entry, whatever the variables stand for that are set nowhere.

        Raises:
            ConfigError: it has faults.
        """
        environ = {**dict.fromkeys(references(entry), _UNSET), **self.variables.known}
        text = json.dumps({"mcpServers": {name: {**entry, "enabled": True}}})
        return parse(text, source=str(self._source), environ=environ).mcp_servers[name]


def _says_nothing(key: str, value: object) -> bool:
    """Whether a client writes this only because it writes it of every server."""
    return value in ({}, []) or [key, value] in (["type", "stdio"], ["enabled", True])


def drafted(present: Present, plan: ImportPlan, environ: Mapping[str, str]) -> Draft:
    """Both files with what was planned, if mcpd can run with them; raises what `changed` does."""

    def add(document: EditedText) -> None:
        for server in plan.added:
            document.put([SERVERS, server.name], dict(server.entry))

    missing = {name for server in plan.added for name in server.missing}
    return changed(present, add, plan.variables, environ, missing)
