"""Reading and replacing a file that others write, too: nothing is lost, whoever writes at that moment."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from daemon.errors import McpdError

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_FILE = 32 * 1024 * 1024
"""Bytes of a file that is read: clients keep histories of some MiB beside servers; more is no configuration."""

BACKUPS = 10
"""Backups that are kept of one file: enough to find the one before a mistake, and the directory stays small."""

_STAMP = "%Y%m%dT%H%M%S"


class DocumentError(McpdError):
    """A file cannot be read or changed; the text names it, says why and what to do."""


@attrs.frozen(kw_only=True)
class FoundFile:
    """A file as it was found, so that it is replaced only if it is still the same."""

    path: Path
    """Where it was looked for."""
    target: Path
    """Where its content is, behind links."""
    content: bytes | None = attrs.field(repr=False)
    """What it holds; None if there is no file."""
    identity: tuple[int, ...] = ()
    """Device, inode, size and time of change, to notice that somebody has written; empty without a file."""

    def text(self) -> str | None:
        """What it says; None if there is no file.

        Raises:
            DocumentError: it is not UTF-8.
        """
        try:
            return None if self.content is None else self.content.decode()
        except UnicodeDecodeError:
            raise DocumentError(f"{self.path} is not UTF-8, so it is left alone: save it as UTF-8") from None


def look(path: Path, *, foreign: bool = False) -> FoundFile:
    """Read a file as it is now; one that is not there is found empty-handed.

    Args:
        path: the file.
        foreign: whether another user's is read, too: one that is not to be changed.

    Raises:
        DocumentError: it cannot be read, is no regular file, is larger than is sensible, or is another user's.
    """
    try:
        target = path.resolve()
        if problem := _unfit(target.stat(), foreign=foreign):
            raise DocumentError(f"{path} {problem}")
        # Without waiting: a pipe that has taken its place would hold us for ever.
        with os.fdopen(os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            found = os.fstat(file.fileno())
            content = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        return FoundFile(path=path, target=path.resolve(), content=None)
    except RuntimeError:  # how pathlib reports a circle of links before Python 3.13
        raise DocumentError(f"{path} is a link that leads back to itself: remove it") from None
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE:
        raise DocumentError(f"{path} {_TOO_LARGE}")
    return FoundFile(path=path, target=target, content=content, identity=_identity(found))


_TOO_LARGE = f"has more than {MAX_FILE >> 20} MiB: this is no configuration"


def _unfit(found: os.stat_result, *, foreign: bool) -> str:
    """Why a file is not one to read as a configuration, after its name; empty if it is."""
    if stat.S_ISDIR(found.st_mode):
        return "is a directory: name a file"
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file: name one"
    if not foreign and os.geteuid() not in {found.st_uid, 0}:
        return f"belongs to another user (uid {found.st_uid}): change it as that user, or by what has made it"
    return _TOO_LARGE if found.st_size > MAX_FILE else ""


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def replace(found: FoundFile, content: bytes, *, private: bool = False) -> None:
    """Replace a file in one step, with mode, owner and the links that lead to it kept.

    Args:
        found: what `look` has found.
        content: what the file is to hold.
        private: whether a new file, and directories that are made for it, are for this user only.

    Raises:
        DocumentError: it cannot be written, or has changed since it was found.
    """
    target = found.target
    try:
        target.parent.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
        before = target.stat() if found.content is not None else None
        if before is not None and not before.st_mode & 0o222:
            raise DocumentError(f"{found.path} is read-only: make it writable first (chmod u+w)")
        _write(found, content, before, 0o600 if private else 0o666 & ~_umask())
    except OSError as error:
        raise DocumentError(f"{found.path} cannot be written: {error.strerror}; nothing was changed") from None


def _write(found: FoundFile, content: bytes, before: os.stat_result | None, mode: int) -> None:
    target = found.target
    # In the same directory, since only within one file system is a file renamed in one step.
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:200]}.")
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if before is None:
                os.fchmod(descriptor, mode)
            else:
                if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(descriptor, before.st_uid, before.st_gid)
                shutil.copystat(target, beside)
                os.utime(beside)
            file.flush()
            os.fsync(descriptor)
        now = look(found.path)
        if (now.target, now.identity, now.content) != (target, found.identity, found.content):
            raise DocumentError(
                f"{found.path} was written by somebody else at this moment; nothing was changed: try again"
            )
        if before is None:
            _put_where_nothing_is(beside, target)
        else:
            beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    _settle(target.parent)


def _put_where_nothing_is(beside: Path, target: Path) -> None:
    """Give a new file its name, unless somebody has just made one of that name."""
    try:
        target.hardlink_to(beside)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        beside.replace(target)


def _settle(directory: Path) -> None:
    """Have the directory's entries on disk: a rename that a power failure undoes would be no replacement."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@attrs.frozen(kw_only=True)
class Edit:
    """A file with another text."""

    found: FoundFile
    """The file as it was found."""
    text: str = attrs.field(repr=False)
    """What it is to hold."""
    private: bool = False
    """Whether a new file is for this user only."""

    @property
    def is_new(self) -> bool:
        """Whether the file does not say so already."""
        return self.text != (self.found.text() or "")

    def undo(self) -> None:
        """Give the file, which was written, its former content.

        Raises:
            DocumentError: it was changed since, or cannot be written.
        """
        now = look(self.found.path)
        if now.content != self.text.encode():
            raise DocumentError(f"{self.found.path} was changed by somebody else since: it stays as it is")
        if self.found.content is None:
            now.target.unlink(missing_ok=True)
        else:
            replace(now, self.found.content)


def write_all(edits: Sequence[Edit]) -> None:
    """Replace each file in one step; all or none.

    Raises:
        DocumentError: one cannot be written, or somebody else has written it since it was found.
    """
    for done, edit in enumerate(edits):
        try:
            replace(edit.found, edit.text.encode(), private=edit.private)
        except DocumentError:
            for before in edits[:done]:
                # What somebody has written meanwhile stays.
                with suppress(DocumentError):
                    before.undo()
            raise


def undo_all(edits: Sequence[Edit]) -> None:
    """Give all files, which were written, their former content; raises what `Edit.undo` does."""
    for edit in reversed(edits):
        edit.undo()


def unified_diff(path: Path, before: str | None, after: str | None, *, context: int = 3) -> str:
    """What changes in a file, as a unified diff; empty if nothing does.

    Args:
        path: the file.
        before: what it says; None if there is none.
        after: what it is to say; None if there is to be none.
        context: lines around a change.
    """
    old, new = ("/dev/null" if text is None else str(path) for text in (before, after))
    here, there = ((text or "").splitlines() for text in (before, after))
    return "".join(f"{line}\n" for line in difflib.unified_diff(here, there, old, new, lineterm="", n=context))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def keep_backup(found: FoundFile, directory: Path) -> Path:
    """Keep a copy of a file, with its mode, in a private directory; the oldest beyond `BACKUPS` are removed.

    The copy's name is the file's, with the time (UTC) behind it. Files of one name need a directory each.

    Raises:
        DocumentError: there is no file, or the copy cannot be written.
    """
    if found.content is None:
        raise DocumentError(f"{found.path} is not there: there is nothing to keep a copy of")
    now = time.time_ns()
    stamp = f"{time.strftime(_STAMP, time.gmtime(now // 10**9))}.{now % 10**9:09d}"
    copy = directory / f"{found.target.name}.{stamp}"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(FoundFile(path=copy, target=copy, content=None), found.content, private=True)
        copy.chmod(stat.S_IMODE(found.target.stat().st_mode))
        named = re.compile(rf"{re.escape(found.target.name)}\.\d{{8}}T\d{{6}}\.\d{{9}}")
        kept = sorted(each for each in directory.iterdir() if named.fullmatch(each.name))
        for each in kept[:-BACKUPS]:
            each.unlink(missing_ok=True)
    except OSError as error:
        raise DocumentError(f"{copy} cannot be written: {error.strerror}; nothing was changed") from None
    return copy
