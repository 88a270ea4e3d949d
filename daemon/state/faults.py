"""Faults of the store: a cause for policies and a text for people, both made from drivers' errors."""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
from collections.abc import Iterator
from enum import StrEnum
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

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


class _Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    state: str
    """The state of the store, in words."""
    helps: str
    sqlite: tuple[str, ...] = ()
    sqlstates: tuple[str, ...] = ()
    errnos: tuple[str, ...] = ()


_KINDS = msgspec.toml.decode((files("daemon.state") / "faults.toml").read_bytes(), type=dict[StoreCause, _Kind])


class StoreFault(McpdError):
    """An operation of the store failed. The text has no password."""

    def __init__(self, cause: StoreCause, where: str, why: str, advice: str = "") -> None:
        self.cause = cause
        self.where = where
        kind = _KINDS[cause]
        super().__init__(f"the store {where} is {kind.state}: {why}. {advice or kind.helps}")


_SQLITE = {getattr(sqlite3, name): cause for cause, kind in _KINDS.items() for name in kind.sqlite}
"""Causes by extended result code, else by primary result code; all others are UNAVAILABLE."""

_SQLITE_WORDS = (
    (re.compile(r"no such table"), StoreCause.LOST),
    (re.compile(r"no such column|has no column"), StoreCause.CORRUPT),
)
"""Causes by message: SQLite has a single code for all errors in a statement."""

_SQLSTATES = {state: cause for cause, kind in _KINDS.items() for state in kind.sqlstates}
"""Causes by prefix of PostgreSQL's SQLSTATE; the longest counts."""

_ERRNOS = {getattr(errno, name): cause for cause, kind in _KINDS.items() for name in kind.errnos}

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
        known = (_SQLSTATES.get(state[:length]) for length in range(len(state), 0, -1))
        return next(filter(None, known), StoreCause.UNAVAILABLE)
    return StoreCause.MISCONFIGURED if _REFUSED.search(str(error)) else StoreCause.UNAVAILABLE


def _of_sqlite(error: sqlite3.Error) -> StoreCause:
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_ERROR:
        words = str(error)
        return next((cause for said, cause in _SQLITE_WORDS if said.search(words)), StoreCause.UNAVAILABLE)
    return _SQLITE.get(code) or _SQLITE.get(code & 0xFF, StoreCause.UNAVAILABLE)
