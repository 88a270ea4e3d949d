"""The servers that the clients of a machine have. Only reads."""

from __future__ import annotations

import os
import re
from glob import escape
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import attrs

from daemon.config.model import WRITTEN, Share
from daemon.config.translation import translated
from daemon.documents.files import DocumentError, look
from daemon.documents.formats import read_document
from daemon.errors import ConfigError
from daemon.setup.clients.installing import at, is_own, left_out
from daemon.setup.clients.programs import NotTaken
from daemon.setup.moved_secrets import asked_as_variables, in_our_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from daemon.config.translation import Note
    from daemon.setup.clients.programs import ClientPlace, ClientProgram, Machine

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
