"""Where a client sits: what it asks for, and what it has loaded."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.catalog.loaded import Source
from daemon.catalog.shown import UNKNOWN
from daemon.facts import Configured, NamesRecalled, ToolsListed
from daemon.model import GivenName
from daemon.seat import Asked, Seat
from daemon.surfaces.base import Loading
from tests.fakes_upstream import Stage, tool, tools_of

if TYPE_CHECKING:
    from collections.abc import Callable


ECHO = ("alpha", "echo")


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


def asked(hello: dict[str, Any] | None = None, **written: Any) -> tuple[Stage, Asked]:
    stage = Stage(**written)
    taken = Seat(stage.context)
    if hello is not None:
        taken.greet(hello)
    return stage, Asked(taken, stage.sessions.unnamed(), stage.context)


def test_tools_that_a_call_has_loaded_are_remembered_as_they_are_now() -> None:
    _stage, guest = asked()
    guest.load(Loading(tools=(("alpha", "echo"), ("alpha", "gone")), source=Source.AUTO))
    (loaded,) = guest.conversation.loaded.tools.values()
    assert (loaded.key, loaded.epoch, loaded.source) == (("alpha", "echo"), 1, "auto")
    assert guest.view().loaded is guest.conversation.loaded


def test_loading_the_same_again_is_no_change() -> None:
    _stage, guest = asked()
    guest.load(Loading(tools=(("alpha", "echo"),)))
    before = guest.conversation.loaded
    guest.load(Loading(tools=(("alpha", "echo"),)))
    guest.load(Loading())
    assert guest.conversation.loaded is before


def test_what_the_profile_does_not_show_is_not_loaded() -> None:
    _stage, guest = asked({"profile": "small"}, profiles=PROFILES)
    guest.load(Loading(tools=(("beta", "echo"),)))
    assert not guest.conversation.loaded.tools


def test_a_client_knows_what_it_was_shown_until_it_is_shown_something_else() -> None:
    stage, guest = asked()
    assert guest.view().shown(("alpha", "echo")) is None
    guest.was_shown([("alpha", "echo"), ("alpha", "gone"), ("gone", "echo")])
    first = guest.view().shown(("alpha", "echo"))
    stage.lists("alpha", tool("echo", description="another"))
    assert guest.view().shown(("alpha", "echo")) == first
    guest.was_told(("alpha", "echo"))
    assert guest.view().shown(("alpha", "echo")) not in {None, first}


def test_a_moment_lasts_until_something_changes_that_a_view_depends_on() -> None:
    stage, guest = asked()
    moment = guest.moment(1)
    assert moment is not None
    assert guest.moment(2) is moment
    changes: list[Callable[[], object]] = [
        lambda: stage.lists("alpha", tool("echo", description="another")),
        lambda: guest.was_shown([("alpha", "echo")]),
        lambda: guest.conversation.shown.add(tools_of("alpha", "echo")),
        lambda: guest.load(Loading(tools=(("alpha", "echo"),))),
        lambda: guest._seat.greet({"surface": "browse"}),
    ]
    for change in changes:
        change()
        after = guest.moment(3)
        assert after is not moment
        assert guest.moment(4) is after
        moment = after


def test_while_what_was_shown_depends_on_the_turn_there_is_no_moment() -> None:
    stage, guest = asked()
    guest.was_shown([("alpha", "echo")])
    stage.lists("alpha", tool("echo", description="another"))
    guest.was_shown([("alpha", "echo")])
    assert guest.moment(0) is None
    assert guest.moment(1) is not None


def test_a_connection_of_a_session_knows_what_another_was_shown_until_it_is_shown_it_itself() -> None:
    stage, guest = asked()
    other = Asked(Seat(stage.context), guest.conversation, stage.context)
    guest.was_shown([("alpha", "echo")])
    first = other.view().shown(("alpha", "echo"))
    assert first == guest.view().shown(("alpha", "echo"))
    other.was_shown([("alpha", "echo")])
    stage.lists("alpha", tool("echo", description="another"))
    guest.was_shown([("alpha", "echo")])
    assert other.view().shown(("alpha", "echo")) == first


PRELOADING: dict[str, Any] = {"default": {"surface": "load", "preload": ["alpha/echo", "add", "nobody's"]}}


def test_what_a_profile_preloads_is_loaded_from_the_start_and_judged_like_the_rest() -> None:
    stage = Stage(profiles=PRELOADING)
    guest = Asked(Seat(stage.context), stage.sessions.unnamed(), stage.context)
    first = guest.view().loaded
    assert {key: each.source for key, each in first.tools.items()} == {
        ECHO: Source.POLICY_PRELOAD,
        ("alpha", "add"): Source.POLICY_PRELOAD,
    }
    assert guest.view().loaded is first
    stage.lists("alpha", tool("echo", description="another"))
    after = guest.view().loaded.tools
    assert [str(each.verdict.status) for each in after.values()] == ["invalid_changed", "invalid_deleted"]


def test_what_a_profile_preloads_is_loaded_once_its_server_has_listed() -> None:
    stage = Stage(listed=False, profiles=PRELOADING)
    guest = Asked(Seat(stage.context), stage.sessions.unnamed(), stage.context)
    assert not guest.view().loaded.tools
    assert guest.surface.awaits(guest.view()) == ("alpha", "beta")
    stage.lists("alpha", "echo")
    assert guest.moment(0) is not None
    assert ECHO in guest.conversation.loaded


@pytest.mark.parametrize("hello", [{"surface": "category"}, {"lazy": False}, {"surface": "search"}])
def test_nothing_is_preloaded_where_tools_need_not_be_loaded(hello: dict[str, Any]) -> None:
    stage = Stage(profiles=PRELOADING)
    taken = Seat(stage.context)
    taken.greet(hello)
    guest = Asked(taken, stage.sessions.unnamed(), stage.context)
    guest.view()
    assert not guest.conversation.loaded.tools


def resumed(began: object, stage: Stage | None = None) -> tuple[Stage, Asked]:
    """A client whose conversation began then, with an earlier daemon."""
    stage = stage or Stage()
    taken = Seat(stage.context)
    taken.greet({"resumed": began})
    return stage, Asked(taken, stage.sessions.unnamed(), stage.context)


def changes(stage: Stage, at: float) -> None:
    """A server lists another `echo` at that time."""
    tools = tools_of("alpha", tool("echo", description="another"), "add")
    stage.learn(ToolsListed(server="alpha", incarnation=1, tools=tools, quarantined={}, at=at))


def now(stage: Stage, name: str = "echo") -> str:
    tools = stage.catalog.value.servers["alpha"].tools
    assert tools is not None
    return tools[name].schema_hash


def test_who_was_here_before_was_shown_what_has_not_changed_since() -> None:
    stage, guest = resumed(time.time() + 60)
    assert guest.view().shown(ECHO) == now(stage)
    changes(stage, time.time() + 30)
    assert guest.view().shown(ECHO) == now(stage)
    assert guest.view().shown(("alpha", "gone")) is None


def test_how_who_was_here_before_was_shown_what_has_changed_nobody_knows() -> None:
    stage, guest = resumed(time.time() + 60)
    changes(stage, time.time() + 90)
    assert guest.view().shown(ECHO) == UNKNOWN
    assert guest.view().shown(("alpha", "add")) == now(stage, "add")
    guest.was_told(ECHO)
    assert guest.view().shown(ECHO) == now(stage)


@pytest.mark.parametrize("began", [1.0, "yesterday", [], True])
def test_who_was_here_before_this_life_was_shown_what_the_store_knows_of(began: object) -> None:
    stage, guest = resumed(began)
    assert guest.view().shown(ECHO) == UNKNOWN
    guest.was_shown([ECHO])
    assert guest.view().shown(ECHO) == now(stage)


def test_what_others_of_its_session_were_shown_who_was_here_before_was_not() -> None:
    stage, guest = resumed(1.0)
    Asked(Seat(stage.context), guest.conversation, stage.context).was_shown([ECHO])
    assert guest.view().shown(ECHO) == UNKNOWN


def test_a_session_of_an_earlier_life_was_shown_what_has_not_changed_since_it_began() -> None:
    stage, guest = asked()
    assert guest.view().shown(ECHO) is None
    guest.conversation.began = time.time() + 60
    assert guest.view().shown(ECHO) == now(stage)
    changes(stage, time.time() + 90)
    assert guest.view().shown(ECHO) == UNKNOWN
    guest.conversation.shown.add(tools_of("alpha", "echo"))
    assert guest.view().shown(ECHO) == tools_of("alpha", "echo")[0].schema_hash


def test_a_name_that_came_to_a_tool_later_was_not_shown_as_its_own() -> None:
    stage, guest = resumed(time.time() + 60)
    given = GivenName(name="echo", key=ECHO, since=time.time() + 90)
    assert guest.view().shown(ECHO) == now(stage)
    stage.learn(NamesRecalled(names=(given,)))
    assert guest.view().shown(ECHO) == UNKNOWN


def test_another_users_key_is_another_session() -> None:
    stage = Stage()
    assert Seat(stage.context).own_key("k") == "k"
    assert Seat(stage.context, os.getuid()).own_key("k") == "k"
    other = Seat(stage.context, os.getuid() + 1).own_key("k")
    assert other == f"uid {os.getuid() + 1}: k"
    # Nobody but the daemon's own user can name a key that is another's.
    assert Seat(stage.context, os.getuid() + 2).own_key(other) != other


def test_what_was_loaded_and_has_changed_is_loaded_anew_when_the_client_is_told() -> None:
    stage, guest = asked()
    guest.load(Loading(tools=(("alpha", "echo"),), source=Source.AUTO))
    stage.lists("alpha", tool("echo", description="another"))
    (stale,) = guest.view().loaded.tools.values()
    assert stale.verdict.status == "invalid_changed"
    guest.was_told(("alpha", "echo"))
    (fresh,) = guest.view().loaded.tools.values()
    assert (fresh.verdict.status, fresh.source) == ("valid", "auto")


@pytest.mark.parametrize("hello", [{"lazy": False}, {"profile": "eager"}])
def test_where_loading_on_demand_is_switched_off_no_session_is_read(hello: dict[str, Any]) -> None:
    _stage, guest = asked(hello, profiles={"eager": {"lazy": False}})
    guest.was_shown([("alpha", "echo")])
    view = guest.view()
    assert view.shown(("alpha", "echo")) is None
    assert view.loaded is not guest.conversation.loaded


def test_a_profile_that_leaves_the_configuration_serves_nothing_and_one_that_comes_back_does() -> None:
    stage = Stage(profiles=PROFILES)
    taken = Seat(stage.context)
    taken.greet({"profile": "small"})
    assert taken.surface.name == "search"
    without = attrs.evolve(stage.config, profiles={"default": stage.config.profiles["default"]})
    stage.learn(Configured(config=without, now=1.0))
    assert "no profile 'small'" in taken.denied
    stage.learn(Configured(config=stage.config, now=2.0))
    assert (taken.denied, taken.surface.name) == ("", "search")


def test_the_core_tools_of_a_profile_that_names_none_are_chosen_once_for_each_client() -> None:
    called = [("alpha", "echo")]
    stage = Stage(profiles=PROFILES)
    means = attrs.evolve(stage.context.means, most_called=lambda: called)
    context = attrs.evolve(stage.context, means=means)
    early = Asked(Seat(context), stage.sessions.unnamed(), context)
    assert list(early.view().usual()) == [("alpha", "echo")]
    called.insert(0, ("beta", "add"))
    assert list(early.view().usual()) == [("alpha", "echo")]
    late = Asked(Seat(context), stage.sessions.unnamed(), context)
    assert list(late.view().usual()) == [("alpha", "echo"), ("beta", "add")]


def test_who_is_moved_has_the_other_profile_its_surface_and_what_that_preloads() -> None:
    profiles = {**PROFILES, "ready": {"surface": "load", "preload": ["echo"]}}
    stage = Stage(profiles=profiles)
    taken = Seat(stage.context)
    taken.greet({"profile": "default", "surface": "load"})
    guest = Asked(taken, stage.sessions.unnamed(), stage.context)
    before = guest.moment(1)
    assert not guest.view().loaded.tools
    taken.move("ready")
    assert list(guest.view().loaded.tools) == [ECHO]
    taken.move("small")
    assert (taken.profile.name, taken.surface.name) == ("small", "search")
    assert guest.moment(1) is not before


def test_who_was_denied_is_served_once_moved() -> None:
    taken = seat({"profile": "smal"}, profiles=PROFILES)
    assert taken.denied
    taken.move("small")
    assert (taken.denied, taken.profile.name) == ("", "small")
