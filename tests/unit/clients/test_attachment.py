"""One session over one connection: what its requests see, and what it was shown and has loaded."""

from __future__ import annotations

import gc
import json
import time
from typing import TYPE_CHECKING, Any
from weakref import ref

import attrs
import pytest

from daemon.catalog.loaded import Source
from daemon.catalog.shown import UNKNOWN
from daemon.clients.attachment import Attachment
from daemon.clients.client import Client
from daemon.errors import ToolDisabled
from daemon.facts import Configured, DefinitionsListed, NamesRecalled
from daemon.model import GivenName, Kind
from daemon.surfaces.surface import Forward, Loading, Reply
from tests.fakes_upstream import Stage, tool, tools_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.clients.context import SessionContext
    from daemon.clients.sessions import SessionState


ECHO = ("alpha", "echo")


PROFILES = {"default": {"surface": "load"}, "small": {"categories": ["alpha"], "surface": "search"}}


def attached(
    stage: Stage,
    hello: dict[str, Any] | None = None,
    *,
    state: SessionState | None = None,
    context: SessionContext | None = None,
) -> Attachment:
    """A connection that takes part in a session, else in one of its own."""
    context = context or stage.context
    client = Client(stage.config, context.surfaces)
    if hello is not None:
        client.wish(hello)
    return Attachment(client, state or stage.sessions.unnamed(), context)


def asked(hello: dict[str, Any] | None = None, **written: Any) -> tuple[Stage, Attachment]:
    stage = Stage(**written)
    return stage, attached(stage, hello)


def test_tools_that_a_call_has_loaded_are_remembered_as_they_are_now() -> None:
    _stage, guest = asked()
    guest.load(Loading(tools=(("alpha", "echo"), ("alpha", "gone")), source=Source.AUTO))
    (loaded,) = guest.state.loaded.tools.values()
    assert (loaded.key, loaded.epoch, loaded.source) == (("alpha", "echo"), 1, "auto")
    assert guest.view().loaded is guest.state.loaded


def test_loading_the_same_again_is_no_change() -> None:
    _stage, guest = asked()
    guest.load(Loading(tools=(("alpha", "echo"),)))
    before = guest.state.loaded
    guest.load(Loading(tools=(("alpha", "echo"),)))
    guest.load(Loading())
    assert guest.state.loaded is before


def test_what_the_profile_does_not_show_is_not_loaded() -> None:
    _stage, guest = asked({"profile": "small"}, profiles=PROFILES)
    guest.load(Loading(tools=(("beta", "echo"),)))
    assert not guest.state.loaded.tools


def test_a_client_knows_what_it_was_shown_until_it_is_shown_something_else() -> None:
    stage, guest = asked()
    assert guest.view().shown(("alpha", "echo")) is None
    guest.was_shown([("alpha", "echo"), ("alpha", "gone"), ("gone", "echo")])
    first = guest.view().shown(("alpha", "echo"))
    stage.lists("alpha", tool("echo", description="another"))
    assert guest.view().shown(("alpha", "echo")) == first
    guest.was_told(("alpha", "echo"))
    assert guest.view().shown(("alpha", "echo")) not in {None, first}


def test_a_view_lasts_until_something_changes_that_it_depends_on() -> None:
    stage, guest = asked()
    view = guest.view(1)
    assert guest.view(2) is view
    changes: list[Callable[[], object]] = [
        lambda: stage.lists("alpha", tool("echo", description="another")),
        lambda: guest.was_shown([("alpha", "echo")]),
        lambda: guest.state.shown.add(tools_of("alpha", "echo")),
        lambda: guest.load(Loading(tools=(("alpha", "echo"),))),
        lambda: guest._client.wish({"surface": "browse"}),
    ]
    for change in changes:
        change()
        after = guest.view(3)
        assert after is not view
        assert guest.view(4) is after
        view = after


def searched(guest: Attachment, *words: str) -> list[str]:
    """What is listed after these searches, by the numbers of the tools."""
    for word in words:
        view = guest.view()
        action = guest.selection.surface.call(
            view, "search_tools", json.dumps({"query": word}).encode(), patient=False
        )
        assert isinstance(action, Reply)
        assert action.loading is not None
        guest.load(action.loading)
    return [offered.name for offered in guest.selection.surface.listed(guest.view())]


def test_what_searches_list_stays_within_two_answers_and_what_was_called_stays() -> None:
    turn = 0
    stage = Stage(profiles={"default": {"surface": "search", "answerTokens": 1000, "coreTools": ["alpha/t0"]}})
    words = ["zebra", "walnut", "violin", "tunnel", "saddle", "quartz", "pepper", "oyster", "nickel", "magnet"]
    tools = [tool(f"t{number}", description=f"{word} {'x' * 1800}") for number, word in enumerate(words)]
    stage.lists("alpha", *tools)
    client = Client(stage.config, stage.context.surfaces)
    guest = Attachment(client, stage.sessions.unnamed(), stage.context, lambda: turn)

    def later(*asked: str) -> list[str]:
        nonlocal turn
        for word in asked:
            turn += 1
            searched(guest, word)
        return searched(guest)

    assert later("zebra", "walnut", "violin", "tunnel", "saddle") == ["t0", "t1", "t2", "t3", "t4"]
    called = guest.selection.surface.call(guest.view(), "t2", b"{}", patient=False)
    assert isinstance(called, Forward)
    assert called.loading is not None
    guest.load(called.loading)
    assert later("walnut") == ["t0", "t1", "t2", "t3", "t4"]
    assert later("quartz", "pepper") == ["t0", "t1", "t2", "t5", "t6"]
    turn += 1
    everything = ["t0", "t2", "t7", "t8", "t9", "t4", "t3"]
    assert searched(guest, "oyster", "nickel", "magnet", "saddle", "tunnel") == everything
    assert later("oyster") == ["t0", "t2", "t7", "t4", "t3"]


def test_an_idle_session_keeps_no_earlier_catalog() -> None:
    stage = Stage()
    session = attached(stage)
    last = ref(session.view())
    session.forget_stale()
    assert session.view() is last()
    stage.catalog.set(attrs.evolve(stage.catalog.value))
    session.forget_stale()
    gc.collect()
    assert last() is None


def test_while_what_was_shown_depends_on_the_turn_no_view_lasts() -> None:
    stage, guest = asked()
    guest.was_shown([("alpha", "echo")])
    stage.lists("alpha", tool("echo", description="another"))
    guest.was_shown([("alpha", "echo")])
    assert guest.view(0) is not guest.view(0)
    assert guest.view(1) is guest.view(1)


def test_a_connection_of_a_session_knows_what_another_was_shown_until_it_is_shown_it_itself() -> None:
    stage, guest = asked()
    other = attached(stage, state=guest.state)
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
    guest = attached(stage)
    first = guest.view().loaded
    assert {key: each.source for key, each in first.tools.items()} == {
        ECHO: Source.POLICY_PRELOAD,
        ("alpha", "add"): Source.POLICY_PRELOAD,
    }
    assert guest.view().loaded is first
    stage.lists("alpha", tool("echo", description="another"))
    after = guest.view().loaded.tools
    assert [str(each.verdict.status) for each in after.values()] == ["invalid_changed", "invalid_deleted"]


def test_the_tools_that_were_called_most_are_preloaded_if_the_profile_says_usual() -> None:
    stage = Stage(profiles={"default": {"surface": "load", "preload": "usual"}})
    means = attrs.evolve(stage.context.means, most_called=lambda: [("alpha", "add"), ("alpha", "gone")])
    guest = attached(stage, context=attrs.evolve(stage.context, means=means))
    assert list(guest.view().loaded.tools) == [("alpha", "add")]


def test_what_a_profile_preloads_is_loaded_once_its_server_has_listed() -> None:
    stage = Stage(listed=False, profiles=PRELOADING)
    guest = attached(stage)
    assert not guest.view().loaded.tools
    assert guest.selection.surface.awaits(guest.view()) == ("alpha", "beta")
    stage.lists("alpha", "echo")
    guest.view(0)
    assert ECHO in guest.state.loaded


@pytest.mark.parametrize("hello", [{"surface": "category"}, {"lazy": False}, {"surface": "search"}])
def test_nothing_is_preloaded_where_tools_need_not_be_loaded(hello: dict[str, Any]) -> None:
    stage = Stage(profiles=PRELOADING)
    guest = attached(stage, hello)
    guest.view()
    assert not guest.state.loaded.tools


def resumed(began: object, stage: Stage | None = None) -> tuple[Stage, Attachment]:
    """A client whose conversation began then, with an earlier daemon."""
    stage = stage or Stage()
    return stage, attached(stage, {"resumed": began})


def changes(stage: Stage, at: float) -> None:
    """A server lists another `echo` at that time."""
    tools = tools_of("alpha", tool("echo", description="another"), "add")
    stage.learn(DefinitionsListed(kind=Kind.TOOL, server="alpha", incarnation=1, definitions=tools, at=at))


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
    attached(stage, state=guest.state).was_shown([ECHO])
    assert guest.view().shown(ECHO) == UNKNOWN


def test_a_session_of_an_earlier_life_was_shown_what_has_not_changed_since_it_began() -> None:
    stage, guest = asked()
    assert guest.view().shown(ECHO) is None
    guest.state.began = time.time() + 60
    assert guest.view().shown(ECHO) == now(stage)
    changes(stage, time.time() + 90)
    assert guest.view().shown(ECHO) == UNKNOWN
    guest.state.shown.add(tools_of("alpha", "echo"))
    assert guest.view().shown(ECHO) == tools_of("alpha", "echo")[0].schema_hash


def test_a_name_that_came_to_a_tool_later_was_not_shown_as_its_own() -> None:
    stage, guest = resumed(time.time() + 60)
    given = GivenName(name="echo", key=ECHO, since=time.time() + 90)
    assert guest.view().shown(ECHO) == now(stage)
    stage.learn(NamesRecalled(names=(given,)))
    assert guest.view().shown(ECHO) == UNKNOWN


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
    assert view.loaded is not guest.state.loaded


def test_the_core_tools_of_a_profile_that_names_none_are_chosen_once_for_each_client() -> None:
    called = [("alpha", "echo")]
    stage = Stage(profiles=PROFILES)
    means = attrs.evolve(stage.context.means, most_called=lambda: called)
    context = attrs.evolve(stage.context, means=means)
    early = attached(stage, context=context)
    assert list(early.view().usual()) == [("alpha", "echo")]
    called.insert(0, ("beta", "add"))
    assert list(early.view().usual()) == [("alpha", "echo")]
    late = attached(stage, context=context)
    assert list(late.view().usual()) == [("alpha", "echo"), ("beta", "add")]


def test_who_is_moved_has_the_other_profile_its_surface_and_what_that_preloads() -> None:
    profiles = {**PROFILES, "ready": {"surface": "load", "preload": ["echo"]}}
    stage = Stage(profiles=profiles)
    guest = attached(stage, {"profile": "default", "surface": "load"})
    before = guest.view(1)
    assert not before.loaded.tools
    guest._client.move("ready")
    assert list(guest.view().loaded.tools) == [ECHO]
    guest._client.move("small")
    after = guest.view(1)
    assert (after.profile.name, guest.selection.surface.name) == ("small", "search")
    assert after is not before


def test_a_request_has_what_its_client_gets_as_it_comes_in() -> None:
    stage = Stage(profiles=PROFILES)
    guest = attached(stage, {"profile": "small"})
    request = guest.request(b"7", 3)
    assert (request.id, request.turn, request.key) == (b"7", 3, None)
    assert (request.profile.name, request.surface.name, request.modern) == ("small", "search", False)
    guest._client.move("default")
    assert guest.request(b"8", 4, modern=True).surface.name == "load"
    assert request.surface.name == "search"


def test_a_request_whose_profile_has_left_the_configuration_sees_nothing() -> None:
    stage = Stage(profiles=PROFILES)
    guest = attached(stage, {"profile": "small"})
    guest.view(1)
    without = attrs.evolve(stage.config, profiles={"default": stage.config.profiles["default"]})
    stage.learn(Configured(config=without, now=1.0))
    with pytest.raises(ToolDisabled, match="no profile 'small'"):
        guest.view(1)
    assert guest.view().profile.name == "small", "what it was given is compared by what it had"
