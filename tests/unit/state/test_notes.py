"""Sessions that are not on disk yet."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.loaded import Loaded, SessionRecord, anonymous_key
from daemon.history.event import Event, EventKind
from daemon.history.journal import KEPT, History
from daemon.state.event_rows import SECONDS
from daemon.state.notes import (
    CROWD,
    EVENTS_AT_ONCE,
    MAX_BATCH,
    WAITING,
    EventNotes,
    HourlyCounts,
    SessionNotes,
    Totals,
)
from tests.unit.actors.recording import START, session


def record(key: str, at: float = 0.0, client: str = "") -> SessionRecord:
    return SessionRecord(key=key, loaded=Loaded(), client=client, seen_at=at)


def partial(notes: SessionNotes) -> tuple[str, ...]:
    """Keys of what was begun without what is stored."""
    return tuple(key for key, each in notes.waiting.items() if each.partial)


def test_what_is_newer_than_a_batch_stays_when_the_batch_is_written() -> None:
    notes = SessionNotes()
    notes.keep(record("a", client="old"))
    notes.keep(record("b"))
    batch, touched = notes.next_batch()
    notes.keep(record("a", client="new"))
    notes.were_written(batch, touched)
    assert tuple(notes.waiting) == ("a",)
    assert notes.known("b") == record("b")


def test_a_batch_is_bounded_and_what_waits_longest_comes_first() -> None:
    notes = SessionNotes()
    for number in range(MAX_BATCH + 1):
        notes.keep(record(str(number)))
    batch, _ = notes.next_batch()
    assert [each.key for each in batch] == [str(number) for number in range(MAX_BATCH)]
    notes.were_written(batch, {})
    assert tuple(notes.waiting) == (str(MAX_BATCH),)


def test_times_of_use_go_with_the_record_or_alone_and_are_written_once() -> None:
    notes = SessionNotes()
    notes.read(record("read", at=1))
    notes.keep(record("kept", at=1))
    for key in ("read", "kept", "unknown"):
        notes.touch(key, 5)
        notes.touch(key, 3)
    batch, touched = notes.next_batch()
    assert batch == (record("kept", at=5),)
    assert touched == {"read": 5, "unknown": 5}
    notes.touch("unknown", 6)
    notes.were_written(batch, touched)
    assert notes.next_batch() == ((), {"unknown": 6})
    assert notes.known("read") == record("read", at=5)
    assert not notes.waiting


def test_what_is_on_disk_makes_room_for_what_is_not() -> None:
    notes = SessionNotes(most=3)
    for key in "abc":
        notes.read(record(key))
    for key in "xyz":
        notes.keep(record(key))
    assert tuple(notes.waiting) == ("x", "y", "z")
    assert notes.dropped == 0
    notes.keep(record("w"))
    assert tuple(notes.waiting) == ("y", "z", "w")
    assert notes.dropped == 1
    for number in range(10):
        notes.touch(str(number), 1)
    assert len(notes.next_batch()[1]) == 3


def test_when_the_store_begins_anew_all_that_is_known_is_to_be_written() -> None:
    notes = SessionNotes()
    notes.read(record("old", client="read"))
    notes.keep(record("old", client="kept"))
    notes.read(record("other"))
    notes.start_over()
    assert {each.key: each.client for each in notes.next_batch()[0]} == {"old": "kept", "other": ""}


def test_idle_ones_are_forgotten_but_live_ones_and_those_used_since() -> None:
    notes = SessionNotes()
    for key in ("idle", "live", "used"):
        notes.read(record(key, at=1))
    notes.keep(record("unwritten", at=1))
    notes.touch("used", 10)
    notes.forget(5, {"live"}, anonymous=5)
    assert [key for key in ("idle", "live", "used", "unwritten") if notes.known(key)] == ["live", "used"]


def test_those_that_nobody_has_named_are_forgotten_sooner() -> None:
    notes = SessionNotes()
    for key in ("named", anonymous_key("a" * 32) or ""):
        notes.read(record(key, at=3))
    notes.forget(1, (), anonymous=5)
    assert [each.key for each in notes.merged(None, 9)] == ["named"]


def test_the_list_has_ours_in_place_of_the_stores_and_the_latest_first() -> None:
    notes = SessionNotes()
    notes.keep(record("a", at=5, client="ours"))
    merged = notes.merged([record("a", at=1), record("b", at=3), record("c", at=4)], 2)
    assert [(each.key, each.client) for each in merged] == [("a", "ours"), ("c", "")]
    notes.read(record("z", at=9))
    assert [each.key for each in notes.merged(None, 5)] == ["z", "a"]


def test_a_part_is_put_together_with_what_is_stored_before_it_counts() -> None:
    notes = SessionNotes()
    part = attrs.evolve(session("a", "write"), created_at=START + 9, partial=True)
    notes.keep(part)
    assert (partial(notes), notes.unwritten("a"), notes.known("a")) == (("a",), None, part)
    whole = notes.complete("a", session("a", "read"))
    assert whole is not None
    assert [tool for _server, tool in whole.loaded.tools] == ["read", "write"]
    assert (whole.created_at, whole.partial, partial(notes)) == (START, False, ())
    assert notes.next_batch() == ((whole,), {})
    # Whoever kept the part may not know of the whole yet, which is not written.
    notes.keep(part)
    assert notes.complete("a", session("a", "read")) == whole


def test_a_part_of_what_nobody_has_stored_is_the_whole() -> None:
    notes = SessionNotes()
    notes.keep(attrs.evolve(session("a", "write"), partial=True))
    assert notes.complete("a", None) == session("a", "write")
    assert notes.complete("b", None) is None
    assert notes.complete("c", session("c")) == notes.known("c") == session("c")


def test_what_another_daemon_loaded_joins_what_was_loaded_here() -> None:
    notes = SessionNotes()
    theirs = session("key", "theirs")
    assert notes.joined(theirs) == theirs
    assert not notes.waiting
    notes.keep(session("key", "ours"))
    both = notes.joined(theirs)
    assert set(both.loaded.tools) == {("a", "theirs"), ("a", "ours")}
    assert notes.unwritten("key") == both


KEYS = st.sampled_from("abcd")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("keep"), KEYS),
            st.tuples(st.just("take"), KEYS),
            st.tuples(st.just("written"), KEYS),
            st.tuples(st.just("failed"), KEYS),
            st.tuples(st.just("touch"), KEYS),
        )
    )
)
def test_whatever_fails_in_between_the_disk_has_the_newest_in_the_end(steps: list[tuple[str, str]]) -> None:
    notes, disk, newest, at = SessionNotes(), dict[str, SessionRecord](), dict[str, SessionRecord](), 0.0
    batch = notes.next_batch()
    for step, key in [*steps, ("take", ""), ("written", "")]:
        at += 1
        if step == "keep":
            newest[key] = record(key, at, client=str(at))
            notes.keep(newest[key])
        elif step == "touch":
            notes.touch(key, at)
            if key in newest:
                newest[key] = attrs.evolve(newest[key], seen_at=at)
        elif step == "take":
            batch = notes.next_batch()
        elif step == "written":
            disk.update({each.key: each for each in batch[0]})
            disk.update({k: attrs.evolve(disk[k], seen_at=used) for k, used in batch[1].items() if k in disk})
            notes.were_written(*batch)
            batch = ((), {})
    assert disk == newest
    assert not notes.waiting


def test_what_was_counted_is_written_once_and_added_to_what_is_there() -> None:
    counted = {"loads": 0, "hits": 3}
    totals = Totals(lambda: counted)
    totals.read({"loads": 10, "gone": 4}, 5.0)
    assert totals.known == {"loads": 10, "hits": 3, "gone": 4}
    assert totals.news == {"hits": 3}
    totals.were_written({"hits": 3}, 99.0)
    assert (totals.news, totals.since) == ({}, 5.0)
    counted["loads"] = 2
    assert totals.news == {"loads": 2}
    assert totals.known == {"loads": 12, "hits": 3, "gone": 4}


def test_what_is_counted_during_a_write_is_news_afterwards() -> None:
    counted = {"loads": 1}
    totals = Totals(lambda: counted)
    news = totals.news
    counted["loads"] = 5
    totals.were_written(news, 7.0)
    assert totals.news == {"loads": 4}
    assert totals.since == 7.0


def test_a_store_that_has_lost_everything_gets_all_that_is_known() -> None:
    counted = {"loads": 1}
    totals = Totals(lambda: counted)
    totals.read({"loads": 10, "gone": 4}, 5.0)
    totals.were_written(totals.news, 6.0)
    totals.start_over()
    assert totals.known == {"loads": 11}
    assert totals.news == {"loads": 11}
    totals.were_written(totals.news, 8.0)
    assert (totals.known, totals.news, totals.since) == ({"loads": 11}, {}, 5.0)


def test_a_store_that_is_read_again_is_believed() -> None:
    counted = {"loads": 1}
    totals = Totals(lambda: counted)
    totals.were_written(totals.news, 6.0)
    counted["loads"] = 3
    totals.read({"loads": 20}, 2.0)
    assert totals.known == {"loads": 22}
    assert totals.news == {"loads": 2}


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


HOUR = 500_000
START_HOURS = HOUR * SECONDS + 7.0


class Clock:
    """A clock that is set by the test, and counters."""

    def __init__(self, **counted: int) -> None:
        self.now = START_HOURS
        self.counted = dict(counted)
        self.hours = HourlyCounts(lambda: self.counted, lambda: self.now)


def test_what_is_counted_belongs_to_the_hour_of_now() -> None:
    clock = Clock(loads=5)
    assert clock.hours.gather() == {}, "what was counted before belongs to no hour"
    clock.counted["loads"] = 7
    assert clock.hours.gather() == {(HOUR, "loads"): 2}
    clock.now += SECONDS
    clock.counted["loads"] = 8
    assert clock.hours.gather() == {(HOUR, "loads"): 2, (HOUR + 1, "loads"): 1}


def test_what_was_written_is_no_news() -> None:
    clock = Clock()
    clock.counted["loads"] = 2
    written = clock.hours.gather()
    clock.counted["loads"] = 3
    clock.hours.gather()
    clock.hours.were_written(written)
    assert clock.hours.gather() == {(HOUR, "loads"): 1}


def test_a_server_that_was_away_counts_from_zero() -> None:
    clock = Clock(**{"calls:git": 10})
    clock.counted = {}
    clock.hours.gather()
    clock.counted = {"calls:git": 3}
    assert clock.hours.gather() == {(HOUR, "calls:git"): 3}
    clock.counted = {"calls:git": 1}
    assert clock.hours.gather() == {(HOUR, "calls:git"): 4}


def test_hours_that_wait_for_a_store_are_bounded() -> None:
    clock = Clock()
    for number in range(WAITING + 20):
        clock.now = START_HOURS + number * SECONDS
        clock.counted["loads"] = number + 1
        clock.hours.gather()
    assert len(clock.hours.gather()) == WAITING


def test_what_waits_is_read_with_what_is_stored() -> None:
    clock = Clock()
    clock.counted = {"loads": 2, "calls:git": 1}
    stored = {(HOUR, "loads"): 5, (HOUR - 1, "loads"): 4}
    assert clock.hours.joined(stored, START_HOURS - SECONDS) == {
        "loads": [((HOUR - 1) * SECONDS, 4), (HOUR * SECONDS, 7)],
        "calls:git": [(HOUR * SECONDS, 1)],
    }
    assert clock.hours.joined({}, START_HOURS + SECONDS) == {}


def test_what_a_store_has_lost_is_news_again_as_far_as_it_is_recent() -> None:
    clock = Clock()
    clock.counted["loads"] = 1
    clock.hours.were_written(clock.hours.gather())
    clock.now += WAITING * SECONDS
    clock.counted["loads"] = 3
    clock.hours.were_written(clock.hours.gather())
    clock.counted["loads"] = 4

    clock.hours.start_over()

    assert clock.hours.gather() == {(HOUR + WAITING, "loads"): 3}
    clock.hours.were_written(clock.hours.gather())
    assert clock.hours.gather() == {}
