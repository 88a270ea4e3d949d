"""Faults of the store: a cause for policies and a text for people, both made from drivers' errors."""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from daemon.errors import McpdError

if TYPE_CHECKING:
    from daemon.safety.redact import Redactor


class StoreCause(StrEnum):
    """The cause of a failed operation, as far as the reaction to it differs; the text has the details."""

    UNAVAILABLE = "unavailable"
    """The store gave no useful answer; it may recover soon."""
    FULL = "full"
    """No space is left; earlier writes can still be read."""
    LOCKED = "locked"
    """Another program holds a lock on the store."""
    READ_ONLY = "read_only"
    CORRUPT = "corrupt"
    """The file or database is no store, or damaged."""
    NEWER_SCHEMA = "newer_schema"
    """A later version of mcpd has written the store; it is left alone."""
    LOST = "lost"
    """The opened store is gone: removed, replaced or emptied, or its tables were dropped."""
    MISCONFIGURED = "misconfigured"
    """The url cannot work until an operator changes something."""


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
"""The state of the store and the next step, by cause."""


class StoreFault(McpdError):
    """An operation of the store failed. The text has no password."""

    def __init__(self, cause: StoreCause, where: str, why: str, advice: str = "") -> None:
        """Describe the failure at a location; `advice` replaces the cause's own."""
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
"""Causes by extended result code, else by primary result code; all others are UNAVAILABLE."""

_SQLITE_WORDS = (
    (re.compile(r"no such table"), StoreCause.LOST),
    (re.compile(r"no such column|has no column"), StoreCause.CORRUPT),
)
"""Causes by message: SQLite has a single code for all errors in a statement."""

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
"""Causes by prefix of PostgreSQL's SQLSTATE; the first match counts."""

_ERRNOS: Mapping[int | None, StoreCause] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), StoreCause.FULL),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), StoreCause.READ_ONLY),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),
        StoreCause.MISCONFIGURED,
    ),
}

# libpq has no SQLSTATE for a failed connect, only the server's message, which may be in another language: then
# the fault is UNAVAILABLE, and its text still has the reason.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|(database|role|user) .* does not exist"
    r"|not permitted to log in|permission denied|invalid (connection option|sslmode|integer|port)"
)

LONGEST_WHY = 300
"""Most characters of a driver's message in a fault."""


@contextlib.contextmanager
def translated(where: str, redact: Redactor, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn a driver's errors within the block into a `StoreFault`, its message without secrets."""
    failures: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except failures as error:
        # One bounded line, with the driver's name for the error.
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
