"""Open requests: what may have run, what certainly has not, what can be asked again."""

from __future__ import annotations

from daemon.cli.bridging.requests import CALL, KEPT_BYTES, WITHOUT_EFFECT, OpenRequests

PING = b'"ping"'


def test_what_is_answered_is_no_longer_open() -> None:
    ledger = OpenRequests()
    ledger.note(b"1", CALL, 10)
    ledger.note(b'"1"', CALL, 20)
    entry = ledger.settle(b"1")
    assert entry is not None
    assert entry.id == b"1"
    assert ledger.settle(b"1") is None
    assert len(ledger) == 1


def test_what_was_sent_to_its_end_may_have_run_and_nothing_else() -> None:
    ledger = OpenRequests()
    for number, end in enumerate((10, 20, 30)):
        ledger.note(b"%d" % number, CALL, end)
    doubtful, safe = ledger.take(20)
    assert [entry.id for entry in doubtful] == [b"0", b"1"]
    assert list(safe) == [b"2"]
    assert len(ledger) == 0


def test_only_what_has_no_effect_is_kept_to_be_asked_again() -> None:
    ledger = OpenRequests()
    for method in (*WITHOUT_EFFECT, CALL, b'"prompts/get"', None):
        ledger.note(method or b"0", method, 0, line=b"line")
    doubtful, _ = ledger.take(0)
    assert {entry.method for entry in doubtful if entry.line == b"line"} == WITHOUT_EFFECT


def test_what_is_kept_has_a_bound_that_answers_make_room_in() -> None:
    ledger = OpenRequests()
    ledger.note(b"1", PING, 0, line=b"x" * KEPT_BYTES)
    ledger.note(b"2", PING, 0, line=b"y")
    ledger.settle(b"1")
    ledger.note(b"3", PING, 0, line=b"z")
    doubtful, _ = ledger.take(0)
    assert [entry.line for entry in doubtful] == [None, b"z"]


def test_an_id_that_is_used_twice_at_a_time_is_open_once() -> None:
    ledger = OpenRequests()
    ledger.note(b"1", PING, 0, line=b"x" * KEPT_BYTES)
    ledger.note(b"1", PING, 5, line=b"y", until=3.0)
    doubtful, _ = ledger.take(9)
    assert [(entry.line, entry.until) for entry in doubtful] == [(b"y", 3.0)]


def test_a_call_that_was_noted_in_short_is_a_request_like_any_other() -> None:
    ledger = OpenRequests()
    ledger.note(b"1", PING, 10, line=b"line")
    ledger.note_call(b"2", 20)
    ledger.note(b"3", PING, 30)
    ledger.note_call(b"1", 40)
    assert len(ledger) == 3
    ledger.note(b"2", CALL, 50)
    doubtful, safe = ledger.take(40)
    assert [(entry.id, entry.method, entry.line) for entry in doubtful] == [
        (b"3", PING, None),
        (b"1", CALL, None),
    ]
    assert list(safe) == [b"2"]
    assert len(ledger) == 0


def test_a_call_that_was_noted_in_short_can_be_settled() -> None:
    ledger = OpenRequests()
    ledger.note_call(b"1", 10)
    entry = ledger.settle(b"1")
    assert entry is not None
    assert (entry.id, entry.method, entry.end, entry.line) == (b"1", CALL, 10, None)
    assert ledger.settle(b"1") is None
    assert len(ledger) == 0
