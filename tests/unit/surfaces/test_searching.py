"""Finding tools, for models and operators alike."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from daemon.errors import UnknownCategory
from daemon.surfaces.calling import find_tools, scored
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool
from tests.unit.surfaces.samples import view_of

CONFIG: dict[str, Any] = {
    "mcpServers": servers("a", "b"),
    "categories": {
        "one": {"server": "a", "tools": {"includeNames": ["write_note"]}},
        "two": {"tools": {"includeNames": ["a/write_note", "b/play_song"]}},
    },
    "profiles": {"p": {"categories": ["one"]}},
}
VIEW = view_of(
    after(
        catalog_of(CONFIG),
        [
            status("a"),
            status("b"),
            listed("a", tool("a", "write_note", description="Writes\n a note."), "other"),
            listed("b", "play_song"),
        ],
    )
)


def names(*phrasings: str, category: str | None = None, limit: int = 10) -> list[str]:
    return [offered.name for offered, _ in find_tools(VIEW, phrasings, category, limit).tools]


def test_a_tool_is_found_in_every_category_that_holds_it() -> None:
    assert names("note", category="one") == names("note", category="two") == ["write_note"]
    assert names("song", category="one") == []


def test_without_a_query_everything_is_found_up_to_the_limit_and_counted() -> None:
    assert names() == names("", " ") == ["write_note", "other", "play_song"]
    findings = find_tools(VIEW, [], None, 2)
    assert [offered.name for offered, _ in findings.tools] == ["write_note", "other"]
    assert findings.total == 3
    assert find_tools(VIEW, [], "two", 10).total == 2


def test_an_unknown_category_is_refused() -> None:
    with pytest.raises(UnknownCategory):
        find_tools(VIEW, ["note"], "three", 10)


def test_only_what_the_profile_offers_is_found() -> None:
    limited = view_of(VIEW.catalog, "p")
    assert find_tools(limited, ["song"], None, 10).tools == []
    assert [offered.name for offered, _ in find_tools(limited, [], None, 10).tools] == ["write_note"]


def test_an_operator_sees_scores_and_the_category_that_was_asked_for() -> None:
    told: Any = scored(VIEW, ["write a note"], "two", 1)
    (first,) = told["tools"]
    assert first["score"] > 0
    assert (first["name"], first["server"], first["category"], first["description"]) == (
        "write_note",
        "a",
        "two",
        "Writes a note.",
    )
    assert told["total"] >= 1


def test_where_a_profile_offers_everything_the_same_is_found_as_among_all_of_its_tools() -> None:
    offer, index = VIEW.offer, VIEW.services.index()
    assert offer.is_everything
    for words in ("note", "play a song", "other", "write_note"):
        among = index.search([words], within=set(offer.tools), limit=10)
        found = find_tools(VIEW, [words], None, 10)
        assert [(each.key, score) for each, score in found.tools] == [(h.key, h.score) for h in among.hits]
        assert found.total == among.total


def test_what_a_server_has_no_more_is_not_found_while_the_index_still_has_it() -> None:
    gone = after(VIEW.catalog, [listed("b", "write_song")])
    later = attrs.evolve(VIEW, catalog=gone)
    assert find_tools(later, ["song"], None, 10).total == 0
