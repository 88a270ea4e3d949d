"""What mcpd keeps of the clients' files that it has changed: what they were, what it wrote, and where.

Under the state directory, `clients/CLIENT/` has a directory for each file: `record.json`, and the texts that
it names by their hashes, `original-HASH` and `installed-HASH`. So a record is replaced in one step: whatever
ends a command, the former one is there or the next. They may hold the client's secrets, so they are the user's
alone (0700, 0600).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import msgspec

from daemon.documents import files
from daemon.documents.formats import Format  # noqa: TC001 - msgspec reads it
from daemon.host import private_files
from daemon.setup.clients.installing import NamedEntry  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterator

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
