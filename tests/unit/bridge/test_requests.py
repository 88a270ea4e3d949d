"""Open requests: what may have run, what has not, what can be asked again; and what waits, and how long."""

from __future__ import annotations

from daemon.bridge.requests import (
    CALL,
    EACH_BYTES,
    KEPT_BYTES,
    KEPT_CALL_BYTES,
    WAITING_BYTES,
    WITHOUT_EFFECT,
    Item,
    OpenRequests,
    Waiting,
)

PING = b'"ping"'


def test_what_is_answered_is_no_longer_open() -> None:
    requests = OpenRequests()
    requests.note(b"1", CALL, 10)
    requests.note(b'"1"', CALL, 20)
    entry = requests.settle(b"1")
    assert entry is not None
    assert entry.id == b"1"
    assert requests.settle(b"1") is None
    assert len(requests) == 1


def test_what_was_sent_to_its_end_may_have_run_and_nothing_else() -> None:
    requests = OpenRequests()
    for number, end in enumerate((10, 20, 30)):
        requests.note(b"%d" % number, CALL, end)
    doubtful, safe = requests.take(20, set())
    assert [entry.id for entry in doubtful] == [b"0", b"1"]
    assert list(safe) == [b"2"]
    assert len(requests) == 0


def test_a_call_that_the_daemon_has_passed_on_to_nobody_has_not_run() -> None:
    requests = OpenRequests()
    requests.note_call(b"1", 10, b"one")
    requests.note(b"2", CALL, 20, line=b"two")
    requests.note_call(b"3", 30, b"three")
    doubtful, safe = requests.take(30, {b"1", b"2", b"answered"})
    assert [entry.id for entry in doubtful] == [b"3"]
    assert [entry.line for entry in safe.values()] == [b"one", b"two"]
    assert requests.kept == 0


def test_calls_and_what_has_no_effect_are_kept_and_nothing_else() -> None:
    requests = OpenRequests()
    for method in (*WITHOUT_EFFECT, CALL, b'"prompts/get"', None):
        requests.note(method or b"0", method, 0, line=b"line")
    doubtful, _ = requests.take(0, set())
    assert {entry.method for entry in doubtful if entry.line == b"line"} == {*WITHOUT_EFFECT, CALL}


def test_what_is_kept_has_a_bound_that_answers_make_room_in() -> None:
    requests = OpenRequests()
    requests.note(b"1", PING, 0, line=b"x" * KEPT_BYTES)
    requests.note(b"2", PING, 0, line=b"y")
    requests.settle(b"1")
    requests.note(b"3", PING, 0, line=b"z")
    doubtful, _ = requests.take(0, set())
    assert [entry.line for entry in doubtful] == [None, b"z"]
    requests.note_call(b"1", 0, b"x" * KEPT_CALL_BYTES)
    requests.note_call(b"2", 0, b"y")
    requests.note_call(b"1", 0, b"z")
    doubtful, _ = requests.take(0, set())
    assert [entry.line for entry in doubtful] == [None, b"z"]


def test_calls_take_no_room_from_requests_without_effect() -> None:
    requests = OpenRequests()
    requests.note_call(b"1", 0, b"x" * KEPT_CALL_BYTES)
    requests.note(b"2", CALL, 0, line=b"y")
    requests.note(b"3", PING, 0, line=b"z")
    doubtful, _ = requests.take(0, set())
    assert [entry.line for entry in doubtful if entry.id != b"1"] == [None, b"z"]


def test_an_id_that_is_used_twice_at_a_time_is_open_once() -> None:
    requests = OpenRequests()
    requests.note(b"1", PING, 0, line=b"x" * KEPT_BYTES)
    requests.note(b"1", PING, 5, line=b"y", until=3.0)
    doubtful, _ = requests.take(9, set())
    assert [(entry.line, entry.until) for entry in doubtful] == [(b"y", 3.0)]


def test_a_call_that_was_noted_in_short_is_a_request_like_any_other() -> None:
    requests = OpenRequests()
    requests.note(b"1", PING, 10, line=b"line")
    requests.note_call(b"2", 20, b"x")
    requests.note(b"3", PING, 30)
    requests.note_call(b"1", 40, b"call")
    assert len(requests) == 3
    requests.note(b"2", CALL, 50)
    doubtful, safe = requests.take(40, set())
    assert [(entry.id, entry.method, entry.line) for entry in doubtful] == [
        (b"3", PING, None),
        (b"1", CALL, b"call"),
    ]
    assert list(safe) == [b"2"]
    assert len(requests) == 0


def test_a_call_that_was_noted_in_short_can_be_settled() -> None:
    requests = OpenRequests()
    requests.note_call(b"1", 10, b"call")
    entry = requests.settle(b"1")
    assert entry is not None
    assert (entry.id, entry.method, entry.end, entry.line) == (b"1", CALL, 10, b"call")
    assert requests.settle(b"1") is None
    assert len(requests) == 0


def item(number: int, *, until: float = 0.0, line: bytes = b"line") -> Item:
    return Item(b"%d" % number, b'"ping"', line, until)


def test_lines_leave_in_the_order_in_which_they_came() -> None:
    waiting = Waiting()
    assert all(waiting.put(item(number)) for number in range(3))
    assert [each.id for each in waiting.take()] == [b"0", b"1", b"2"]
    assert waiting.take() == []


def test_there_is_room_for_so_much_and_no_more() -> None:
    waiting = Waiting()
    assert waiting.put(item(1, line=b"x" * (WAITING_BYTES - EACH_BYTES)))
    assert not waiting.put(item(2, line=b""))
    waiting.cancel(b"1")
    assert waiting.put(item(3))


def test_short_lines_have_a_bound_as_well() -> None:
    waiting = Waiting()
    kept = sum(waiting.put(item(number, line=b"\n")) for number in range(5000))
    assert 1000 < kept < 2048 + 1


def test_what_is_taken_back_does_not_wait() -> None:
    waiting = Waiting()
    for number in (1, 2):
        waiting.put(item(number))
    waiting.cancel(b"1")
    waiting.cancel(b"9")
    assert [each.id for each in waiting.take()] == [b"2"]


def test_nothing_waits_longer_than_it_may() -> None:
    waiting = Waiting()
    assert waiting.deadline() is None
    for number, until in ((1, 30.0), (2, 10.0), (3, 20.0)):
        waiting.put(item(number, until=until))
    assert waiting.deadline() == 10.0
    assert [each.id for each in waiting.expired(20.0)] == [b"2", b"3"]
    assert waiting.deadline() == 30.0
    assert waiting.expired(20.0) == []
