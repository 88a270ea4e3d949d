"""The vectors of all tools: made once for each schema, never changed, compared with queries."""

from __future__ import annotations

import attrs
import pytest

from daemon.catalog.entry import KnownList
from daemon.model import Kind
from daemon.search.vectors import BATCH, CLOSEST, MAX_TOOLS, Vectors
from tests.unit.catalog.samples import tool
from tests.unit.search.semantic_fakes import FakeEncoder, entry, servers

FS = {"delete_file": "Deletes a file.", "read_file": "Reads a file."}
SKY = {"get_weather": "The weather somewhere.", "get_tide": "High and low water."}


def names(count: int) -> dict[str, str]:
    return {f"t{number}": f"word{number}" for number in range(count)}


def test_another_word_for_it_finds_a_tool() -> None:
    vectors = Vectors(FakeEncoder()).updated(servers(fs=FS, sky=SKY))
    assert next(iter(vectors.similar(["will it rain"]))) == ("sky", "get_weather")
    assert next(iter(vectors.similar(["erase it"]))) == ("fs", "delete_file")


def test_phrasings_add_up() -> None:
    vectors = Vectors(FakeEncoder()).updated(servers(fs=FS, sky=SKY))
    assert set(vectors.similar(["umbrella", "erase"])) == {("sky", "get_weather"), ("fs", "delete_file")}


def test_the_nearest_come_first() -> None:
    cosines = list(Vectors(FakeEncoder()).updated(servers(fs=FS, sky=SKY)).similar(["delete a file"]).values())
    assert cosines == sorted(cosines, reverse=True)
    assert cosines[0] > cosines[-1]


def test_only_what_one_may_see_is_near() -> None:
    vectors = Vectors(FakeEncoder()).updated(servers(fs=FS, sky=SKY))
    assert list(vectors.similar(["rain"], within={("fs", "read_file")})) == [("fs", "read_file")]
    assert vectors.similar(["rain"], within=set()) == {}


def test_tools_of_one_name_on_two_servers_are_two() -> None:
    encoder = FakeEncoder()
    vectors = Vectors(encoder).updated(servers(a=FS, b=FS))
    assert [text.split()[0] for text in encoder.encoded] == ["a", "a", "b", "b"]
    assert set(vectors.similar(["delete"])) == {("a", "delete_file"), ("b", "delete_file")}


@pytest.mark.parametrize(
    ("tools", "near"), [(1, 1), (2, 1), (9, 4), (2 * CLOSEST, CLOSEST), (2 * CLOSEST + 50, CLOSEST)]
)
def test_so_many_are_near_and_never_more_than_half(tools: int, near: int) -> None:
    vectors = Vectors(FakeEncoder()).updated(servers(a=names(tools)))
    assert len(vectors.similar(["word1"])) == near


@pytest.mark.parametrize("phrasings", [[], [""], ["  ", "\n"]])
def test_a_query_without_words_is_near_to_nothing(phrasings: list[str]) -> None:
    assert Vectors(FakeEncoder()).updated(servers(fs=FS)).similar(phrasings) == {}


@pytest.mark.parametrize("known", [{}, {"a": None}, {"a": {}}])
def test_without_tools_nothing_is_near(known: dict[str, dict[str, str] | None]) -> None:
    vectors = Vectors(FakeEncoder()).updated(servers(**known))
    assert len(vectors) == 0
    assert vectors.similar(["rain"]) == {}


def test_the_same_tools_are_the_same_object() -> None:
    encoder = FakeEncoder()
    catalog = servers(fs=FS, sky=None)
    vectors = Vectors(encoder).updated(catalog)
    assert vectors.covers(catalog)
    assert vectors.updated(dict(catalog)) is vectors


def test_only_what_changed_is_encoded_again() -> None:
    encoder = FakeEncoder()
    catalog = servers(fs=FS, sky=SKY)
    vectors = Vectors(encoder).updated(catalog)
    encoder.encoded.clear()
    changed = vectors.updated({**catalog, "fs": entry("fs", {**FS, "read_file": "Reads anything."})})
    assert encoder.encoded == ["fs read file. Reads anything."]
    assert next(iter(changed.similar(["erase"]))) == ("fs", "delete_file")


def test_a_servers_new_description_changes_its_tools() -> None:
    encoder = FakeEncoder()
    catalog = servers(fs=FS, sky=SKY)
    vectors = Vectors(encoder).updated(catalog)
    encoder.encoded.clear()
    described = {**catalog, "sky": attrs.evolve(catalog["sky"], description="For sailors.")}
    assert not vectors.covers(described)
    vectors.updated(described)
    assert len(encoder.encoded) == len(SKY)


def test_a_tool_that_is_gone_is_forgotten_and_encoded_when_it_returns() -> None:
    encoder = FakeEncoder()
    catalog = servers(fs=FS, sky=SKY)
    without = Vectors(encoder).updated(catalog).updated({"fs": catalog["fs"]})
    assert ("sky", "get_weather") not in without.similar(["rain"])
    encoder.encoded.clear()
    without.updated(catalog)
    assert len(encoder.encoded) == len(SKY)


def test_an_update_leaves_the_old_vectors_as_they_were() -> None:
    old = Vectors(FakeEncoder()).updated(servers(sky=SKY))
    before = old.similar(["rain"])
    new = old.updated(servers(a=names(10)))
    assert old.similar(["rain"]) == before
    assert ("sky", "get_weather") not in new.similar(["rain"])


def test_step_by_step_is_the_same_as_at_once() -> None:
    catalog = servers(a=names(5), fs=FS, sky=SKY)
    stepwise = Vectors(FakeEncoder())
    for size in range(len(catalog) + 1):
        stepwise = stepwise.updated(dict(list(catalog.items())[:size]))
    for query in ("rain", "erase a file", "word3"):
        assert stepwise.similar([query]) == Vectors(FakeEncoder()).updated(catalog).similar([query])


def test_an_order_that_changed_is_followed() -> None:
    catalog = servers(fs=FS, sky=SKY)
    turned = Vectors(FakeEncoder()).updated(catalog).updated(dict(reversed(catalog.items())))
    assert next(iter(turned.similar(["rain"]))) == ("sky", "get_weather")


def test_texts_are_encoded_in_bounded_batches() -> None:
    encoder = FakeEncoder()
    Vectors(encoder).updated(servers(a=names(2 * BATCH + 1)))
    assert encoder.largest_batch == BATCH
    assert len(encoder.encoded) == 2 * BATCH + 1


def test_tools_beyond_the_bound_have_no_vectors() -> None:
    crowd = dict.fromkeys(map(str, range(MAX_TOOLS + 5)), tool("a", "t"))
    vectors = Vectors(FakeEncoder()).updated(
        {"a": attrs.evolve(entry("a", None), lists={Kind.TOOL: KnownList(definitions=crowd)})}
    )
    assert len(vectors) == MAX_TOOLS


def test_a_tool_near_to_a_clause_is_near_to_the_need() -> None:
    vectors = Vectors(FakeEncoder()).updated(servers(fs=FS, sky=SKY))
    whole = vectors.similar(["erase it and rain"])
    with_clauses = vectors.similar(["erase it and rain"], ["rain"])
    assert with_clauses["sky", "get_weather"] > whole.get(("sky", "get_weather"), 0.0)
    assert list(with_clauses.values()) == sorted(with_clauses.values(), reverse=True)
