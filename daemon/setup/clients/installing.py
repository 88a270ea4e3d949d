"""Installs mcpd into the text of a client's file, and keeps records for the undo; texts are kept by hash."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

import attrs
import msgspec

from daemon.documents import files
from daemon.documents.edited import EditedText, Trail, value_at
from daemon.documents.files import DocumentError
from daemon.documents.formats import Format, read_document
from daemon.errors import McpdError
from daemon.host import private_files
from daemon.setup.clients.programs import OWN_NAME, ClientPlace, Known


class NoProgram(McpdError):
    """There is no `mcpd` that can be started; the text gives the remedy."""


def own_command(called: str) -> str:
    """The absolute path of this `mcpd`; links stay: an upgrade changes their targets. Raises NoProgram."""
    named, beside = Path(called), Path(sys.executable).with_name(OWN_NAME)
    if named.name == OWN_NAME and named.is_file():
        return str(named.absolute())
    found = str(beside) if beside.is_file() else shutil.which(OWN_NAME)
    if found is None:
        raise NoProgram("there is no program `mcpd` next to this interpreter or on PATH: install mcpd first")
    return str(Path(found).absolute())


def is_own(entry: object) -> bool:
    """Whether a client's entry runs `mcpd connect`, at any path or by a runner (`uvx … mcpd connect`)."""
    words = command_line(entry)
    return (OWN_NAME, "connect") in pairwise([PurePath(word).name for word in words[:1]] + words[1:])


def command_line(entry: object) -> list[str]:
    """The words of an entry's command line, in any client's form."""
    if not isinstance(entry, dict):
        return []
    return [*_words(entry.get("command", entry.get("cmd"))), *_words(entry.get("args"))]


def _words(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            yield from (word for word in value if isinstance(word, str))
        case {"path": str(path), **more}:
            yield path
            yield from _words(more.get("args"))


_NAME = "name"


@attrs.frozen
class NamedEntry:
    """A server in a client's file, by name."""

    trail: tuple[str, ...]
    """Leads to the servers; `trail` and `listed` mean the same as in `ClientPlace`."""
    name: str
    listed: bool = False
    ours: str = attrs.field(default="", eq=False)
    """In a record: mcpd's name of the server; empty if unknown, as in records of mcpd 0.1.0."""

    def entry(self, value: object) -> object:
        """The server's entry in a decoded file; None without one."""
        place = self.place(value)
        return None if place is None else value_at(value, place)

    def place(self, value: object) -> Trail | None:
        """The trail of the server's entry in a decoded file; None without one."""
        servers = value_at(value, self.trail)
        if isinstance(servers, list):
            named = (index for index, item in enumerate(servers) if _named(item) == self.name)
            index = next(named, None)
            return None if index is None else (*self.trail, index)
        return (*self.trail, self.name) if isinstance(servers, dict) and self.name in servers else None

    def put(self, document: EditedText, entry: Mapping[str, Any]) -> None:
        """Set or replace the entry. Raises DocumentError if a parent is not an object."""
        value = document.value()
        written = {_NAME: self.name, **entry} if self.listed else dict(entry)
        place = self.place(value)
        if place is not None:
            document.put(place, written)
        elif not self.listed:
            document.put((*self.trail, self.name), written)
        elif isinstance(servers := value_at(value, self.trail), list) and servers:
            document.put((*self.trail, len(servers)), written)
        else:
            document.put(self.trail, [written])

    def remove(self, document: EditedText) -> None:
        """Remove the entry, if it exists."""
        place = self.place(document.value())
        if place is not None:
            document.remove(place)


def members(value: object, trail: tuple[str, ...], *, listed: bool) -> list[NamedEntry]:
    """The servers at a trail in a decoded file."""
    servers = value_at(value, trail)
    names = [_named(item) for item in servers] if isinstance(servers, list) else servers
    # What is neither holds no servers, whatever it is.
    found = names if isinstance(names, dict | list) else ()
    return [NamedEntry(trail, name, listed) for name in found if isinstance(name, str)]


def _named(item: object) -> str | None:
    name = item.get(_NAME) if isinstance(item, dict) else None
    return name if isinstance(name, str) else None


WITHOUT = "--without"


def left_out(entry: object) -> set[str]:
    """The servers that an entry of mcpd hides."""
    return {name for option, name in pairwise(command_line(entry)) if option == WITHOUT}


LAUNCH = frozenset({
    "args", "bearer_token_env_var", "cmd", "command", "cwd", "env", "envFile", "env_http_headers", "env_keys",
    "env_vars", "environment", "envs", "headers", "httpUrl", "http_headers", "requestOptions", "serverUrl",
    "transport", "type", "uri", "url",
})  # fmt: skip
"""Keys of all clients that say how a server is started or reached; other keys say how clients use it."""


def launched(entry: object) -> dict[str, Any]:
    """The part of an entry that says how its server is started or reached."""
    return {key: value for key, value in entry.items() if key in LAUNCH} if isinstance(entry, dict) else {}


@attrs.frozen(kw_only=True)
class Installation:
    """The options of an installation."""

    command: str
    args: tuple[str, ...] = ("connect",)
    surface: str | None = None
    """The surface of the shared entry; None lets mcpd choose."""
    keep: bool = False
    """Whether the client keeps its own entries of servers that mcpd has."""
    one_to_one: bool = False
    """Whether each server keeps an entry, which goes through mcpd."""
    apart: frozenset[str] = frozenset()
    """Servers that get their own entry besides the shared one."""

    @property
    def shared(self) -> tuple[str, ...]:
        """The arguments of the shared entry."""
        surface = ("--surface", self.surface) if self.surface else ()
        return (*self.args, *surface, *(word for name in sorted(self.apart) for word in (WITHOUT, name)))


@attrs.frozen(kw_only=True)
class Rewritten:
    """A file's text (None: no file) after mcpd was put in or taken out, and the outcome for the servers."""

    text: str | None = attrs.field(repr=False)
    members: tuple[NamedEntry, ...] = ()
    """All servers whose entries were changed by putting mcpd in."""
    taken: tuple[str, ...] = ()
    """Servers whose entries were removed or rewritten, because mcpd has them."""
    left: tuple[str, ...] = ()
    """Servers that mcpd does not have."""
    back: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Servers that do not come back, because the file has other servers of these names."""
    exact: bool = False
    """Whether the file gets back the bytes that it had before mcpd."""


def put_in(
    text: str, places: Sequence[ClientPlace], into: ClientPlace | None, wanted: Installation, known: Known
) -> Rewritten:
    """Install mcpd into a file's text at `into`; None: into another file. Raises ConfigError, DocumentError."""
    document = read_document(text, places[0].form, source=str(places[0].path))
    changed, taken, left = list[NamedEntry](), list[str](), list[str]()
    for place in () if wanted.keep else places:
        for member in members(document.value(), place.trail, listed=place.listed):
            entry = member.entry(document.value())
            name = known(place, member.name, entry)
            if name is None:
                left.append(member.name)
                continue
            taken.append(member.name)
            changed.append(attrs.evolve(member, ours=name))
            if wanted.one_to_one or name in wanted.apart:
                args = (*wanted.args, "--server", name)
                _rewrite(document, member, place.shape.write(wanted.command, args))
            else:
                member.remove(document)
    if into is not None and not wanted.one_to_one:
        own = NamedEntry(into.trail, OWN_NAME, into.listed)
        if own.entry(document.value()) is not None:
            raise DocumentError(
                f"{into.path} has a server '{OWN_NAME}' that is not mcpd: rename it there, then try again"
            )
        own.put(document, into.shape.write(wanted.command, wanted.shared))
        changed.append(own)
    return Rewritten(text=document.text(), members=tuple(changed), taken=tuple(taken), left=tuple(left))


def _rewrite(document: EditedText, member: NamedEntry, written: Mapping[str, Any]) -> None:
    place = member.place(document.value())
    entry = member.entry(document.value())
    assert place is not None
    assert isinstance(entry, dict)
    for key, value in written.items():
        # A client's entry may be written with a name or a switch, too; those that are there are the user's.
        if entry.get(key) != value and (key in LAUNCH or key not in entry):
            document.put((*place, key), value)
    for key in entry:
        if key in LAUNCH - written.keys():
            document.remove((*place, key))


def without_own(text: str, places: Sequence[ClientPlace]) -> str:
    """The text without mcpd's entries. Raises ConfigError."""
    document = read_document(text, places[0].form, source=str(places[0].path))
    value = document.value()
    found = [member for place in places for member in members(value, place.trail, listed=place.listed)]
    own = [member for member in found if is_own(member.entry(value))]
    for member in own:
        member.remove(document)
    return document.text() if own else text


VERSION = 1
"""The version of the format of `record.json`."""

_ORIGINAL, _INSTALLED, _RECORD = "original", "installed", "record.json"

_DIGITS = 16
"""Digits of the hash in a file's name, enough for the few texts of a record."""


@attrs.frozen(kw_only=True)
class Record:
    """The changes that mcpd has made in one client file."""

    path: Path
    form: Format
    members: tuple[NamedEntry, ...]
    """All servers whose entries were changed."""
    original: str | None = attrs.field(repr=False)
    """The file's text without mcpd; None if there was no file."""
    installed: str = attrs.field(repr=False)


class Records:
    """The records in a state directory, which the first write creates."""

    def __init__(self, state: Path) -> None:
        self._root = state / "clients"

    def of(self, client: str) -> list[Record]:
        """A client's records, one for each file; broken ones are left out."""
        found = (self._read(directory) for directory in self._directories(client))
        return sorted((record for record in found if record is not None), key=lambda record: record.path)

    def find(self, client: str, path: Path) -> Record | None:
        """A file's record; None if it is missing or broken."""
        return self._read(self.directory(client, path))

    def taken(self, client: str, path: Path) -> list[tuple[NamedEntry, object]]:
        """The servers that mcpd took from a file, with their entries. Raises ConfigError."""
        record = self.find(client, path)
        if record is None or record.original is None:
            return []
        value = read_document(record.original, record.form, source=str(path)).value()
        return [(member, launch) for member in record.members if (launch := launched(member.entry(value)))]

    def rename(self, old: str, new: str) -> None:
        """Keep a server together with its entries in clients when mcpd renames it. Raises DocumentError."""
        for client in self._root.glob("*"):
            for record in self.of(client.name):
                names = [each.ours or each.name for each in record.members]
                if old in names:
                    both = zip(record.members, names, strict=True)
                    now = (attrs.evolve(each, ours=new if name == old else name) for each, name in both)
                    with self.locked():
                        self.keep(client.name, attrs.evolve(record, members=(*now,)))

    def keep(self, client: str, record: Record) -> None:
        """Store a file's record in place of an earlier one. Raises DocumentError."""
        directory = self.directory(client, record.path)
        _make_private(directory)
        written = _Written(
            path=str(record.path),
            format=record.form,
            existed=record.original is not None,
            before=None if record.original is None else _hash(record.original),
            after=_hash(record.installed),
            members=record.members,
        )
        texts = {_RECORD: msgspec.json.format(msgspec.json.encode(written), indent=2).decode() + "\n"}
        for kind, text in ((_INSTALLED, record.installed), (_ORIGINAL, record.original)):
            if text is not None:
                texts[_name(kind, _hash(text))] = text
        # The record comes last: until then the former one counts, whose texts are there.
        for name, text in reversed(texts.items()):
            _write(directory / name, text)
        for each in directory.iterdir():
            if each.name not in texts:
                each.unlink(missing_ok=True)

    def restore(self, client: str, path: Path, former: Record | None) -> None:
        """Store the former record again; without one, delete the present record."""
        if former is None:
            self.forget(client, path)
        else:
            self.keep(client, former)

    def forget(self, client: str, path: Path, *, leave_backup: bool = False) -> None:
        """Delete a record and its texts."""
        directory = self.directory(client, path)
        if leave_backup:
            for each in directory.iterdir():
                if each.name.startswith(f"{_ORIGINAL}-"):
                    each.replace(directory / _ORIGINAL)
                elif each.name != _ORIGINAL:
                    each.unlink(missing_ok=True)
        else:
            shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands from changing records. Raises DocumentError."""
        _make_private(self._root)
        with ExitStack() as held:
            try:
                held.enter_context(private_files.locked(self._root, 0))
            except TimeoutError:
                raise files.DocumentError(
                    "another `mcpd install` or `mcpd uninstall` is running: try again when it is done"
                ) from None
            except OSError as error:
                raise files.DocumentError(
                    f"{self._root}.lock cannot be opened: {error.strerror}. Nothing was changed"
                ) from None
            yield

    def directory(self, client: str, path: Path) -> Path:
        """The directory of a file's record."""
        return self._root / client / hashlib.sha256(os.fsencode(path)).hexdigest()[:16]

    def _directories(self, client: str) -> list[Path]:
        try:
            return list((self._root / client).iterdir())
        except OSError:
            return []

    def _read(self, directory: Path) -> Record | None:
        try:
            written = msgspec.json.decode((directory / _RECORD).read_bytes(), type=_Written)
            installed = _read(directory, _INSTALLED, written.after)
            original = _read(directory, _ORIGINAL, written.before or "") if written.existed else None
        except (OSError, ValueError):
            return None
        if written.version != VERSION:
            return None
        return Record(
            path=Path(written.path),
            form=written.format,
            members=written.members,
            original=original,
            installed=installed,
        )


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as error:
        raise files.DocumentError(
            f"{directory}, where backups are kept, cannot be made: {error.strerror}. Nothing was changed"
        ) from None


def _name(kind: str, digest: str) -> str:
    return f"{kind}-{digest[:_DIGITS]}"


def _read(directory: Path, kind: str, digest: str) -> str:
    text = (directory / _name(kind, digest)).read_bytes().decode()
    if _hash(text) != digest:
        raise ValueError(kind)
    return text


def _write(path: Path, text: str) -> None:
    files.replace(files.look(path), text.encode(), private=True)


class _Written(msgspec.Struct, kw_only=True):
    version: int = VERSION
    path: str
    format: Format
    existed: bool
    before: str | None
    after: str
    members: tuple[NamedEntry, ...]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
