"""What waits for a daemon: so much, and so long."""

from __future__ import annotations

from daemon.cli.bridging.waiting import EACH_BYTES, WAITING_BYTES, Item, Waiting


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
