"""Bytes become lines, long ones in parts, and stay whole until a connection has taken all of them."""

import socket
from collections.abc import Iterator

import pytest

from daemon.bridge.frames import LONG_BYTES, Cutter, Gatherer, Outgoing, cut

LONG = b"x" * (LONG_BYTES + 1)
LINE = b"x" * 60_000 + b"\n"
FOUR = b"one\ntwo\n\na\rb\r\n"


@pytest.mark.parametrize("size", [1, 2, 5, len(FOUR)])
def test_lines_are_whole_in_whatever_portions_they_come(size: int) -> None:
    cutter, gatherer = Cutter(), Gatherer()
    portions = [FOUR[start : start + size] for start in range(0, len(FOUR), size)]
    pieces = [piece for portion in (b"", *portions) for piece in cutter.feed(portion)]
    lines = [line for portion in portions for line in gatherer.feed(portion)]
    assert lines == cut(FOUR) == [b"one\n", b"two\n", b"\n", b"a\rb\r\n"]
    assert pieces == [(line, True, True) for line in lines]


def test_only_a_long_line_of_a_client_passes_in_parts() -> None:
    cutter = Cutter()
    assert cutter.feed(b"x" * LONG_BYTES) == []
    assert cutter.feed(b"\n") == [(b"x" * LONG_BYTES + b"\n", True, True)]
    assert cutter.feed(b"short\n" + LONG) == [(b"short\n", True, True), (LONG, True, False)]
    assert (cutter.midway, cutter.is_between) == (True, False)
    assert cutter.feed(b"yy") == [(b"yy", False, False)]
    assert cutter.feed(b"z\nnext\nhal") == [(b"z\n", False, True), (b"next\n", True, True)]
    assert (cutter.midway, cutter.is_between) == (False, False)
    assert cutter.rest() == b"hal"
    cutter.feed(LONG)
    assert cutter.rest() == b""
    assert cutter.is_between
    assert cutter.feed(b"c\n") == [(b"c\n", True, True)]


class Pair:
    """A connection to a daemon that takes only what `take` asks for."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.settimeout(30)
        self.out = Outgoing()

    def take(self, count: int) -> bytes:
        taken = b""
        while len(taken) < count:
            taken += self.theirs.recv(count - len(taken))
        return taken

    def fill(self) -> int:
        """Fill the kernel's buffer; return the number of bytes."""
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


@pytest.mark.parametrize("at_once", [True, False])
def test_the_first_line_that_was_not_sent_completely_is_kept_whole(pair: Pair, *, at_once: bool) -> None:
    out, lines = pair.out, LINE * 20
    if at_once:
        assert out.pass_on(b"one\n", pair.ours)
        assert out.gone == 4
        pair.take(4)
        assert not out.pass_on(lines, pair.ours)
    else:
        out.put(lines)
        assert not out.send(pair.ours)
    sent = len(lines) - out.unsent
    whole = sent - sent % len(LINE)
    assert sent > 0
    assert out.gone == whole + 4 * at_once
    pair.take(sent)
    assert b"".join(out.withdraw()) == lines[whole:]


@pytest.mark.parametrize(
    ("queued", "kept"),
    [(b"before\n" + LONG + b"\nafter\n", [b"before\n", b"after\n"]), (b"whole\nhal", [b"whole\n"])],
)
def test_a_full_connection_gives_back_whole_lines(pair: Pair, queued: bytes, kept: list[bytes]) -> None:
    pair.fill()
    pair.out.put(queued)
    assert not pair.out.send(pair.ours)
    assert pair.out.withdraw() == kept
    pair.out.put(b"new\n")
    assert pair.out.withdraw() == [b"new\n"]


def test_the_beginning_of_a_long_line_is_let_go_and_the_rest_is_not_sent_again(pair: Pair) -> None:
    long = b"y" * (4 * LONG_BYTES) + b"\n"
    pair.out.put(long + b"next\n")
    taken = 0
    while taken <= 2 * LONG_BYTES:
        pair.out.send(pair.ours)
        taken += len(pair.theirs.recv(LONG_BYTES))
    assert 0 < pair.out.gone < len(long)
    assert pair.out.withdraw() == [b"next\n"]


def test_lines_wait_for_a_full_connection_and_survive_a_broken_one(pair: Pair) -> None:
    out, filling = pair.out, pair.fill()
    assert not out.pass_on(LINE, pair.ours)
    assert (out.unsent, out.gone) == (len(LINE), 0)
    pair.take(filling)
    assert out.send(pair.ours)
    assert pair.take(len(LINE)) == LINE
    pair.theirs.close()
    assert not out.pass_on(LINE, pair.ours)
    assert (out.deaf, out.withdraw(), out.deaf) == (True, [LINE], False)
    out.put(b"one\n")
    assert not out.send(pair.ours)
    assert not out.send(pair.ours)
    assert out.withdraw() == [b"one\n"]
