"""Lists beside tools are written once for all clients, and anew when something in them changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.listen import DEFAULT_PROFILE
from daemon.model import Kind
from daemon.states import ServerState
from daemon.surfaces.surface import View
from tests.fakes_upstream import Stage

if TYPE_CHECKING:
    import trio

BARE = "bare"
"""A profile without prompts."""


def view(stage: Stage, profile: str = DEFAULT_PROFILE) -> View:
    catalog = stage.catalog.value
    return View(catalog=catalog, profile=catalog.config.profiles[profile], now=lambda: 0.0, means=stage.means)


async def test_a_list_is_the_same_object_until_something_in_it_changes(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={BARE: {"prompts": False}})
    stage.offers("alpha", Kind.PROMPT, "a")
    first = view(stage).offer.listed(Kind.PROMPT)
    assert len(first) == 1
    stage.becomes("alpha", ServerState.BACKOFF)
    assert view(stage).offer.listed(Kind.PROMPT) is first
    stage.lists("alpha", "another_tool")
    assert view(stage).offer.listed(Kind.PROMPT) == first
    stage.offers("beta", Kind.PROMPT, "a")
    both = view(stage).offer.listed(Kind.PROMPT)
    assert both[0] == first[0]
    assert len(both) == 2
    assert view(stage, BARE).offer.listed(Kind.PROMPT) == ()
    assert view(stage).offer.listed(Kind.RESOURCE) == ()
    assert view(stage).offer.listed(Kind.PROMPT) is both
