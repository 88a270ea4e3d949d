"""Where a client sits: what it asks for, and what it has loaded."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.catalog.loaded import Source
from daemon.seat import Seat
from daemon.surfaces.base import Loading
from tests.fakes_upstream import Stage


def seat(hello: dict[str, Any] | None = None, **written: Any) -> Seat:
    taken = Seat(Stage(**written).context)
    if hello is not None:
        taken.greet(hello)
    return taken


PROFILES = {"default": {"surface": "load"}, "small": {"categories": ["alpha"], "surface": "search"}}


@pytest.mark.parametrize(
    ("hello", "profile", "surface"),
    [
        (None, "default", "load"),
        ({}, "default", "load"),
        ({"profile": "small"}, "small", "search"),
        ({"surface": "browse"}, "default", "browse"),
        ({"profile": "small", "surface": "category"}, "small", "category"),
        ({"lazy": True}, "default", "browse"),
        ({"lazy": False}, "default", "full"),
        ({"profile": 7, "surface": ["x"], "lazy": "yes"}, "default", "load"),
    ],
)
def test_a_client_gets_what_it_asks_for_and_else_what_its_profile_says(
    hello: dict[str, Any] | None, profile: str, surface: str
) -> None:
    taken = seat(hello, profiles=PROFILES)
    assert (taken.profile.name, taken.surface.name, taken.denied) == (profile, surface, "")


@pytest.mark.parametrize("hello", [{"surface": "browse"}, {"lazy": True}, {}])
def test_with_the_master_switch_off_everybody_gets_everything(hello: dict[str, Any]) -> None:
    assert seat(hello, lazy=False, profiles=PROFILES).surface.name == "full"


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        ({"profile": "smal"}, "there is no profile 'smal' in mcpd's configuration; there are: default, small"),
        ({"surface": "brose"}, "there is no surface 'brose'; there are: category, browse, search, load, full"),
        ({"surface": "brose", "lazy": False}, "there is no surface 'brose'"),
        ({"profile": "x" * 1000}, "there is no profile 'xxx"),
    ],
)
def test_what_does_not_exist_denies_everything_and_says_what_there_is(
    hello: dict[str, Any], reason: str
) -> None:
    denied = seat(hello, profiles=PROFILES).denied
    assert denied.startswith(reason)
    assert len(denied) < 300


def test_a_default_profile_with_a_surface_that_nobody_has_denies_too() -> None:
    stage = Stage()
    surfaces = {"full": stage.context.surfaces["full"]}
    assert "no surface 'category'" in Seat(Stage(surfaces=surfaces).context).denied


def test_tools_that_a_call_has_loaded_are_remembered_as_they_are_now() -> None:
    taken = seat()
    assert taken.load(Loading(tools=(("alpha", "echo"), ("alpha", "gone")), source=Source.AUTO))
    (loaded,) = taken.loaded.tools.values()
    assert (loaded.key, loaded.epoch, loaded.source) == (("alpha", "echo"), 1, "auto")
    assert taken.view().loaded is taken.loaded


def test_loading_the_same_again_is_no_change() -> None:
    taken = seat()
    assert taken.load(Loading(tools=(("alpha", "echo"),)))
    assert not taken.load(Loading(tools=(("alpha", "echo"),)))
    assert not taken.load(Loading())


def test_what_the_profile_does_not_show_is_not_loaded() -> None:
    taken = seat({"profile": "small"}, profiles=PROFILES)
    assert not taken.load(Loading(tools=(("beta", "echo"),)))
