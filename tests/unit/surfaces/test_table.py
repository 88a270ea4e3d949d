"""Which surface a client gets: two switches, both of which must be on for a lazy one (seed 002, §9)."""

from itertools import product
from typing import Any

import pytest

from daemon.operators.report_words import SURFACES as WORDS
from daemon.surfaces import table
from tests.unit.cases import cases
from tests.unit.config.reading import config_of


def pick(
    profile: dict[str, Any], *, lazy: bool = True, surface: str | None = None, wish: bool | None = None
) -> str:
    config = config_of({"lazy": lazy, "profiles": {"p": profile}})
    return table.choice_of(config, config.profiles["p"], surface=surface, lazy=wish).surface


def test_every_surface_has_its_words_for_operators() -> None:
    assert list(WORDS) == ["auto", *table.SURFACES]
    assert all(surface.name == name for name, surface in table.SURFACES.items())


@pytest.mark.parametrize(("everywhere", "here"), list(product([True, False], repeat=2)))
@pytest.mark.parametrize("surface", ["category", "load"])
@pytest.mark.parametrize("wish", [None, True])
def test_only_with_both_switches_on_a_surface_is_lazy(
    surface: str, *, everywhere: bool, here: bool, wish: bool | None
) -> None:
    asked = "search" if wish else None
    name = pick({"surface": surface, "lazy": here}, lazy=everywhere, surface=asked, wish=wish)
    if everywhere and here:
        assert name == ("search" if wish else surface)
    else:
        assert name == "full"


@cases("profile", "surface", "lazy", "name")
def test_what_a_client_asks_for_comes_before_what_its_profile_says(
    profile: dict[str, Any], surface: str | None, lazy: bool | None, name: str
) -> None:
    assert pick(profile, surface=surface, wish=lazy) == name


def test_what_each_profile_shows_is_known_without_a_client() -> None:
    profiles = {"off": {"lazy": False}, "found": {"surface": "search"}}
    assert table.by_profile(config_of({"profiles": profiles})) == {
        "default": "auto",
        "off": "full",
        "found": "search",
    }
    assert set(table.by_profile(config_of({"lazy": False, "profiles": profiles})).values()) == {"full"}


# --- which surface fits a client, by what it says it is ------------------------------------------------------


FEW = 84
"""Tools of the ten servers that clients were tried with."""


def fit(name: str, version: str, tools: int = FEW) -> tuple[str, str]:
    choice = table.fitting(table.ClientInfo(name, version), lambda: tools)
    return choice.surface, str(choice.grounds)


SEARCHES = ("full", "searches_itself")


@cases("name", "version", "found", "defers")
def test_a_client_is_known_by_its_name_and_version(
    name: str, version: str, found: list[str], *, defers: bool
) -> None:
    assert list(fit(name, version)) == found
    assert table.may_defer(table.ClientInfo(name, version)) is defers


@pytest.mark.parametrize("known", table.SEARCHING_CLIENTS, ids=lambda known: known.name)
def test_a_client_is_given_as_many_tools_as_it_can_take_and_else_categories(known: object) -> None:
    client = next(each for each in table.SEARCHING_CLIENTS if each is known)
    version = ".".join(map(str, client.since))
    assert fit(client.name, version, client.tools) == SEARCHES
    assert fit(client.name, version, client.tools + 1) == ("category", "too_many_tools")


def test_tools_are_counted_only_where_their_number_decides() -> None:
    def count() -> int:
        raise AssertionError

    for name, version in (("opencode", "1"), ("claude-code", "2.1.197"), ("codex", "?"), ("", "")):
        assert table.fitting(table.ClientInfo(name, version), count).surface == "category"


def test_of_what_a_client_says_it_is_only_so_much_is_kept() -> None:
    endless = table.ClientInfo("n" * 10_000, "v" * 10_000)
    assert len(endless.name) == len(endless.version) == len(endless.text) == table.MAX_TOLD
    assert table.ClientInfo("n", "1").text == "n 1"
    assert table.ClientInfo("", "").text == ""


def test_a_profile_gets_the_tools_that_it_asks_for_and_always_the_same_surface() -> None:
    config = config_of({"profiles": {"plain": {}, "reads": {"readResource": True}}})
    plain, reads = config.profiles["plain"], config.profiles["reads"]
    for surface in table.SURFACES.values():
        assert table.for_profile(surface, plain) is surface
        added = table.for_profile(surface, reads)
        assert added.meta_tools == (*surface.meta_tools, "read_resource")
        assert table.for_profile(surface, reads) is added
        assert table.for_profile(added, reads) is added
