"""mcpd put into the text of a client's file, in place of servers that mcpd has now, and the records of that.

Under the state directory, `clients/CLIENT/` has a directory for each file: `record.json`, and the texts that
it names by their hashes, `original-HASH` and `installed-HASH`. So a record is replaced in one step: whatever
ends a command, the former one is there or the next. They may hold the client's secrets, so they are the user's
alone (0700, 0600).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from daemon.documents import files
from daemon.documents.files import DocumentError
from daemon.documents.formats import Format, read_document
from daemon.errors import McpdError
from daemon.host import private_files
from daemon.setup.clients.programs import OWN_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daemon.documents.edited import EditedText, Trail
    from daemon.setup.clients.programs import ClientPlace, Known


class NoProgram(McpdError):
    """There is no `mcpd` that others could start; the text says what to do."""


def own_command(called: str) -> str:
    """The absolute path of the `mcpd` that runs, links left as they are: an upgrade changes what they lead to.

    Args:
        called: how it was called: `sys.argv[0]`.

    Raises:
        NoProgram: it was not called as a program, and there is none beside the interpreter or on PATH.
    """
    named, beside = Path(called), Path(sys.executable).with_name(OWN_NAME)
    if named.name == OWN_NAME and named.is_file():
        return str(named.absolute())
    found = str(beside) if beside.is_file() else shutil.which(OWN_NAME)
    if found is None:
        raise NoProgram("there is no program `mcpd` beside this interpreter or on PATH: install mcpd first")
    return str(Path(found).absolute())


def is_own(entry: object) -> bool:
    """Whether a server, as any client writes it, is mcpd itself: `mcpd connect`, wherever the program lies.

    Also behind a runner: `uvx … mcpd connect`.
    """
    words = command_line(entry)
    return (OWN_NAME, "connect") in pairwise([PurePath(word).name for word in words[:1]] + words[1:])


def command_line(entry: object) -> list[str]:
    """The words of a server's command line, as any client writes it."""
    if not isinstance(entry, dict):
        return []
    return [*_words(entry.get("command", entry.get("cmd"))), *_words(entry.get("args"))]


def _words(value: object) -> Iterator[str]:
    """The texts of a command line, which some clients write in one list, and some in an object."""
    match value:
        case str():
            yield value
        case list():
            yield from (word for word in value if isinstance(word, str))
        case {"path": str(path), **more}:
            yield path
            yield from _words(more.get("args"))


_NAME = "name"
"""The key of an item of a list that is a server's name."""


@attrs.frozen
class NamedEntry:
    """A server of a file, by its name."""

    trail: tuple[str, ...]
    """Where the servers stand, as in `ClientPlace`."""
    name: str
    listed: bool = False
    """Whether they are a list whose items have a `name`, as in `ClientPlace`."""

    def entry(self, value: object) -> object:
        """Its entry in the value of a file; None if it has none."""
        place = self.place(value)
        return None if place is None else at(value, place)

    def place(self, value: object) -> Trail | None:
        """The trail to its entry in the value of a file; None if it has none."""
        servers = at(value, self.trail)
        if isinstance(servers, list):
            named = (index for index, item in enumerate(servers) if _named(item) == self.name)
            index = next(named, None)
            return None if index is None else (*self.trail, index)
        return (*self.trail, self.name) if isinstance(servers, dict) and self.name in servers else None

    def put(self, document: EditedText, entry: Mapping[str, Any]) -> None:
        """Set its entry, which replaces one that is there.

        Raises:
            DocumentError: something on the way to it is no object.
        """
        value = document.value()
        written = {_NAME: self.name, **entry} if self.listed else dict(entry)
        place = self.place(value)
        if place is not None:
            document.put(place, written)
        elif not self.listed:
            document.put((*self.trail, self.name), written)
        elif isinstance(servers := at(value, self.trail), list) and servers:
            document.put((*self.trail, len(servers)), written)
        else:
            document.put(self.trail, [written])

    def remove(self, document: EditedText) -> None:
        """Remove its entry; nothing if there is none."""
        place = self.place(document.value())
        if place is not None:
            document.remove(place)


def members(value: object, trail: tuple[str, ...], *, listed: bool) -> list[NamedEntry]:
    """The servers at a place of a file."""
    servers = at(value, trail)
    names = [_named(item) for item in servers] if isinstance(servers, list) else servers
    # What is neither holds no servers, whatever it is.
    found = names if isinstance(names, dict | list) else ()
    return [NamedEntry(trail, name, listed) for name in found if isinstance(name, str)]


def at(value: object, trail: Trail) -> object:
    """What stands at a trail of a value; None if nothing does."""
    for step in trail:
        match value, step:
            case dict(), _:
                value = value.get(step)
            case list(), int() if step < len(value):
                value = value[step]
            case _:
                return None
    return value


def _named(item: object) -> str | None:
    name = item.get(_NAME) if isinstance(item, dict) else None
    return name if isinstance(name, str) else None


WITHOUT = "--without"
"""The option of `mcpd connect` that names a server to show nothing of."""


def left_out(entry: object) -> set[str]:
    """The servers that an entry of mcpd's, as any client writes it, shows nothing of."""
    return {name for option, name in pairwise(command_line(entry)) if option == WITHOUT}


LAUNCH = frozenset({
    "args", "bearer_token_env_var", "cmd", "command", "cwd", "env", "envFile", "env_http_headers", "env_keys",
    "env_vars", "environment", "envs", "headers", "httpUrl", "http_headers", "requestOptions", "serverUrl",
    "transport", "type", "uri", "url",
})  # fmt: skip
"""The keys of all clients that say what a server is; what else an entry has, says how its client treats it."""


@attrs.frozen(kw_only=True)
class Installation:
    """How mcpd is to be put into a client."""

    command: str
    """The program `mcpd`: an absolute path."""
    args: tuple[str, ...] = ("connect",)
    """What it is given."""
    surface: str | None = None
    """The surface that it shows where servers are not themselves; None: what fits the client."""
    keep: bool = False
    """Whether the client's servers stay, those that mcpd has too."""
    one_to_one: bool = False
    """Whether each of them is reached through mcpd under its own name, instead of all through one."""
    apart: frozenset[str] = frozenset()
    """The servers of mcpd's that are not reached through that one, and keep their own names in the client."""

    @property
    def shared(self) -> tuple[str, ...]:
        """What mcpd is given where it shows all servers together."""
        surface = ("--surface", self.surface) if self.surface else ()
        return (*self.args, *surface, *(word for name in sorted(self.apart) for word in (WITHOUT, name)))


@attrs.frozen(kw_only=True)
class PutIn:
    """A file with mcpd in it."""

    text: str = attrs.field(repr=False)
    members: tuple[NamedEntry, ...]
    """The servers that were put, taken out or rewritten."""
    taken: tuple[str, ...] = ()
    """Servers that were taken out, or rewritten, because mcpd has them."""
    left: tuple[str, ...] = ()
    """Servers that stay because mcpd does not have them."""


def put_in(
    text: str,
    places: Sequence[ClientPlace],
    into: ClientPlace | None,
    wanted: Installation,
    known: Known,
) -> PutIn:
    """The text of a file with mcpd in it.

    Args:
        text: the file, without entries of mcpd's; empty for one that is not there.
        places: where in it the client has servers.
        into: that of them which mcpd is put into; None if it is another file's.
        wanted: how.
        known: which of the client's servers mcpd has.

    Raises:
        ConfigError: the text is not of the file's format.
        DocumentError: mcpd cannot be put there.
    """
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
            changed.append(member)
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
    return PutIn(text=document.text(), members=tuple(changed), taken=tuple(taken), left=tuple(left))


def _rewrite(document: EditedText, member: NamedEntry, written: Mapping[str, Any]) -> None:
    """Give a server's entry another command line, and leave in it what is not about that."""
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
    """The text of a file without the entries that are mcpd's.

    Raises:
        ConfigError: the text is not of the file's format.
    """
    document = read_document(text, places[0].form, source=str(places[0].path))
    value = document.value()
    found = [member for place in places for member in members(value, place.trail, listed=place.listed)]
    own = [member for member in found if is_own(member.entry(value))]
    for member in own:
        member.remove(document)
    return document.text() if own else text


VERSION = 1
"""Of the format of `record.json`."""

_ORIGINAL, _INSTALLED, _RECORD = "original", "installed", "record.json"

_DIGITS = 16
"""Digits of a hash in the name of a file: two texts of one record never share them."""


@attrs.frozen(kw_only=True)
class Record:
    """What was done to one file of a client."""

    path: Path
    """The file, by its absolute path."""
    form: Format
    """Its format."""
    members: tuple[NamedEntry, ...]
    """The servers that were put, taken out or rewritten."""
    original: str | None = attrs.field(repr=False)
    """What the file would be without mcpd; None: there would be none."""
    installed: str = attrs.field(repr=False)
    """What was written."""


class Records:
    """The records of one state directory."""

    def __init__(self, state: Path) -> None:
        """Begin with whatever is there.

        Args:
            state: the state directory (`host.paths.state_dir`); it is made when something is kept.
        """
        self._root = state / "clients"

    def of(self, client: str) -> list[Record]:
        """All records of a client, by the paths of their files; broken ones count as lost."""
        found = (self._read(directory) for directory in self._directories(client))
        return sorted((record for record in found if record is not None), key=lambda record: record.path)

    def find(self, client: str, path: Path) -> Record | None:
        """The record of one file; None if there is none, or it is broken."""
        return self._read(self.directory(client, path))

    def keep(self, client: str, record: Record) -> None:
        """Keep a record in place of an earlier one of the same file.

        Raises:
            DocumentError: it cannot be written.
        """
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
        """Keep what was kept before; nothing if nothing was."""
        if former is None:
            self.forget(client, path)
        else:
            self.keep(client, former)

    def forget(self, client: str, path: Path, *, leave_backup: bool = False) -> None:
        """Drop a record with its backup, or without; nothing if there is none."""
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
        """Keep other commands out while files are changed.

        Raises:
            DocumentError: another one is at work, or the state directory cannot be written.
        """
        _make_private(self._root)
        with ExitStack() as held:
            try:
                held.enter_context(private_files.locked(self._root, 0))
            except TimeoutError:
                raise files.DocumentError(
                    "another `mcpd install` or `mcpd uninstall` is at work: try again when it is done"
                ) from None
            except OSError as error:
                raise files.DocumentError(
                    f"{self._root}.lock cannot be opened: {error.strerror}. Nothing was changed"
                ) from None
            yield

    def directory(self, client: str, path: Path) -> Path:
        """Where the record and the backup of a file are kept."""
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
    """A text of a record.

    Raises:
        OSError, ValueError: it is not there, or is another one.
    """
    text = (directory / _name(kind, digest)).read_bytes().decode()
    if _hash(text) != digest:
        raise ValueError(kind)
    return text


def _write(path: Path, text: str) -> None:
    files.replace(files.look(path), text.encode(), private=True)


class _Written(msgspec.Struct, kw_only=True):
    """A record without its texts, as `record.json` has it."""

    version: int = VERSION
    path: str
    format: Format
    existed: bool
    before: str | None
    """The hash of the original."""
    after: str
    members: tuple[NamedEntry, ...]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
