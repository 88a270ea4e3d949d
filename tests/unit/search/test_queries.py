"""What was asked for: read within bounds."""

from __future__ import annotations

import pytest

from daemon.search.language import ToolAction
from daemon.search.queries import (
    MAX_CHARACTERS,
    MAX_CLAUSES,
    MAX_PHRASINGS,
    MAX_SUBSTRINGS,
    MAX_TERMS,
    MAX_TERMS_IN_ALL,
    read,
)


def test_each_phrasing_has_its_different_terms() -> None:
    assert read(["read a file, the file", "open documents"]).phrases == (("read", "file"), ("open", "document"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("read_file", ("read_file",)),
        ("Read File", ("read_file",)),
        ("run git/git_log now", ("run_git_git_log_now", "git_git_log")),
        ("mcp__git__git_log", ("mcp_git_git_log",)),
    ],
)
def test_a_phrasing_and_words_that_look_like_names_may_be_names(text: str, names: tuple[str, ...]) -> None:
    assert read([text]).names == names


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("mbol", ("mbol",)),
        ("a", ("a",)),
        ("t_", ("t",)),
        ("_", ("_",)),
        ("%s';--", ()),
        ("two words", ()),
        ("", ()),
    ],
)
def test_a_single_word_is_looked_for_within_names(text: str, parts: tuple[str, ...]) -> None:
    assert read([text]).substrings == parts


@pytest.mark.parametrize("texts", [[], [""], ["  ", "\n"], ["🛠"], ["the of"]])
def test_nothing_asked_for_has_no_terms(texts: list[str]) -> None:
    assert read(texts).phrases == ()


def test_whatever_is_asked_for_is_cut() -> None:
    long = read([" ".join(f"word{number}x" for number in range(100_000))])
    assert len(long.phrases[0]) <= MAX_TERMS
    assert sum(map(len, long.phrases[0])) <= MAX_CHARACTERS
    assert len(read(["file"] * 10_000).phrases) == MAX_PHRASINGS
    assert read(["file " * MAX_CHARACTERS + "tail"]).phrases == (("file",),)
    assert len(read([" ".join(f"a_{number}" for number in range(1000))]).names) == MAX_TERMS + 1


def test_many_long_phrasings_are_cut_together() -> None:
    texts = [
        " ".join(f"word{'abcdefghijklmnop'[i]}{'abcdefghijklmnopqrstuvwxyz'[j]}" for j in range(26))
        for i in range(16)
    ]
    phrases = read(texts).phrases
    assert sum(map(len, phrases)) == MAX_TERMS_IN_ALL
    assert phrases[0] == read(texts[:1]).phrases[0]


def test_only_so_many_words_are_looked_for_within_names() -> None:
    assert read([f"part_{i}" for i in range(9)]).substrings == tuple(f"part_{i}" for i in range(MAX_SUBSTRINGS))


def test_a_need_of_several_parts_has_clauses_with_what_each_asks_for() -> None:
    query = read(["I lost my phone! Please cancel the old contract and create a new contract, now."])
    assert [(clause.terms, clause.asked) for clause in query.clauses] == [
        (("lost", "phone"), frozenset()),
        (("cancel", "old", "contract"), {ToolAction.REMOVE}),
        (("creat", "new", "contract"), {ToolAction.MAKE}),
    ]
    assert query.asked == frozenset()


@pytest.mark.parametrize(
    "text",
    ["create a contract", "read and write files", "files, folders, links", "read long files, big folders", ""],
)
def test_a_need_of_one_part_has_no_clauses(text: str) -> None:
    assert read([text]).clauses == ()


def test_the_parts_of_a_need_are_its_clauses_also_where_only_one_says_what_to_do() -> None:
    query = read(["I lost my phone! Please cancel the contract.", "phone contract"])
    assert query.clauses == ()
    assert query.asked == {ToolAction.REMOVE}
    assert query.parts == (("lost", "phone"), ("cancel", "contract"), ("phone", "contract"))


def test_what_is_asked_for_is_read_of_all_phrasings() -> None:
    assert read(["schedule a meeting", "find a free slot"]).asked == {ToolAction.MAKE, ToolAction.READ}


def test_clauses_are_bounded() -> None:
    assert len(read(["find big trees. " * 120] * 3).clauses) == MAX_CLAUSES
