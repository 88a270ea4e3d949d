"""What is known of words beforehand: the files are there, and hold what they should."""

from __future__ import annotations

from daemon.search.language import CLOSE, language, stem


def test_frequencies_are_counts_of_public_tools() -> None:
    known = language()
    assert known.tools > 5000
    assert all(0 < count <= known.tools for count in known.frequencies.values())
    assert known.frequencies["get"] > known.frequencies["weather"] > 0


def test_neighbours_come_closest_first_and_are_no_more_than_the_same() -> None:
    for term, others in language().neighbours.items():
        closeness = [number for _, number in others]
        assert closeness == sorted(closeness, reverse=True)
        assert all(0 < number <= 1 for number in closeness)
        assert term not in dict(others)


def test_words_of_one_group_are_neighbours_by_their_stems() -> None:
    near = dict(language().neighbours[stem("delete")])
    assert near[stem("remove")] == CLOSE


def test_it_is_read_once() -> None:
    assert language() is language()
