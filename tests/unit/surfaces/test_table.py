"""Which surface a client gets: two switches, both of which must be on for a lazy one (seed 002, §9)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from daemon.surfaces.table import SURFACES, by_profile, chosen
from tests.unit.config.reading import config_of


def pick(
    profile: dict[str, Any], *, lazy: bool = True, surface: str | None = None, wish: bool | None = None
) -> str:
    config = config_of({"lazy": lazy, "profiles": {"p": profile}})
    return chosen(config, config.profiles["p"], surface=surface, lazy=wish)


def test_there_are_the_five() -> None:
    assert list(SURFACES) == ["category", "browse", "search", "load", "full"]
    assert all(surface.name == name for name, surface in SURFACES.items())


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


@pytest.mark.parametrize(
    ("profile", "surface", "lazy", "name"),
    [
        ({}, None, None, "auto"),
        ({"surface": "auto"}, None, None, "auto"),
        ({"surface": "load"}, "auto", None, "auto"),
        ({}, "category", None, "category"),
        ({}, "auto", True, "auto"),
        ({}, "auto", False, "full"),
        ({"surface": "load"}, None, None, "load"),
        ({"surface": "load"}, "search", None, "search"),
        ({"surface": "load"}, None, True, "browse"),
        ({"surface": "load"}, "search", True, "search"),
        ({"surface": "load"}, None, False, "full"),
        ({"surface": "load"}, "search", False, "full"),
        ({"surface": "load"}, "full", True, "full"),
        ({"deferredLoading": True}, None, None, "search"),
        ({"deferredLoading": False}, None, None, "full"),
        ({"deferredLoading": True}, "browse", None, "browse"),
        ({"deferredLoading": False}, None, True, "browse"),
    ],
)
def test_what_a_client_asks_for_comes_before_what_its_profile_says(
    profile: dict[str, Any], surface: str | None, lazy: bool | None, name: str
) -> None:
    assert pick(profile, surface=surface, wish=lazy) == name


def test_what_each_profile_shows_is_known_without_a_client() -> None:
    profiles = {"off": {"lazy": False}, "found": {"surface": "search"}}
    assert by_profile(config_of({"profiles": profiles})) == {
        "default": "auto",
        "off": "full",
        "found": "search",
    }
    assert set(by_profile(config_of({"lazy": False, "profiles": profiles})).values()) == {"full"}
