"""What can be wrong with the store: from what drivers raise to what policies go by and people read."""

import errno
import sqlite3

import psycopg
import pytest

from daemon.safety.redact import Redactor
from daemon.state.health import Condition, Health
from daemon.state.sql import LONGEST_WHY, StoreCause, StoreFault, translated
from tests.unit.cases import cases

REDACT = Redactor(["s3cret-word"])
ERRORS = (sqlite3.Error, psycopg.Error)


def kind_of(error: BaseException) -> StoreCause:
    with pytest.raises(StoreFault) as fault, translated("here", REDACT, ERRORS):
        raise error
    assert fault.value.__cause__ is None
    assert fault.value.__suppress_context__
    return fault.value.cause


def of_sqlite(code: int, words: str = "words") -> sqlite3.Error:
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


@cases("code", "words", "kind")
def test_codes_of_sqlite(code: str, words: str, kind: str) -> None:
    assert kind_of(of_sqlite(getattr(sqlite3, code), words)) is StoreCause(kind)


@cases("name", "kind")
def test_states_of_postgresql(name: str, kind: str) -> None:
    error = getattr(psycopg.errors, name)("words")
    assert error.sqlstate
    assert kind_of(error) is StoreCause(kind)


@cases("words", "kind")
def test_words_of_a_connection_that_was_never_made(words: str, kind: str) -> None:
    assert kind_of(psycopg.OperationalError(words)) is StoreCause(kind)


@cases("number", "kind")
def test_numbers_of_the_system(number: str, kind: str) -> None:
    assert kind_of(OSError(getattr(errno, number), "words")) is StoreCause(kind)


def test_no_secret_is_repeated_and_words_are_bounded() -> None:
    error = of_sqlite(sqlite3.SQLITE_BUSY, "locked\nby s3cret-word " + "x" * 1000)
    with pytest.raises(StoreFault) as fault, translated("here", REDACT, ERRORS):
        raise error
    text = str(fault.value)
    assert "s3cret-word" not in text
    assert "\n" not in text
    assert len(text) < LONGEST_WHY + 200


def test_a_fault_of_ours_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), translated("here", REDACT, ERRORS):
        raise ZeroDivisionError
    with pytest.raises(StoreFault, match=r"^the store there"), translated("here", REDACT, ERRORS):
        raise StoreFault(StoreCause.LOST, "there", "why")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def health(clock: Clock | None = None, rng: float = 0.0) -> Health:
    return Health(where="state.db", wall=clock or Clock(), rng=lambda: rng)


def test_since_is_when_the_state_changed_not_when_the_reason_did() -> None:
    clock = Clock()
    it = health(clock)
    it.mend(0)
    clock.now = 1001
    it.degrade(StoreFault(StoreCause.FULL, "state.db", "why"), 3)
    clock.now = 1002
    it.degrade(StoreFault(StoreCause.LOCKED, "state.db", "why"), 4)
    shown = it.persistence.value
    assert (shown.state, shown.cause, shown.since) == (Condition.DEGRADED, StoreCause.LOCKED, 1001)
    assert shown.reason.startswith("the store state.db is locked: why.")
    assert shown.waiting == 4
    clock.now = 1003
    it.mend(0)
    shown = it.persistence.value
    assert (shown.state, shown.cause, shown.reason) == (Condition.OK, None, "")
    assert (shown.since, shown.waiting) == (1003, 0)


def test_what_was_lost_is_shown_for_good() -> None:
    it = health()
    it.note_aside("state.db.corrupt-1")
    it.note_lost(StoreFault(StoreCause.LOST, "state.db", "somebody has removed the file"))
    it.note_dropped(3)
    it.mend(0)
    reason = it.persistence.value.reason
    assert "renamed it to state.db.corrupt-1" in reason
    assert "removed the file" in reason
    assert "1970-01-01T00:16:40+00:00" in reason
    assert "3 changes of sessions were dropped" in reason
    full = StoreFault(StoreCause.FULL, "state.db", "why")
    it.degrade(full, 1)
    assert it.persistence.value.reason == f"{full}; {reason}"


@pytest.mark.parametrize(("rng", "first"), [(0.0, 0.5), (1.0, 1.0)])
def test_delays_double_to_a_cap_with_half_of_each_by_chance(rng: float, first: float) -> None:
    it = health(rng=rng)
    delays = [it.next_delay(StoreCause.FULL) for _ in range(40)]
    assert delays[:6] == [first * each for each in (1, 2, 4, 8, 16, 30)]
    assert delays[-1] == first * 30
    it.mend(0)
    assert it.next_delay(StoreCause.FULL) == first
