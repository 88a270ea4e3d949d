"""Typing errors: one edit is forgiven, two in long words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.search.index import MAX_COMPARED, MOST, Speller

SPELLER = Speller()
SPELLER.learn(
    ["weather", "repositori", "commit", "file", "calendar", "notes", "notec", "notef", "notek", "log"]
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("wether", ["weather"]),
        ("weahter", ["weather"]),
        ("xeather", ["weather"]),
        ("weatherr", ["weather"]),
        ("comit", ["commit"]),
        ("repsitroi", ["repositori"]),
        ("calender", ["calendar"]),
        ("calemdra", ["calendar"]),
        ("wthr", []),
        ("wexxher", []),
        ("lgo", []),
        ("fil", []),
        ("file1", []),
        ("l0g5", []),
        ("", []),
    ],
)
def test_a_word_with_a_typing_error_is_known(written: str, meant: list[str]) -> None:
    assert SPELLER.corrections(written) == meant


def test_of_many_words_the_closest_few_are_meant() -> None:
    assert len(SPELLER.corrections("notex")) == MOST


def test_a_word_is_compared_with_so_many_others_only() -> None:
    speller = Speller()
    speller.learn(f"abc{'x' * number}" for number in range(1, MAX_COMPARED + 1))
    speller.learn(["abcdef"])
    assert speller.corrections("abcdeg") == []


@given(st.text(alphabet="abc", min_size=4, max_size=9), st.data())
def test_every_word_is_found_by_one_edit_that_leaves_an_end_of_it(word: str, data: st.DataObject) -> None:
    speller = Speller()
    speller.learn([word])
    place = data.draw(st.integers(3, len(word)))
    mistyped = word[:place] + "z" + word[place:]
    assert speller.corrections(mistyped) == [word]
