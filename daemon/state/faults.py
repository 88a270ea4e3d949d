"""What can be wrong with the store: a cause for policies, a text for people, both made of drivers' errors."""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
from enum import StrEnum
from typing import TYPE_CHECKING

from daemon.errors import McpdError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daemon.safety.redact import Redactor


class StoreCause(StrEnum):
    """Why an operation of the store failed. What to do about it differs; everything else stands in the text."""

    UNAVAILABLE = "unavailable"
    """No answer, or none that helps: it may be better in a moment."""
    FULL = "full"
    """No room left; what was written before can still be read."""
    LOCKED = "locked"
    """Somebody else has it and does not let go."""
    READ_ONLY = "read_only"
    """It can be read, not written."""
    CORRUPT = "corrupt"
    """What is there is no store, or a broken one."""
    NEWER_SCHEMA = "newer_schema"
    """A later mcpd has written it: it is left alone."""
    LOST = "lost"
    """What was opened is gone: removed, replaced, emptied, its tables dropped."""
    MISCONFIGURED = "misconfigured"
    """The url cannot work until somebody changes something."""


_WORDS = {
    StoreCause.UNAVAILABLE: ("not available", "mcpd serves on from memory and tries again"),
    StoreCause.FULL: ("full", "free some space: what is not written yet is kept in memory until then"),
    StoreCause.LOCKED: (
        "locked",
        "end the program that holds it: what is not written yet is kept in memory until then",
    ),
    StoreCause.READ_ONLY: (
        "read-only",
        "make it and its directory writable for mcpd: what is not written yet is kept in memory",
    ),
    StoreCause.CORRUPT: (
        "corrupt",
        "set it aside, or restore it from a backup; mcpd begins with an empty one otherwise",
    ),
    StoreCause.NEWER_SCHEMA: (
        "of a later version",
        "run that later mcpd, or set state.url to another place: nothing in it was changed",
    ),
    StoreCause.LOST: ("gone", "mcpd creates it again and writes what it knows"),
    StoreCause.MISCONFIGURED: (
        "not usable as configured",
        "correct state.url in mcpd's configuration, --state-dir, or what they point to",
    ),
}
"""What the store is then, and what happens next or what to do."""


class StoreFault(McpdError):
    """An operation of the store did not happen. Holds no password."""

    def __init__(self, cause: StoreCause, where: str, why: str, advice: str = "") -> None:
        """Say what failed.

        Args:
            cause: what policies go by.
            where: which store, without a password.
            why: the driver's words, or ours.
            advice: what to do, when there is something better than what the cause has.
        """
        self.cause = cause
        self.where = where
        phrase, usual = _WORDS[cause]
        super().__init__(f"the store {where} is {phrase}: {why}. {advice or usual}")


_SQLITE: Mapping[int, StoreCause] = {
    sqlite3.SQLITE_FULL: StoreCause.FULL,
    sqlite3.SQLITE_BUSY: StoreCause.LOCKED,
    sqlite3.SQLITE_LOCKED: StoreCause.LOCKED,
    sqlite3.SQLITE_READONLY: StoreCause.READ_ONLY,
    sqlite3.SQLITE_CORRUPT: StoreCause.CORRUPT,
    sqlite3.SQLITE_NOTADB: StoreCause.CORRUPT,
    sqlite3.SQLITE_PERM: StoreCause.READ_ONLY,
    sqlite3.SQLITE_AUTH: StoreCause.MISCONFIGURED,
    sqlite3.SQLITE_READONLY_DBMOVED: StoreCause.LOST,
    sqlite3.SQLITE_IOERR_SHORT_READ: StoreCause.CORRUPT,
    sqlite3.SQLITE_IOERR_CORRUPTFS: StoreCause.CORRUPT,
}
"""By extended result code, and by primary one where that says nothing else; all others are UNAVAILABLE."""

_SQLITE_WORDS = (
    (re.compile(r"no such table"), StoreCause.LOST),
    (re.compile(r"no such column|has no column"), StoreCause.CORRUPT),
)
"""SQLite has one code for all that is wrong with a statement."""

_SQLSTATES: tuple[tuple[str, StoreCause], ...] = (
    ("53100", StoreCause.FULL),
    ("25006", StoreCause.READ_ONLY),
    ("55P03", StoreCause.LOCKED),
    ("40", StoreCause.LOCKED),
    ("XX001", StoreCause.CORRUPT),
    ("XX002", StoreCause.CORRUPT),
    ("42P01", StoreCause.LOST),
    ("3F", StoreCause.LOST),
    ("42501", StoreCause.MISCONFIGURED),
    ("42", StoreCause.CORRUPT),
    ("28", StoreCause.MISCONFIGURED),
    ("3D", StoreCause.MISCONFIGURED),
)
"""By the beginning of PostgreSQL's SQLSTATE; the first that fits."""

_ERRNOS: Mapping[int | None, StoreCause] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), StoreCause.FULL),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), StoreCause.READ_ONLY),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),
        StoreCause.MISCONFIGURED,
    ),
}

# A failed connect has no SQLSTATE in libpq, only the server's words, which a locale may have translated: then
# the fault is UNAVAILABLE, and its text still says why.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|(database|role|user) .* does not exist"
    r"|not permitted to log in|permission denied|invalid (connection option|sslmode|integer|port)"
)

LONGEST_WHY = 300
"""Characters of a driver's words that a fault repeats."""


@contextlib.contextmanager
def translated(where: str, redact: Redactor, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Whatever a driver raises within the block becomes a `StoreFault`.

    Args:
        where: which store, without a password.
        redact: takes passwords out of the driver's words.
        errors: what the driver raises.

    Raises:
        StoreFault: instead of the driver's error.
    """
    failures: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except failures as error:
        # One line, bounded, with the name that a driver has for it.
        name = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
        words = redact(" ".join(str(error).split()))[:LONGEST_WHY].rstrip(". ")
        raise StoreFault(_cause(error), where, f"{words} ({name})" if name else words) from None


def _cause(error: Exception) -> StoreCause:
    if isinstance(error, OSError):
        return _ERRNOS.get(error.errno, StoreCause.UNAVAILABLE)
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error)
    if state := getattr(error, "sqlstate", None):
        return next((cause for start, cause in _SQLSTATES if state.startswith(start)), StoreCause.UNAVAILABLE)
    return StoreCause.MISCONFIGURED if _REFUSED.search(str(error)) else StoreCause.UNAVAILABLE


def _of_sqlite(error: sqlite3.Error) -> StoreCause:
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_ERROR:
        words = str(error)
        return next((cause for said, cause in _SQLITE_WORDS if said.search(words)), StoreCause.UNAVAILABLE)
    return _SQLITE.get(code) or _SQLITE.get(code & 0xFF, StoreCause.UNAVAILABLE)
