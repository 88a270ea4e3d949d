"""What is known of words beforehand: the files are there, and hold what they should."""

from importlib.resources import files

import pytest

from daemon.search.language import CLOSE, STOP_WORDS, ToolAction, action_of, actions_of, language, stem
from tests.unit.cases import cases


def test_frequencies_are_counts_of_public_tools() -> None:
    known = language()
    assert known.tools > 5000
    assert all(0 < count <= known.tools for count in known.frequencies.values())
    assert known.frequencies["get"] > known.frequencies["weather"] > 0


def test_words_of_one_group_are_neighbours_by_their_stems() -> None:
    near = dict(language().near(stem("delete")))
    assert near[stem("remove")] == CLOSE


# --- what needs ask for and what tools do --------------------------------------------------------------------


@cases("need", "actions")
def test_a_need_asks_for_the_verbs_that_are_no_nouns(need: str, actions: list[str]) -> None:
    assert {each.name for each in actions_of(need)} == set(actions)


@cases("name", "action")
def test_a_tool_does_what_the_first_verb_of_its_name_says(name: str, action: str) -> None:
    assert action_of(name) is ToolAction[action]


# --- the lists of words: what they promise to hold -----------------------------------------------------------


@pytest.mark.parametrize("word", ["please", "help", "need", "show", "give", "the", "with"])
def test_the_words_of_asking_find_nothing(word: str) -> None:
    assert word in STOP_WORDS


def test_each_group_of_synonyms_has_different_words_that_are_looked_up() -> None:
    groups = (files("daemon.search") / "data" / "synonyms.txt").read_text(encoding="utf-8").splitlines()
    for words in map(str.split, groups):
        assert len(set(words)) == len(words) >= 2, words
        assert not set(words) & STOP_WORDS, words
        assert all(word == word.lower() for word in words), words
