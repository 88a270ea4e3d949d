"""The lists of words: what they promise to hold."""

from __future__ import annotations

import pytest

from daemon.search.language import STOP_WORDS, SYNONYMS


@pytest.mark.parametrize("word", ["please", "help", "need", "show", "give", "the", "with"])
def test_the_words_of_asking_find_nothing(word: str) -> None:
    assert word in STOP_WORDS


@pytest.mark.parametrize("group", SYNONYMS, ids=lambda group: str(group[0]))
def test_a_group_of_synonyms_has_different_words_that_are_looked_up(group: tuple[str, ...]) -> None:
    assert len(set(group)) == len(group) >= 2
    assert not set(group) & STOP_WORDS
    assert all(word == word.lower() for word in group)
