"""Reads and replaces files that other programs also write, without losing their changes."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import attrs

from daemon.errors import McpdError

MAX_FILE = 32 * 1024 * 1024
"""Most bytes of a file: clients keep histories of some MiB next to servers; more is not a configuration."""

BACKUPS = 10
"""Backups kept of each file: enough to find the last good one."""

_STAMP = "%Y%m%dT%H%M%S"


class DocumentError(McpdError):
    """A file that cannot be read or changed; the text gives the file, the reason and the remedy."""


@attrs.frozen(kw_only=True)
class FoundFile:
    """A file's state, so that it is replaced only if unchanged."""

    path: Path
    target: Path
    """The path after links are resolved."""
    content: bytes | None = attrs.field(repr=False)
    """None if there is no file."""
    identity: tuple[int, ...] = ()
    """Device, inode, size and change time, which show other writers; empty without a file."""

    def text(self) -> str | None:
        """The text; None if there is no file. Raises DocumentError: not UTF-8."""
        try:
            return None if self.content is None else self.content.decode()
        except UnicodeDecodeError:
            raise DocumentError(
                f"{self.path} is not UTF-8, so mcpd does not edit the file: save it as UTF-8"
            ) from None


def look(path: Path, *, foreign: bool = False) -> FoundFile:
    """Read a file, which may be missing; `foreign` allows another user's. Raises DocumentError."""
    try:
        target = path.resolve()
        if problem := _unfit(target.stat(), foreign=foreign):
            raise DocumentError(f"{path} {problem}")
        # Without waiting: a pipe that has taken its place would block without end.
        with os.fdopen(os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            found = os.fstat(file.fileno())
            content = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        return FoundFile(path=path, target=path.resolve(), content=None)
    except RuntimeError:  # how pathlib reports a circle of links before Python 3.13
        raise DocumentError(f"{path} is a link to itself: remove it") from None
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE:
        raise DocumentError(f"{path} {_TOO_LARGE}")
    return FoundFile(path=path, target=target, content=content, identity=_identity(found))


_TOO_LARGE = f"has more than {MAX_FILE >> 20} MiB: this is not a configuration"


def _unfit(found: os.stat_result, *, foreign: bool) -> str:
    """Why a file is not an acceptable configuration, as a predicate; empty if it is."""
    if stat.S_ISDIR(found.st_mode):
        return "is a directory: name a file"
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file: name a file"
    if not foreign and os.geteuid() not in {found.st_uid, 0}:
        return f"belongs to another user (uid {found.st_uid}): change it as that user"
    return _TOO_LARGE if found.st_size > MAX_FILE else ""


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def replace(found: FoundFile, content: bytes, *, private: bool = False) -> None:
    """Replace a file atomically, keeping mode, owner and links. DocumentError if unwritable or changed."""
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
            raise DocumentError(f"{found.path} {_MEANWHILE}")
        if before is None:
            _put_where_nothing_is(beside, target)
        else:
            beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    _settle(target.parent)


_MEANWHILE = "was written by somebody else at this moment; nothing was changed: try again"


def _put_where_nothing_is(beside: Path, target: Path) -> None:
    try:
        target.hardlink_to(beside)
    except FileExistsError:
        raise DocumentError(f"{target} {_MEANWHILE}") from None
    except OSError:  # a file system without links
        beside.replace(target)


def _settle(directory: Path) -> None:
    """Flush the directory: a power failure could undo the rename."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@attrs.frozen(kw_only=True)
class Edit:
    """A file's new text."""

    found: FoundFile
    text: str = attrs.field(repr=False)
    private: bool = False
    """Whether a new file is readable by this user only."""

    @property
    def is_new(self) -> bool:
        """Whether the file changes."""
        return self.text != (self.found.text() or "")

    @property
    def stands(self) -> bool:
        """Whether the file still has the new text. Raises DocumentError: it cannot be read."""
        return look(self.found.path).content == self.text.encode()

    def undo(self) -> None:
        """Restore the previous content. Raises DocumentError: the file has changed since or is unwritable."""
        now = look(self.found.path)
        if not self.stands:
            raise DocumentError(
                f"{self.found.path} was changed by somebody else since: mcpd leaves the file unchanged"
            )
        if self.found.content is None:
            now.target.unlink(missing_ok=True)
        else:
            replace(now, self.found.content)


def write_all(edits: Sequence[Edit]) -> None:
    """Replace all files, each atomically, or none. Raises DocumentError."""
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
    """Restore all files; raises as `Edit.undo` does."""
    for edit in reversed(edits):
        edit.undo()


def unified_diff(path: Path, before: str | None, after: str | None, *, context: int = 3) -> str:
    """The diff of two contents, either of which is None for no file; empty without changes."""
    old, new = ("/dev/null" if text is None else str(path) for text in (before, after))
    here, there = ((text or "").splitlines() for text in (before, after))
    return "".join(f"{line}\n" for line in difflib.unified_diff(here, there, old, new, lineterm="", n=context))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def keep_backup(found: FoundFile, directory: Path) -> Path:
    """Copy a file, with its mode, into a private directory, and keep only `BACKUPS` copies there.

    The copy's name ends with the UTC time. Files of one name need separate directories. Raises DocumentError.
    """
    if found.content is None:
        raise DocumentError(f"{found.path} does not exist, so mcpd cannot keep a copy of it")
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
