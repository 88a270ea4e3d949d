"""From what drivers raise to what policies go by."""

from __future__ import annotations

import errno
import sqlite3

import psycopg
import pytest

from daemon.redact import Redactor
from daemon.store.faults import Kind, StoreFault
from daemon.store.translating import LONGEST_WHY, Trouble, translated

REDACT = Redactor(["s3cret-word"])


def kind_of(error: BaseException) -> Kind:
    with pytest.raises(StoreFault) as fault, translated("here", REDACT):
        raise error
    assert fault.value.__cause__ is None
    assert fault.value.__suppress_context__
    return fault.value.kind


def of_sqlite(code: int, words: str = "words") -> sqlite3.Error:
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "words", "kind"),
    [
        (sqlite3.SQLITE_FULL, "", Kind.FULL),
        (sqlite3.SQLITE_BUSY, "", Kind.LOCKED),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "", Kind.LOCKED),
        (sqlite3.SQLITE_LOCKED, "", Kind.LOCKED),
        (sqlite3.SQLITE_READONLY, "", Kind.READ_ONLY),
        (sqlite3.SQLITE_READONLY_DIRECTORY, "", Kind.READ_ONLY),
        (sqlite3.SQLITE_READONLY_DBMOVED, "", Kind.LOST),
        (sqlite3.SQLITE_CORRUPT, "", Kind.CORRUPT),
        (sqlite3.SQLITE_CORRUPT_INDEX, "", Kind.CORRUPT),
        (sqlite3.SQLITE_NOTADB, "", Kind.CORRUPT),
        (sqlite3.SQLITE_IOERR_SHORT_READ, "", Kind.CORRUPT),
        (sqlite3.SQLITE_IOERR, "", Kind.UNAVAILABLE),
        (sqlite3.SQLITE_IOERR_FSYNC, "", Kind.UNAVAILABLE),
        (sqlite3.SQLITE_NOMEM, "", Kind.UNAVAILABLE),
        (sqlite3.SQLITE_CANTOPEN, "", Kind.UNAVAILABLE),
        (sqlite3.SQLITE_PERM, "", Kind.READ_ONLY),
        (sqlite3.SQLITE_ERROR, "no such table: tools", Kind.LOST),
        (sqlite3.SQLITE_ERROR, "no such column: raw", Kind.CORRUPT),
        (sqlite3.SQLITE_ERROR, "table tools has no column named raw", Kind.CORRUPT),
        (sqlite3.SQLITE_ERROR, "anything else", Kind.UNAVAILABLE),
    ],
)
def test_codes_of_sqlite(code: int, words: str, kind: Kind) -> None:
    assert kind_of(of_sqlite(code, words)) is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("DiskFull", Kind.FULL),
        ("ReadOnlySqlTransaction", Kind.READ_ONLY),
        ("LockNotAvailable", Kind.LOCKED),
        ("DeadlockDetected", Kind.LOCKED),
        ("SerializationFailure", Kind.LOCKED),
        ("QueryCanceled", Kind.UNAVAILABLE),
        ("AdminShutdown", Kind.UNAVAILABLE),
        ("CannotConnectNow", Kind.UNAVAILABLE),
        ("TooManyConnections", Kind.UNAVAILABLE),
        ("ConnectionFailure", Kind.UNAVAILABLE),
        ("UndefinedTable", Kind.LOST),
        ("InvalidSchemaName", Kind.LOST),
        ("UndefinedColumn", Kind.CORRUPT),
        ("DatatypeMismatch", Kind.CORRUPT),
        ("DataCorrupted", Kind.CORRUPT),
        ("IndexCorrupted", Kind.CORRUPT),
        ("InsufficientPrivilege", Kind.MISCONFIGURED),
        ("InvalidPassword", Kind.MISCONFIGURED),
        ("InvalidCatalogName", Kind.MISCONFIGURED),
    ],
)
def test_states_of_postgresql(name: str, kind: Kind) -> None:
    error = getattr(psycopg.errors, name)("words")
    assert error.sqlstate
    assert kind_of(Trouble(error)) is kind


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ('FATAL:  password authentication failed for user "me"', Kind.MISCONFIGURED),
        ('FATAL:  database "x" does not exist', Kind.MISCONFIGURED),
        ("fe_sendauth: no password supplied", Kind.MISCONFIGURED),
        ('FATAL:  no pg_hba.conf entry for host "::1"', Kind.MISCONFIGURED),
        ("connection refused", Kind.UNAVAILABLE),
        ('connection to server on socket "/s" failed: No such file or directory', Kind.UNAVAILABLE),
        ("could not translate host name to address: Temporary failure in name resolution", Kind.UNAVAILABLE),
        ("FATAL:  the database system is starting up", Kind.UNAVAILABLE),
    ],
)
def test_words_of_a_connection_that_was_never_made(words: str, kind: Kind) -> None:
    assert kind_of(Trouble(psycopg.OperationalError(words))) is kind


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, Kind.FULL),
        (errno.EDQUOT, Kind.FULL),
        (errno.EROFS, Kind.READ_ONLY),
        (errno.EACCES, Kind.READ_ONLY),
        (errno.EPERM, Kind.READ_ONLY),
        (errno.ENOTDIR, Kind.MISCONFIGURED),
        (errno.EIO, Kind.UNAVAILABLE),
    ],
)
def test_numbers_of_the_system(number: int, kind: Kind) -> None:
    assert kind_of(OSError(number, "words")) is kind


def test_no_secret_is_repeated_and_words_are_bounded() -> None:
    error = of_sqlite(sqlite3.SQLITE_BUSY, "locked\nby s3cret-word " + "x" * 1000)
    with pytest.raises(StoreFault) as fault, translated("here", REDACT):
        raise error
    text = str(fault.value)
    assert "s3cret-word" not in text
    assert "\n" not in text
    assert len(text) < LONGEST_WHY + 200


def test_a_fault_of_ours_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), translated("here", REDACT):
        raise ZeroDivisionError
    with pytest.raises(StoreFault, match=r"^the store there"), translated("here", REDACT):
        raise StoreFault(Kind.LOST, "there", "why")
