"""From what drivers raise to what policies go by."""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
from typing import TYPE_CHECKING

from daemon.store.faults import Kind, StoreFault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daemon.redact import Redactor

_SQLITE: Mapping[int, Kind] = {
    sqlite3.SQLITE_FULL: Kind.FULL,
    sqlite3.SQLITE_BUSY: Kind.LOCKED,
    sqlite3.SQLITE_LOCKED: Kind.LOCKED,
    sqlite3.SQLITE_READONLY: Kind.READ_ONLY,
    sqlite3.SQLITE_CORRUPT: Kind.CORRUPT,
    sqlite3.SQLITE_NOTADB: Kind.CORRUPT,
    sqlite3.SQLITE_PERM: Kind.READ_ONLY,
    sqlite3.SQLITE_AUTH: Kind.MISCONFIGURED,
}
"""By primary result code; all others are UNAVAILABLE."""

_SQLITE_EXTENDED: Mapping[int, Kind] = {
    sqlite3.SQLITE_READONLY_DBMOVED: Kind.LOST,
    sqlite3.SQLITE_IOERR_SHORT_READ: Kind.CORRUPT,
    sqlite3.SQLITE_IOERR_CORRUPTFS: Kind.CORRUPT,
}

_SQLSTATES: tuple[tuple[str, Kind], ...] = (
    ("53100", Kind.FULL),
    ("25006", Kind.READ_ONLY),
    ("55P03", Kind.LOCKED),
    ("40", Kind.LOCKED),
    ("XX001", Kind.CORRUPT),
    ("XX002", Kind.CORRUPT),
    ("42P01", Kind.LOST),
    ("3F", Kind.LOST),
    ("42501", Kind.MISCONFIGURED),
    ("42", Kind.CORRUPT),
    ("28", Kind.MISCONFIGURED),
    ("3D", Kind.MISCONFIGURED),
)
"""By the beginning of PostgreSQL's SQLSTATE; the first that fits."""

_ERRNOS: Mapping[int, Kind] = {
    errno.ENOSPC: Kind.FULL,
    errno.EDQUOT: Kind.FULL,
    errno.EROFS: Kind.READ_ONLY,
    errno.EACCES: Kind.READ_ONLY,
    errno.EPERM: Kind.READ_ONLY,
    errno.ENOTDIR: Kind.MISCONFIGURED,
    errno.EISDIR: Kind.MISCONFIGURED,
    errno.ENOENT: Kind.MISCONFIGURED,
    errno.EEXIST: Kind.MISCONFIGURED,
    errno.ENAMETOOLONG: Kind.MISCONFIGURED,
    errno.ELOOP: Kind.MISCONFIGURED,
}

# A failed connect has no SQLSTATE in libpq, only the server's words, which a locale may have translated: then
# the fault is UNAVAILABLE, and its text still says why.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|(database|role|user) .* does not exist"
    r"|not permitted to log in|permission denied|invalid (connection option|sslmode|integer|port)"
)
_GONE = re.compile(r"no such table")
_CHANGED = re.compile(r"no such column|has no column")

LONGEST_WHY = 300
"""Characters of a driver's words that a fault repeats."""


class Trouble(Exception):
    """What another driver than SQLite's has raised."""

    def __init__(self, error: BaseException | None) -> None:
        """Take its error."""
        super().__init__()
        self.error = error


@contextlib.contextmanager
def translated(where: str, redact: Redactor) -> Iterator[None]:
    """Whatever a driver raises within the block becomes a `StoreFault`.

    Raises:
        StoreFault: instead of the driver's error.
    """
    try:
        yield
    except Trouble as trouble:
        raise StoreFault(_kind(trouble.error), where, _why(trouble.error, redact)) from None
    except sqlite3.Error as error:
        raise StoreFault(_kind(error), where, _why(error, redact)) from None
    except OSError as error:
        kind = _ERRNOS.get(error.errno or 0, Kind.UNAVAILABLE)
        raise StoreFault(kind, where, _why(error, redact)) from None


def _kind(error: BaseException | None) -> Kind:
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error)
    state = getattr(error, "sqlstate", None)
    if state:
        return next((kind for start, kind in _SQLSTATES if state.startswith(start)), Kind.UNAVAILABLE)
    return Kind.MISCONFIGURED if _REFUSED.search(str(error)) else Kind.UNAVAILABLE


def _of_sqlite(error: sqlite3.Error) -> Kind:
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_ERROR:
        words = str(error)
        return (
            Kind.LOST if _GONE.search(words) else Kind.CORRUPT if _CHANGED.search(words) else Kind.UNAVAILABLE
        )
    return _SQLITE_EXTENDED.get(code) or _SQLITE.get(code & 0xFF, Kind.UNAVAILABLE)


def _why(error: BaseException | None, redact: Redactor) -> str:
    """One line, bounded, with the name that a driver has for it."""
    name = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    words = redact(" ".join(str(error).split()))[:LONGEST_WHY].rstrip(". ")
    return f"{words} ({name})" if name else words
