"""Which events the store still lacks."""

from __future__ import annotations

from daemon.history.event import Event, EventKind
from daemon.history.journal import KEPT, History
from daemon.state.notes import CROWD, EVENTS_AT_ONCE, EventNotes


def noted(count: int) -> EventNotes:
    history = History(lambda: 1.0)
    for _ in range(count):
        history.note(Event(kind=EventKind.SIGNAL))
    return EventNotes(history)


def test_events_are_written_in_order_and_in_portions() -> None:
    notes = noted(EVENTS_AT_ONCE + 3)
    assert notes.waiting

    first = notes.next_batch()
    assert [event.number for event in first] == list(range(1, EVENTS_AT_ONCE + 1))
    assert notes.next_batch() == first, "until they were written"
    notes.were_written(first)
    rest = notes.next_batch()
    notes.were_written(rest)

    assert (len(rest), notes.waiting, notes.next_batch()) == (3, False, ())


def test_what_memory_has_no_room_for_is_counted_and_said() -> None:
    notes = noted(KEPT + 5)

    batch = notes.next_batch()

    assert (batch[0].number, notes.dropped) == (6, 5)
    newest = notes.history.newest.value
    assert newest is not None
    assert (newest.kind, newest.details) == (EventKind.LOST, {"count": 5})


def test_a_store_that_lost_everything_gets_what_memory_has() -> None:
    notes = noted(3)
    notes.were_written(notes.next_batch())

    notes.start_over()

    assert [event.number for event in notes.next_batch()] == [1, 2, 3]


def test_many_new_ones_are_a_reason_to_look_for_old_ones() -> None:
    notes = noted(CROWD)
    while notes.waiting:
        assert not notes.is_crowded
        notes.were_written(notes.next_batch())
    assert notes.is_crowded
    notes.were_expired()
    assert not notes.is_crowded
