"""What of a tool is searched, and what counts most."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.model import Summary
from daemon.search.documents import K1, MAX_DEPTH, MAX_TEXT, MAX_VALUES, digest_of, document
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


def test_a_weight_saturates_and_long_texts_count_less() -> None:
    assert weights(description="pelican " * 500)["pelican"] < K1 + 1
    assert (
        weights(description="pelican " + "word " * 100)["pelican"] < weights(description="pelican")["pelican"]
    )


def test_parameters_are_found_at_every_level_that_is_looked_into() -> None:
    schema: dict[str, Any] = {"deepest": {}}
    for level in range(MAX_DEPTH + 2):
        schema = {f"level{level}q": {"type": "array", "items": of(schema)} if level % 2 else of(schema)}
    found = weights(inputSchema=of(schema))
    assert "level5q" not in found
    assert "q" in found
    assert "deepest" not in found


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": True, "b": None, "c": []}},
        {"type": "object", "properties": {"a": {"enum": [None, 5, {}], "description": 7, "items": [1]}}},
    ],
)
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


def test_a_tool_knows_the_terms_of_its_name() -> None:
    made = document(tool("my-git", "git_Log"), "about")
    assert made.key == ("my-git", "git_Log")
    assert made.name_terms == {"git", "log"}


def said(text: str = "", *keywords: str) -> Summary:
    return Summary(text=text, keywords=keywords)


def test_the_words_of_a_model_are_found_and_count_less_than_the_description() -> None:
    plain = tool("s", "x", description="heron")
    sentence = document(plain, "", said("pelican")).weights
    keyword = document(plain, "", said("", "pelican")).weights
    assert 0 < sentence["pelican"] < keyword["pelican"] < keyword["heron"]
    assert document(plain, "").weights == document(plain, "", said()).weights


def test_a_document_is_made_of_the_words_of_a_model_too() -> None:
    known = tool("s", "x")
    assert digest_of(known, "about") == (known.schema_hash, "about")
    digest = digest_of(known, "about", said("Does x.", "a", "b"))
    assert digest == (known.schema_hash, "about", "Does x.", "a", "b")
