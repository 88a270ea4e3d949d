"""Open requests: those that may have run, those that have not, and those that wait."""

from daemon.bridge.requests import (
    CALL,
    EACH_BYTES,
    KEPT_BYTES,
    KEPT_CALL_BYTES,
    PING,
    WAITING_BYTES,
    WITHOUT_EFFECT,
    Item,
    OpenRequests,
    Waiting,
)


def lines_of(requests: OpenRequests) -> list[bytes]:
    """The lines of all open requests, which are taken."""
    return [entry.line for entry in requests.take(0, set())[0]]


def test_requests_that_were_sent_to_their_end_may_have_run_unless_the_daemon_says_otherwise() -> None:
    requests = OpenRequests()
    requests.note(b"1", PING, 10, line=b"one")
    requests.note_call(b"2", 20, b"two")
    requests.note(b"3", PING, 30)
    requests.note_call(b"1", 40, b"call")
    assert len(requests) == 3
    requests.note(b"2", CALL, 50)
    requests.note_call(b"4", 35, b"unsent")
    doubtful, safe = requests.take(40, {b"4", b"answered"})
    assert [(entry.id, entry.method, entry.line) for entry in doubtful] == [
        (b"3", PING, b""),
        (b"1", CALL, b"call"),
    ]
    assert [(key, entry.line) for key, entry in safe.items()] == [(b"4", b"unsent"), (b"2", b"")]
    assert (len(requests), requests.kept) == (0, 0)


def test_calls_and_requests_without_effect_are_kept_within_bounds_of_their_own() -> None:
    requests = OpenRequests()
    for method in (*WITHOUT_EFFECT, CALL, b'"prompts/new"', None):
        requests.note(method or b"0", method, 0, line=b"line")
    doubtful, _ = requests.take(0, set())
    assert {entry.method for entry in doubtful if entry.line == b"line"} == {*WITHOUT_EFFECT, CALL}
    requests.note(b"1", PING, 0, line=b"x" * KEPT_BYTES)
    requests.note(b"2", PING, 0, line=b"y")
    requests.note(b"1", PING, 0, line=b"z")
    assert lines_of(requests) == [b"", b"z"]
    requests.note_call(b"1", 0, b"x" * KEPT_CALL_BYTES)
    requests.note_call(b"2", 0, b"y")
    requests.note(b"3", CALL, 0, line=b"y")
    requests.note(b"4", PING, 0, line=b"z")
    requests.note_call(b"1", 0, b"z")
    assert sorted(map(str, lines_of(requests))) == ["b''", "b''", "b'z'", "b'z'"]


def test_waiting_lines_have_room_by_bytes_and_by_number() -> None:
    waiting = Waiting()
    assert waiting.put(Item(b"1", PING, b"x" * (WAITING_BYTES - EACH_BYTES), 0.0))
    assert not waiting.put(Item(b"2", PING, b"", 0.0))
    waiting.cancel(b"1")
    kept = sum(waiting.put(Item(b"%d" % number, PING, b"\n", 0.0)) for number in range(5000))
    assert 1000 < kept < 2048 + 1
