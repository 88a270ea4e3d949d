"""Messages as server-sent events, and the log from which a client that comes back is served."""

from __future__ import annotations

import pytest

from daemon.clients.doors.http.replies import (
    LISTENING,
    MAX_KEPT,
    MAX_KEPT_BYTES,
    EventLog,
    UnknownEvent,
    event,
    priming,
)


def test_a_message_is_one_event_whatever_line_ends_are_in_it() -> None:
    assert b"".join(map(bytes, event((b'{"a":\r\n', b"1}")))) == b'data: {"a":  1}\n\n'
    assert b"".join(map(bytes, event((b"{}",), b"1-2"))) == b"id: 1-2\ndata: {}\n\n"


def test_an_event_without_data_says_when_to_come_back() -> None:
    assert priming(b"1-2") == b"id: 1-2\nretry: 1000\ndata: \n\n"


def test_what_was_missed_is_of_the_same_stream_and_in_order() -> None:
    log = EventLog()
    first, second = log.open_stream(), log.open_stream()
    begun = log.add(first)
    log.add(second, (b"other",))
    log.add(LISTENING, (b"unasked",))
    ids = [log.add(first, (b"a", b"%d" % number)) for number in range(2)]
    assert log.after(begun.decode()) == (first, [(ids[0], b"a0"), (ids[1], b"a1")])
    assert log.after(ids[0].decode()) == (first, [(ids[1], b"a1")])
    assert log.after(ids[1].decode()) == (first, [])


@pytest.mark.parametrize(
    "never", ["", "x", "1", "1-", "-1", "9-1", "1-9", "1-0", "-1--1", "1-1-1", "1-²", "1" * 30]
)
def test_an_id_that_was_never_given_is_refused(never: str) -> None:
    log = EventLog()
    log.add(log.open_stream(), (b"a",))
    with pytest.raises(UnknownEvent):
        log.after(never)


def test_the_oldest_events_are_dropped() -> None:
    log = EventLog()
    ids = [log.add(LISTENING, (b"%d" % number,)) for number in range(MAX_KEPT + 10)]
    missed = log.after(ids[0].decode())[1]
    assert (len(missed), missed[0][1]) == (MAX_KEPT, b"10")


def test_so_are_many_bytes_and_one_event_that_is_too_long_is_not_kept() -> None:
    log = EventLog()
    first = log.add(LISTENING, (b"x",))
    for _ in range(5):
        log.add(LISTENING, (bytes(MAX_KEPT_BYTES // 2),))
    assert len(log.after(first.decode())[1]) == 2
    log.add(LISTENING, (bytes(MAX_KEPT_BYTES + 1),))
    assert len(log.after(first.decode())[1]) == 2
