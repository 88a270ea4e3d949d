"""What is on its way to the daemon, over real sockets."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from daemon.bridge.lines import LONG_BYTES, Outgoing

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE = b"x" * 60_000 + b"\n"


class Pair:
    """A connection; the daemon's end takes only what `take` asks for."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.settimeout(30)

    def take(self, count: int) -> bytes:
        taken = b""
        while len(taken) < count:
            taken += self.theirs.recv(count - len(taken))
        return taken

    def fill(self) -> int:
        """Leave no room in the kernel; how many bytes of filling that took."""
        count = 0
        while True:
            try:
                count += self.ours.send(b"f" * 4096)
            except BlockingIOError:
                return count


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    with pair.ours, pair.theirs:
        yield pair


def test_what_is_sent_to_its_end_is_gone(pair: Pair) -> None:
    out = Outgoing()
    out.put(b"one\ntwo\n")
    assert (out.unsent, out.gone) == (8, 0)
    assert out.send(pair.ours)
    assert (out.unsent, out.gone, out.total) == (0, 8, 8)
    assert pair.take(8) == b"one\ntwo\n"
    assert out.withdraw() == []


def test_a_line_of_which_a_part_was_sent_can_be_sent_again_whole(pair: Pair) -> None:
    out = Outgoing()
    lines = [b"%d" % number + LINE for number in range(30)]
    out.put(b"".join(lines))
    assert not out.send(pair.ours)
    whole = out.gone // len(lines[0])
    assert 0 < out.unsent < out.total
    back = out.withdraw()
    assert back == lines[-len(back) :]
    # Those that are gone were sent; at most one more was, and that in part.
    assert out.total - sum(map(len, back)) == sum(map(len, lines[: len(lines) - len(back)]))
    assert whole <= len(lines) - len(back)


def test_of_a_long_line_the_beginning_is_let_go_and_nothing_is_left_to_send_again(pair: Pair) -> None:
    out = Outgoing()
    long = b"y" * (4 * LONG_BYTES) + b"\n"
    out.put(long + b"next\n")
    taken = 0
    while taken <= 2 * LONG_BYTES:
        out.send(pair.ours)
        taken += len(pair.theirs.recv(LONG_BYTES))
    assert 0 < out.gone < len(long)
    assert out.withdraw() == [b"next\n"]


def test_a_long_line_is_not_kept_even_if_nothing_of_it_was_sent(pair: Pair) -> None:
    out = Outgoing()
    pair.fill()
    out.put(b"before\n" + b"y" * (LONG_BYTES + 1) + b"\nafter\n")
    assert not out.send(pair.ours)
    assert out.withdraw() == [b"before\n", b"after\n"]


def test_what_has_no_end_yet_is_not_sent_again(pair: Pair) -> None:
    out = Outgoing()
    pair.fill()
    out.put(b"whole\nhal")
    out.send(pair.ours)
    assert out.withdraw() == [b"whole\n"]
    out.put(b"new\n")
    assert out.withdraw() == [b"new\n"]


def test_what_ends_without_a_newline_is_sent_all_the_same(pair: Pair) -> None:
    out = Outgoing()
    out.put(b"one\nhal")
    assert out.send(pair.ours)
    assert pair.take(7) == b"one\nhal"
    assert out.withdraw() == []


def test_long_lines_arrive_byte_by_byte_as_they_were(pair: Pair) -> None:
    out = Outgoing()
    text = b"".join(bytes([65 + number]) * (LONG_BYTES + number) + b"\n" for number in range(5))
    taken = b""
    for start in range(0, len(text), 100_000):
        out.put(text[start : start + 100_000])
        out.send(pair.ours)
        taken += pair.theirs.recv(90_000)
    while len(taken) < len(text):
        out.send(pair.ours)
        taken += pair.theirs.recv(LONG_BYTES)
    assert taken == text
    assert out.send(pair.ours)
    assert out.gone == out.total == len(text)


def test_a_connection_that_takes_nothing_any_more_loses_nothing(pair: Pair) -> None:
    out = Outgoing()
    pair.theirs.close()
    out.put(b"one\n")
    assert not out.send(pair.ours)
    assert out.deaf
    assert not out.send(pair.ours)
    assert out.withdraw() == [b"one\n"]
    assert not out.deaf


def test_lines_are_passed_on_at_once_when_nothing_waits(pair: Pair) -> None:
    out = Outgoing()
    assert out.pass_on(b"one\ntwo\n", pair.ours)
    assert (out.unsent, out.gone, out.total) == (0, 8, 8)
    assert pair.take(8) == b"one\ntwo\n"


def test_of_lines_that_are_passed_on_the_first_unfinished_one_is_kept_whole(pair: Pair) -> None:
    out = Outgoing()
    lines = LINE * 20
    assert not out.pass_on(lines, pair.ours)
    sent = len(lines) - out.unsent
    assert sent > 0
    assert out.gone == sent - sent % len(LINE)
    pair.take(sent)
    assert b"".join(out.withdraw()) == lines[sent - sent % len(LINE) :]


def test_what_is_passed_on_to_a_full_or_a_broken_connection_waits(pair: Pair) -> None:
    out = Outgoing()
    filling = pair.fill()
    assert not out.pass_on(LINE, pair.ours)
    assert (out.unsent, out.gone) == (len(LINE), 0)
    pair.take(filling)
    assert out.send(pair.ours)
    assert pair.take(len(LINE)) == LINE
    pair.theirs.close()
    assert not out.pass_on(LINE, pair.ours)
    assert out.deaf
    assert out.withdraw() == [LINE]
