"""What operators are shown, and when the next try is due."""

from __future__ import annotations

import pytest

from daemon.state.faults import StoreCause, StoreFault
from daemon.state.health import Condition, Health

LOCKED = StoreFault(StoreCause.LOCKED, "state.db", "somebody writes")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def health(clock: Clock | None = None, rng: float = 0.0) -> Health:
    return Health(where="state.db", wall=clock or Clock(), rng=lambda: rng)


def test_it_begins_degraded_for_nothing_was_opened() -> None:
    shown = health().persistence.value
    assert (shown.state, shown.reason, shown.where, shown.since) == (
        "degraded",
        "not opened yet",
        "state.db",
        1000.0,
    )


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
    assert "set aside as state.db.corrupt-1" in reason
    assert "removed the file" in reason
    assert "1970-01-01T00:16:40+00:00" in reason
    assert "3 changes of sessions were dropped" in reason
    full = StoreFault(StoreCause.FULL, "state.db", "why")
    it.degrade(full, 1)
    assert it.persistence.value.reason == f"{full}; {reason}"


def test_nobody_is_woken_when_nothing_changed() -> None:
    it = health()
    it.mend(0)
    before = it.persistence.value
    it.mend(0)
    it.count(0)
    assert it.persistence.value is before


@pytest.mark.parametrize(("rng", "first"), [(0.0, 0.5), (1.0, 1.0)])
def test_delays_double_to_a_cap_with_half_of_each_by_chance(rng: float, first: float) -> None:
    it = health(rng=rng)
    delays = [it.next_delay(StoreCause.FULL) for _ in range(40)]
    assert delays[:6] == [first * each for each in (1, 2, 4, 8, 16, 30)]
    assert delays[-1] == first * 30
    it.mend(0)
    assert it.next_delay(StoreCause.FULL) == first


@pytest.mark.parametrize("kind", [StoreCause.NEWER_SCHEMA, StoreCause.MISCONFIGURED])
def test_what_only_an_operator_can_mend_is_tried_slowly(kind: StoreCause) -> None:
    assert health().next_delay(kind) == 150.0
