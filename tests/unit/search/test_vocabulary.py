"""Which words are meant by what was asked for, and what each counts: seen in what an index finds by them."""

from __future__ import annotations

import pytest

from daemon.search.index import MOST_READ, Index, Vocabulary
from daemon.search.queries import read
from daemon.search.segment import Segment
from tests.unit.catalog.samples import after, catalog_of, listed, servers, tool
from tests.unit.search.test_index import CATALOG, INDEX, found, of, score


def test_a_rarer_word_counts_more_and_one_that_nothing_has_the_most() -> None:
    tools = [tool("a", f"t{i}", description="pelican" if i else "pelican heron") for i in range(9)]
    catalog = after(catalog_of({"mcpServers": servers("a")}), [listed("a", *tools)])
    words = Vocabulary(Segment(entry, None) for entry in catalog.servers.values())
    assert 0 < words.rarity("pelican") < words.rarity("heron") < words.rarity("ibis")
    assert words.rarity_of_all(("heron",)) == 0
    assert words.rarity_of_all(("heron", "ibis")) == words.rarity("heron") + words.rarity("ibis")


def test_a_synonym_finds_but_counts_less_than_the_word_itself() -> None:
    assert found("erase") == ["files/delete_file"]
    both = of(tool("a", "x", description="delete it"), tool("a", "y", description="remove it"))
    assert [found(need, index=both)[0] for need in ("delete", "remove")] == ["a/x", "a/y"]


def test_a_synonym_beside_the_word_takes_nothing_from_it() -> None:
    beside = of(tool("a", "x", description="delete remove"))
    alone = of(tool("a", "x", description="delete pelican"))
    assert score(beside, "delete") == score(alone, "delete")


def test_a_mended_word_counts_less_than_one_that_was_written_right() -> None:
    assert 0 < score(INDEX, "comit") < score(INDEX, "commit")


def test_an_english_word_is_no_spelling_mistake_of_another() -> None:
    index = of(tool("a", "x", description="maintain"))
    assert found("maintian", index=index) == ["a/x"]
    assert found("mountain", index=index) == []


def test_a_distant_neighbour_stands_for_a_word_that_no_tool_has() -> None:
    comment, remark = tool("a", "x", description="comment"), tool("a", "y", description="remark")
    assert found("remark", index=of(comment)) == ["a/x"]
    assert found("remark", index=of(comment, remark)) == ["a/y"]


def test_of_a_need_that_would_read_too_much_the_rarest_words_count() -> None:
    words = [f"zz{one}{other}q" for one in "abcdefgh" for other in "abcdefgh"][:63]
    many = [tool("git", f"n{i}", description=" ".join(words)) for i in range(MOST_READ // len(words) + 1)]
    index = Index().updated(after(CATALOG, [listed("git", *many)]).servers)
    with_all, with_one_less = (index.search([" ".join(asked)]).hits[0] for asked in (words, words[:-1]))
    assert with_all.score == pytest.approx(with_one_less.score)
    assert ("clock", "get_current_time") in index.scores(read([" ".join(["zone", *words])]), None)
