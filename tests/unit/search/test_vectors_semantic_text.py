"""What is encoded of a tool and of a query."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.search.vectors import (
    DESCRIPTION_CHARACTERS,
    PARAMETERS_CHARACTERS,
    PHRASING_CHARACTERS,
    PHRASINGS,
    SERVER_CHARACTERS,
    passage_of_query,
    passage_of_tool,
)
from tests.unit.catalog.samples import tool


def texts(server: str = "", **members: Any) -> list[str]:
    return [text for _, text in passage_of_tool(tool("git-hub", "listPull_requests", **members), server)]


def test_a_tool_is_its_lead_its_whole_and_its_parameters() -> None:
    schema = {"type": "object", "properties": {"repoName": {"description": "Which one."}, "page": {}}}
    assert texts("Code.", description="Lists them. All of them.", inputSchema=schema) == [
        "git hub list Pull requests. Lists them.",
        "git hub list Pull requests. Lists them. All of them. Code.",
        "list Pull requests: repo Name page Which one.",
    ]


@pytest.mark.parametrize(
    ("description", "lead"),
    [
        ("One. Two.", "One."),
        ("Really? Yes.", "Really?"),
        ("First line\nsecond", "First line"),
        ("第一句。第二句", "第一句"),
        ("  v1.2 of it. More", "v1.2 of it."),
        ("x" * 500, "x" * 300),
        ("", ""),
    ],
)
def test_the_lead_is_the_first_sentence(description: str, lead: str) -> None:
    assert texts(description=description)[0] == f"git hub list Pull requests. {lead}"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": []},
        {"type": "object", "properties": None},
    ],
)
def test_a_schema_without_parameters_leaves_the_name(schema: dict[str, Any]) -> None:
    assert texts(inputSchema=schema)[2] == "list Pull requests: "


@pytest.mark.parametrize("described", [True, 1, "text", [], {"description": 5}, {"description": None}])
def test_a_parameter_that_says_nothing_is_its_name(described: object) -> None:
    assert texts(inputSchema={"type": "object", "properties": {"a": described}})[2] == "list Pull requests: a"


def test_praise_means_nothing() -> None:
    praising = passage_of_tool(tool("bank", "PREFERRED_pay", description="OFFICIAL: pays."), "")
    assert not any("PREFERRED" in text or "OFFICIAL" in text for _, text in praising)


def test_long_texts_are_cut() -> None:
    schema = {"type": "object", "properties": {"p": {"description": "z" * 5000}}}
    lead, whole, parameters = texts("y" * 5000, description="x" * 5000, inputSchema=schema)
    assert len(lead) < 400
    assert (whole.count("x"), whole.count("y")) == (DESCRIPTION_CHARACTERS, SERVER_CHARACTERS)
    assert parameters.count("z") == PARAMETERS_CHARACTERS - len("p ")


def test_a_query_is_its_phrasings_alike_each_once() -> None:
    assert passage_of_query(["a b", " a b ", "c"]) == ((1.0, "a b"), (1.0, "c"))


@pytest.mark.parametrize("phrasings", [[], [""], [" \n\t"]])
def test_a_query_that_says_nothing_is_empty(phrasings: list[str]) -> None:
    assert passage_of_query(phrasings) == ()


def test_a_query_is_bounded_in_phrasings_and_in_their_length() -> None:
    passage = passage_of_query([f"{number} " + "x" * 2 * PHRASING_CHARACTERS for number in range(1000)])
    assert len(passage) == PHRASINGS
    assert {len(text) for _, text in passage} == {PHRASING_CHARACTERS}


def test_lone_surrogates_do_not_reach_a_tokenizer() -> None:
    ((_, text),) = passage_of_query(["a\ud800b"])
    assert text == "a?b"
