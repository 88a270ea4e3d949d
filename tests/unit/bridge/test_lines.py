"""Lines out of portions, and long ones in parts."""

from __future__ import annotations

import pytest

from daemon.bridge.lines import LONG_BYTES, Cutter, Gatherer, cut

LONG = b"x" * (LONG_BYTES + 1)


def fed(*portions: bytes) -> list[tuple[bytes, bool, bool]]:
    cutter = Cutter()
    return [piece for portion in portions for piece in cutter.feed(portion)]


@pytest.mark.parametrize(
    "portions",
    [
        [b"one\ntwo\n\nfour\n"],
        [b"one\n", b"two\n", b"\n", b"four\n"],
        [b"on", b"e", b"\ntw", b"o\n", b"\nfo", b"ur\n"],
        [bytes([byte]) for byte in b"one\ntwo\n\nfour\n"],
    ],
)
def test_lines_are_whole_however_they_come(portions: list[bytes]) -> None:
    assert fed(*portions) == [(line, True, True) for line in (b"one\n", b"two\n", b"\n", b"four\n")]


def test_a_carriage_return_ends_no_line() -> None:
    assert fed(b"a\rb\r\n") == [(b"a\rb\r\n", True, True)]


def test_nothing_of_a_short_line_is_given_out_before_its_end() -> None:
    cutter = Cutter()
    assert cutter.feed(b"x" * LONG_BYTES) == []
    assert cutter.feed(b"\n") == [(b"x" * LONG_BYTES + b"\n", True, True)]


def test_a_long_line_passes_in_parts_as_it_comes() -> None:
    cutter = Cutter()
    assert cutter.feed(b"short\n" + LONG) == [(b"short\n", True, True), (LONG, True, False)]
    assert cutter.midway
    assert cutter.feed(b"yy") == [(b"yy", False, False)]
    assert cutter.feed(b"z\nnext\n") == [(b"z\n", False, True), (b"next\n", True, True)]
    assert not cutter.midway


def test_what_was_not_finished_can_be_taken_and_is_then_forgotten() -> None:
    cutter = Cutter()
    cutter.feed(b"a\nhal")
    assert cutter.rest() == b"hal"
    assert cutter.feed(b"b\n") == [(b"b\n", True, True)]
    cutter.feed(LONG)
    assert cutter.rest() == b""
    assert cutter.feed(b"c\n") == [(b"c\n", True, True)]


def test_nothing_makes_nothing() -> None:
    assert fed(b"") == []


def test_whole_lines_are_cut_without_losing_a_byte() -> None:
    assert cut(b"one\n") == [b"one\n"]
    assert cut(b"one\n\r\n\nfour\n") == [b"one\n", b"\r\n", b"\n", b"four\n"]


def test_between_lines_nothing_of_one_is_held_or_was_given_out() -> None:
    cutter = Cutter()
    for portion, is_between in ((b"", True), (b"a", False), (b"\n", True), (LONG, False), (b"\nb", False)):
        cutter.feed(portion)
        assert cutter.is_between is is_between
    cutter.rest()
    assert cutter.is_between


# --- what the daemon says -------------------------------------------------------------------------------------


def test_a_line_of_the_daemons_is_given_out_whole_however_long_it_is() -> None:
    gatherer = Gatherer()
    assert gatherer.feed(b"one\ntwo\n") == [b"one\n", b"two\n"]
    for _ in range(5):
        assert gatherer.feed(LONG) == []
        assert not gatherer.is_between
    assert gatherer.feed(b"!\nnext\nha") == [LONG * 5 + b"!\n", b"next\n"]
    assert gatherer.feed(b"lf\n") == [b"half\n"]
    assert gatherer.is_between


def test_what_a_daemon_has_not_finished_is_forgotten_with_it() -> None:
    gatherer = Gatherer()
    assert gatherer.feed(b"ha") == []
    gatherer.clear()
    assert gatherer.feed(b"new\n") == [b"new\n"]
