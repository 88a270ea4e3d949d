"""Which profiles sessions were given."""

from __future__ import annotations

from daemon.clients.client import MAX_MOVED, Moves


def test_the_last_move_of_a_session_counts_and_no_other_session_is_moved() -> None:
    moves = Moves()
    moves.note("a", "review")
    assert (moves.of("a"), moves.of("b"), moves.of(None)) == ("review", None, None)
    moves.note("a", "default")
    assert moves.of("a") == "default"


def test_no_more_moves_are_remembered_than_anybody_makes() -> None:
    moves = Moves()
    for number in range(MAX_MOVED + 1):
        moves.note(f"k{number}", "review")
    assert (moves.of("k0"), moves.of("k1"), moves.of(f"k{MAX_MOVED}")) == (None, "review", "review")
