"""One session over one connection: what its requests see, and what it was shown and has loaded."""

import gc
import json
import os
import time
from collections.abc import Callable
from typing import Any
from weakref import ref

import attrs
import msgspec
import pytest
import trio
import trio.testing
from msgspec import Raw

from daemon.catalog.loaded import Source, is_anonymous
from daemon.catalog.shown import UNKNOWN
from daemon.clients.attachment import Attachment
from daemon.clients.client import LOCAL_USER, Client, Principal, local_user
from daemon.clients.connection import MAX_HELD, MAX_KEYS, Attachments
from daemon.clients.context import SessionContext
from daemon.clients.sessions import RETRY_SECONDS, SessionState
from daemon.errors import McpdError
from daemon.facts import DefinitionsListed, NamesRecalled
from daemon.model import GivenName, Kind
from daemon.protocol import SESSION_KEY
from daemon.surfaces.surface import Forward, Loading, Reply
from tests.fakes_upstream import Stage, tool, tools_of

ECHO = ("alpha", "echo")
TOKEN = "0123456789abcdef" * 2
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


def test_what_the_profile_does_not_show_is_not_loaded() -> None:
    _stage, guest = asked({"profile": "small"}, profiles=PROFILES)
    guest.load(Loading(tools=(("beta", "echo"),)))
    assert not guest.state.loaded.tools


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
    gc.collect(1)
    assert last() is None


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


def test_the_tools_that_were_called_most_are_preloaded_if_the_profile_says_usual() -> None:
    stage = Stage(profiles={"default": {"surface": "load", "preload": "usual"}})
    services = msgspec.structs.replace(
        stage.context.services, most_called=lambda: [("alpha", "add"), ("alpha", "gone")]
    )
    guest = attached(stage, context=msgspec.structs.replace(stage.context, services=services))
    assert list(guest.view().loaded.tools) == [("alpha", "add")]


def test_what_a_profile_preloads_is_loaded_once_its_server_has_listed_and_judged_like_the_rest() -> None:
    stage = Stage(listed=False, profiles=PRELOADING)
    guest = attached(stage)
    assert not guest.view().loaded.tools
    assert guest.selection.surface.awaits(guest.view()) == ("alpha", "beta")
    stage.lists("alpha", "echo", "add")
    assert guest.selection.surface.awaits(guest.view()) == ("beta",)
    first = guest.view().loaded
    assert {key: each.source for key, each in first.tools.items()} == {
        ECHO: Source.POLICY_PRELOAD,
        ("alpha", "add"): Source.POLICY_PRELOAD,
    }
    assert guest.view().loaded is first
    stage.lists("alpha", tool("echo", description="another"))
    after = guest.view().loaded.tools
    assert [str(each.verdict.status) for each in after.values()] == ["invalid_changed", "invalid_deleted"]


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


def changes(stage: Stage, at: float, description: str = "another") -> None:
    """A server lists another `echo` at that time."""
    tools = tools_of("alpha", tool("echo", description=description), "add")
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
    changes(stage, time.time() + 90, "a third")
    assert guest.view().shown(ECHO) == UNKNOWN, "nobody knows what was shown of what has changed since"
    assert guest.view().shown(("alpha", "add")) == now(stage, "add")
    guest.was_told(ECHO)
    assert guest.view().shown(ECHO) == now(stage)


@pytest.mark.parametrize("began", [1.0, "yesterday", [], True])
def test_who_was_here_before_this_life_was_shown_what_the_store_knows_of(began: object) -> None:
    stage, guest = resumed(began)
    attached(stage, state=guest.state).was_shown([ECHO])
    assert guest.view().shown(ECHO) == UNKNOWN, "whatever others of its session were shown"
    guest.was_shown([ECHO])
    assert guest.view().shown(ECHO) == now(stage)


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
    guest.load(Loading(tools=(ECHO, ("alpha", "gone")), source=Source.AUTO))
    (loaded,) = guest.state.loaded.tools.values()
    assert (loaded.key, loaded.epoch, loaded.source) == (ECHO, 1, "auto")
    stage.lists("alpha", tool("echo", description="another"))
    (stale,) = guest.view().loaded.tools.values()
    assert stale.verdict.status == "invalid_changed"
    guest.was_told(("alpha", "echo"))
    (fresh,) = guest.view().loaded.tools.values()
    assert (fresh.verdict.status, fresh.source) == ("valid", "auto")


def test_the_core_tools_of_a_profile_that_names_none_are_chosen_once_for_each_client() -> None:
    called = [("alpha", "echo")]
    stage = Stage(profiles=PROFILES)
    services = msgspec.structs.replace(stage.context.services, most_called=lambda: called)
    context = msgspec.structs.replace(stage.context, services=services)
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


def attachments(
    stage: Stage,
    nursery: trio.Nursery,
    changed: Callable[[], None] = lambda: None,
    who: Principal = LOCAL_USER,
    **more: Any,
) -> Attachments:
    client = Client(stage.config, stage.context.surfaces, who)
    return Attachments(client, stage.context, on_change=changed, later=nursery.start_soon, **more)


def begun(stage: Stage, nursery: trio.Nursery) -> Attachments:
    """A bridge without a key, as a connection."""
    it = attachments(stage, nursery)
    it.take_hello({"anonymous": TOKEN})
    return it


async def present(it: Attachments, key: str) -> Attachment:
    found: list[Attachment] = []
    if (asked := it.present(key)) is not None:
        return asked
    assert it.hold(key, key.encode(), found.append)
    await trio.testing.wait_all_tasks_blocked()
    return found[0]


def named(key: object) -> dict[str, Raw]:
    return {SESSION_KEY: Raw(msgspec.json.encode(key))}


@pytest.fixture
def it(stage: Stage, nursery: trio.Nursery) -> Attachments:
    return attachments(stage, nursery)


@pytest.mark.parametrize("key", [7, "", "x" * 201, "a\x00"])
async def test_a_bad_name_is_said_and_changes_nothing(it: Attachments, key: object) -> None:
    assert "session's key" in it.take_hello({"session": key})
    assert it.key_of({}) is None
    with pytest.raises(msgspec.ValidationError, match="session's key"):
        it.key_of(named(key))


async def test_requests_of_a_recalled_session_keep_their_order(stage: Stage, nursery: trio.Nursery) -> None:
    stage.memory.open = trio.Event()
    it = attachments(stage, nursery)
    served: list[bytes] = []
    for number in (b"1", b"2", b"3"):
        assert it.present("k") is None
        assert it.hold("k", number, lambda _asked, number=number: served.append(number))  # type: ignore[misc]
    it.forget(b"2")
    await trio.testing.wait_all_tasks_blocked()
    assert served == []
    stage.memory.open.set()
    await trio.testing.wait_all_tasks_blocked()
    assert served == [b"1", b"3"]
    assert it.present("k") is not None


async def test_the_requests_that_wait_are_bounded(stage: Stage, nursery: trio.Nursery) -> None:
    stage.memory.open = trio.Event()
    it = attachments(stage, nursery)
    for number in range(MAX_HELD):
        assert it.hold("k", b"%d" % number, lambda _asked: None)
    assert not it.hold("other", b"x", lambda _asked: None)
    with pytest.raises(msgspec.ValidationError, match="already in flight"):
        it.hold("k", b"7", lambda _asked: None)
    stage.memory.open.set()


async def test_it_hears_of_every_change_until_it_leaves(stage: Stage, nursery: trio.Nursery) -> None:
    heard: list[int] = []
    it, other = attachments(stage, nursery, lambda: heard.append(1)), attachments(stage, nursery)
    asked = await present(it, "k")
    shared = await present(other, "k")
    assert shared.state is asked.state
    tools = [(each, 1) for each in (stage.catalog.value.servers["alpha"].tools or {}).values()]
    stage.sessions.load(shared.state, tools[:1], source=Source.MANUAL)
    assert heard == [1]
    it.leave()
    stage.sessions.load(shared.state, tools[1:], source=Source.MANUAL)
    assert (heard, list(stage.sessions.named)) == ([1], ["k"])
    other.leave()
    assert list(stage.sessions.named) == []


async def test_a_session_with_a_call_in_flight_does_not_make_room(stage: Stage, nursery: trio.Nursery) -> None:
    """What the call loads in the end must not be put into a session that was left, beside a new one."""
    busy: list[Attachment] = []
    it = attachments(stage, nursery, busy=lambda: busy)
    busy.append(await present(it, "k"))
    for number in range(MAX_KEYS):
        await present(it, f"k{number}")
    assert await present(it, "k") is busy[0]
    assert set(stage.sessions.named) == {"k", *(f"k{number}" for number in range(1, MAX_KEYS))}
    busy.clear()
    await present(it, "another")
    assert len(list(stage.sessions.named)) == MAX_KEYS
    assert "k" not in stage.sessions.named


def written_late(stage: Stage) -> tuple[trio.Event, list[str]]:
    """The first session is on disk when the event is set; the keys of all that were written."""
    written, kept, keys = trio.Event(), stage.memory.kept, list[str]()

    async def wait_written(key: str) -> bool:
        keys.append(key)
        if key == keys[0]:
            await written.wait()
        return await kept(key)

    stage.memory.kept = wait_written  # type: ignore[method-assign]
    return written, keys


async def test_a_session_is_stored_before_its_first_request_runs(stage: Stage, nursery: trio.Nursery) -> None:
    written, _ = written_late(stage)
    it = attachments(stage, nursery)
    served: list[Attachment] = []
    assert it.present("k") is None
    assert it.hold("k", b"1", served.append)
    await trio.testing.wait_all_tasks_blocked()
    assert "k" in stage.memory.records
    assert it.present("k") is None
    assert not served
    written.set()
    await trio.testing.wait_all_tasks_blocked()
    assert len(served) == 1
    assert it.present("k") is served[0]


async def test_another_users_session_is_its_own(stage: Stage, it: Attachments, nursery: trio.Nursery) -> None:
    other = attachments(stage, nursery, who=local_user(os.getuid() + 1))
    assert other.take_hello({"session": "k"}) == ""
    assert other.key == other.key_of({}) == other.key_of(named("k")) == f"uid {os.getuid() + 1}: k"
    ours = await present(it, it.key_of(named("k")) or "")
    theirs = await present(other, other.key_of(named("k")) or "")
    assert ours.state is not theirs.state
    assert set(stage.memory.records) == {"k", f"uid {os.getuid() + 1}: k"}


def load_own(stage: Stage, it: Attachments) -> None:
    tools = [(each, 1) for each in (stage.catalog.value.servers["alpha"].tools or {}).values()]
    stage.sessions.load(it.own.state, tools, source=Source.MANUAL)


async def test_what_a_bridge_without_a_key_has_loaded_is_there_when_it_comes_back(
    stage: Stage, it: Attachments, nursery: trio.Nursery
) -> None:
    assert it.take_hello({"anonymous": TOKEN}) == ""
    assert it.direct is it.own
    assert not stage.memory.records
    load_own(stage, it)
    (key,) = stage.memory.records
    assert is_anonymous(key)
    it.leave()
    assert not list(stage.sessions.named)

    again = back(stage, nursery)
    waits = again.direct is None
    assert waits
    assert again.present(again.key_of({})) is None
    served: list[Attachment] = []
    assert again.hold(again.key_of({}) or "", b"1", served.append)
    await trio.testing.wait_all_tasks_blocked()
    assert again.direct is again.own is served[0]
    assert again.key is again.key_of({}) is None
    assert len(again.own.state.loaded.tools) == again.loaded == 2


def back(stage: Stage, nursery: trio.Nursery, who: Principal = LOCAL_USER) -> Attachments:
    """A bridge that comes back, as a connection."""
    it = attachments(stage, nursery, who=who)
    hello: dict[str, Any] = {"anonymous": TOKEN, "resumed": 1.0}
    it.own._client.wish(hello)
    assert it.take_hello(hello) == ""
    return it


async def test_a_bridges_session_stays_while_it_is_recalled(stage: Stage, nursery: trio.Nursery) -> None:
    written, first = written_late(stage)
    it = back(stage, nursery)
    await trio.testing.wait_all_tasks_blocked()
    for number in range(MAX_KEYS + 1):
        await present(it, f"k{number}")
    written.set()
    await trio.testing.wait_all_tasks_blocked()
    assert it.direct is it.own
    assert it.own.state.key == first[0]


async def test_a_bridge_that_comes_back_early_shares_its_session(stage: Stage, nursery: trio.Nursery) -> None:
    first = begun(stage, nursery)
    again = back(stage, nursery)
    await trio.testing.wait_all_tasks_blocked()
    assert again.own.state is first.own.state
    first.leave()
    load_own(stage, again)
    assert len(list(stage.sessions.named)) == len(stage.memory.records) == 1


async def test_another_users_bridge_does_not_come_back_to_ours(stage: Stage, nursery: trio.Nursery) -> None:
    first = begun(stage, nursery)
    load_own(stage, first)
    other = back(stage, nursery, local_user(os.getuid() + 1))
    await trio.testing.wait_all_tasks_blocked()
    assert not other.own.state.loaded.tools


async def test_a_store_that_does_not_answer_is_asked_again_for_a_bridges_session(
    stage: Stage, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    first = begun(stage, nursery)
    load_own(stage, first)
    first.leave()
    stage.memory.failure = McpdError("no disk")
    again = back(stage, nursery)
    await trio.testing.wait_all_tasks_blocked()
    key = again.key_of({}) or ""
    empty = await present(again, key)
    assert empty.state.loaded.tools == {}
    stage.memory.failure = None
    await trio.sleep(RETRY_SECONDS)
    assert (await present(again, key)).state is empty.state
    assert again.direct is again.own
    assert again.loaded == 2


@pytest.mark.parametrize("token", [7, "", "x" * 32, "A" * 32, "a" * 31, None])
async def test_what_no_bridge_makes_up_is_no_key(it: Attachments, token: object) -> None:
    assert it.take_hello({"anonymous": token}) == ""
    assert it.own.state.key is None


async def test_a_bridge_names_the_session_of_all_requests_and_a_request_its_own(it: Attachments) -> None:
    assert it.take_hello({"session": "k", "anonymous": TOKEN}) == ""
    assert it.key_of({}) == "k"
    assert it.own.state.key is None
    assert it.key_of(named("other")) == "other"
