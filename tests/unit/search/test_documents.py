"""What of a tool is searched, and what counts most."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.model import Summary
from daemon.search.language import (
    MAX_DEPTH,
    MAX_TEXT,
    MAX_VALUES,
    MAX_WORD,
    deprecated,
    document,
    plain,
    stem,
    terms,
    without_praise,
)
from tests.unit.cases import cases
from tests.unit.catalog.samples import tool


def weights(name: str = "x", server: str = "s", about: str = "", **members: Any) -> dict[str, float]:
    return dict(document(tool(server, name, **members), about).weights)


def of(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_the_fields_count_in_this_order() -> None:
    found = [
        weights(name="pelican")["pelican"],
        weights(server="pelican")["pelican"],
        weights(description="pelican and sixteen further words of one text as any real thing has it")[
            "pelican"
        ],
        weights(inputSchema=of({"pelican": {}}))["pelican"],
        weights(inputSchema=of({"y": {"description": "pelican"}}))["pelican"],
    ]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(found)
    assert weights(about="pelican")["pelican"] < found[2]
    assert weights(inputSchema=of({"y": {"enum": ["pelican"]}}))["pelican"] < found[2]


def test_parameters_are_found_at_every_level_that_is_looked_into() -> None:
    schema: dict[str, Any] = {"deepest": {}}
    for level in range(MAX_DEPTH + 2):
        schema = {f"level{level}q": {"type": "array", "items": of(schema)} if level % 2 else of(schema)}
    found = weights(inputSchema=of(schema))
    assert "level5q" not in found
    assert "q" in found
    assert "deepest" not in found


@cases("schema")
def test_an_odd_schema_costs_its_own_words_only(schema: dict[str, Any]) -> None:
    assert weights(name="pelican", inputSchema=schema)["pelican"] > 0


@pytest.mark.parametrize(
    "place", [{"properties": {"pelican": {}}}, {"items": of({"pelican": {}})}, {"enum": ["heron", "pelican"]}]
)
def test_a_parameter_is_found_by_its_parts_items_and_values(place: dict[str, Any]) -> None:
    assert "pelican" in weights(inputSchema=of({"y": place}))


@pytest.mark.parametrize(
    "members",
    [
        {"description": "word " * MAX_TEXT + "pelican"},
        {"inputSchema": of({"y": {"description": "word " * MAX_TEXT + "pelican"}})},
        {"inputSchema": of({"y": {"enum": [*map(str, range(MAX_VALUES)), "pelican"]}})},
    ],
    ids=["description", "parameter", "values"],
)
def test_what_is_beyond_a_bound_is_not_read(members: dict[str, Any]) -> None:
    assert "pelican" not in weights(**members)


def said(text: str = "", *keywords: str) -> Summary:
    return Summary(text=text, keywords=keywords)


def test_the_words_of_a_model_are_found_and_count_less_than_the_description() -> None:
    plain = tool("s", "x", description="heron")
    sentence = document(plain, "", said("pelican")).weights
    keyword = document(plain, "", said("", "pelican")).weights
    assert 0 < sentence["pelican"] < keyword["pelican"] < keyword["heron"]
    assert document(plain, "").weights == document(plain, "", said()).weights


# --- what tools say of themselves ----------------------------------------------------------------------------


@cases("text", "rest", "praise")
def test_words_of_praise_are_taken_out_and_counted(text: str, rest: str, praise: int) -> None:
    said, count = without_praise(text)
    assert (" ".join(said.split()), count) == (rest, praise)


@cases("name", "members")
def test_a_tool_that_says_so_is_deprecated(name: str, members: dict[str, Any]) -> None:
    assert deprecated(tool("files", name, **members))


@cases("name", "members")
def test_a_tool_that_speaks_of_other_things_is_not(name: str, members: dict[str, Any]) -> None:
    assert not deprecated(tool("files", name, **members))


# --- from text to terms: the same words in every spelling are the same terms ---------------------------------


@cases("text", "found")
def test_words_are_split_folded_and_stemmed(text: str, found: list[str]) -> None:
    assert terms(text) == found


@pytest.mark.parametrize(
    "words", [("repository", "repositories"), ("commit", "commits", "committed"), ("image", "images")]
)
def test_forms_of_a_word_have_one_stem(words: tuple[str, ...]) -> None:
    assert len({stem(word) for word in words}) == 1


def test_what_is_too_long_to_be_a_word_is_none() -> None:
    assert terms("a" * (MAX_WORD + 1)) == []
    assert all(len(term) <= MAX_WORD for term in terms("é" * 1000))


@pytest.mark.parametrize("name", ["read_file", "Read File", "read-file", "READ__FILE", " read/file "])
def test_names_are_compared_whatever_stands_between_their_words(name: str) -> None:
    assert plain(name) == "read_file"


@given(st.text())
def test_any_text_has_terms_or_none(text: str) -> None:
    assert all(terms(text))
    plain(text)
