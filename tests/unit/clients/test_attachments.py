"""The sessions that one connection takes part in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio
import trio.testing
from msgspec import Raw

from daemon.catalog.loaded import Source, is_anonymous
from daemon.clients.attachments import MAX_HELD, MAX_KEYS, Attachments
from daemon.clients.client import LOCAL_USER, Client, Principal, local_user
from daemon.clients.sessions import RETRY_SECONDS
from daemon.errors import McpdError
from daemon.protocol import SESSION_KEY
from tests.fakes_upstream import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.clients.attachment import Attachment


def attachments(stage: Stage, nursery: trio.Nursery, changed: Callable[[], None] = lambda: None) -> Attachments:
    return Attachments(
        Client(stage.config, stage.context.surfaces), stage.context, on_change=changed, later=nursery.start_soon
    )


async def present(it: Attachments, key: str) -> Attachment:
    found: list[Attachment] = []
    if (asked := it.present(key)) is not None:
        return asked
    assert it.hold(key, key.encode(), found.append)
    await trio.testing.wait_all_tasks_blocked()
    return found[0]


def named(key: object) -> dict[str, Raw]:
    return {SESSION_KEY: Raw(msgspec.json.encode(key))}


async def test_a_request_that_names_no_session_belongs_to_the_connections_own(nursery: trio.Nursery) -> None:
    it = attachments(Stage(), nursery)
    assert it.key_of({}) is None
    assert it.present(None) is it.own
    assert it.own.state.key is None


async def test_a_bridge_names_the_session_of_all_requests_and_a_request_its_own(nursery: trio.Nursery) -> None:
    it = attachments(Stage(), nursery)
    assert it.take_hello({"session": "k"}) == ""
    assert it.key_of({}) == "k"
    assert it.key_of(named("other")) == "other"


@pytest.mark.parametrize("key", [7, "", "x" * 201, "a\x00"])
async def test_a_bad_name_is_said_and_changes_nothing(nursery: trio.Nursery, key: object) -> None:
    it = attachments(Stage(), nursery)
    assert "session's key" in it.take_hello({"session": key})
    assert it.key_of({}) is None
    with pytest.raises(msgspec.ValidationError, match="session's key"):
        it.key_of(named(key))


async def test_requests_of_a_session_that_is_recalled_are_served_in_their_order(nursery: trio.Nursery) -> None:
    stage = Stage()
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


async def test_the_requests_that_wait_are_bounded_and_an_id_waits_once(nursery: trio.Nursery) -> None:
    stage = Stage()
    stage.memory.open = trio.Event()
    it = attachments(stage, nursery)
    for number in range(MAX_HELD):
        assert it.hold("k", b"%d" % number, lambda _asked: None)
    assert not it.hold("other", b"x", lambda _asked: None)
    with pytest.raises(msgspec.ValidationError, match="already in flight"):
        it.hold("k", b"7", lambda _asked: None)
    stage.memory.open.set()


async def test_the_sessions_of_one_connection_are_bounded_and_the_first_makes_room(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    it = attachments(stage, nursery)
    for number in range(MAX_KEYS + 1):
        await present(it, f"k{number}")
    assert set(stage.sessions.named) == {f"k{number}" for number in range(1, MAX_KEYS + 1)}


async def test_it_hears_of_every_change_until_it_leaves(nursery: trio.Nursery) -> None:
    stage = Stage()
    heard: list[int] = []
    it = attachments(stage, nursery, lambda: heard.append(1))
    asked = await present(it, "k")
    other = attachments(stage, nursery)
    shared = await present(other, "k")
    assert shared.state is asked.state
    tools = [(each, 1) for each in (stage.catalog.value.servers["alpha"].tools or {}).values()]
    stage.sessions.load(shared.state, tools[:1], source=Source.MANUAL)
    assert heard == [1]
    assert it.loaded == 1
    it.leave()
    stage.sessions.load(shared.state, tools[1:], source=Source.MANUAL)
    assert heard == [1]
    assert list(stage.sessions.named) == ["k"]
    other.leave()
    assert list(stage.sessions.named) == []


async def test_what_a_client_was_shown_is_remembered_as_long_as_it_takes_part(nursery: trio.Nursery) -> None:
    it = attachments(Stage(), nursery)
    assert await present(it, "k") is await present(it, "k")


async def test_a_session_with_a_call_in_flight_does_not_make_room(nursery: trio.Nursery) -> None:
    """What the call loads in the end must not be put into a session that was left, beside a new one."""
    stage = Stage()
    busy: list[Attachment] = []
    it = Attachments(
        Client(stage.config, stage.context.surfaces),
        stage.context,
        on_change=lambda: None,
        later=nursery.start_soon,
        busy=lambda: busy,
    )
    busy.append(await present(it, "k"))
    for number in range(MAX_KEYS):
        await present(it, f"k{number}")
    assert await present(it, "k") is busy[0]
    assert set(stage.sessions.named) == {"k", *(f"k{number}" for number in range(1, MAX_KEYS))}
    busy.clear()
    await present(it, "another")
    assert len(list(stage.sessions.named)) == MAX_KEYS
    assert "k" not in stage.sessions.named


async def test_a_session_is_on_disk_before_its_first_request_is_served(nursery: trio.Nursery) -> None:
    stage = Stage()
    written, kept = trio.Event(), stage.memory.kept

    async def wait_written(key: str) -> bool:
        await written.wait()
        return await kept(key)

    stage.memory.kept = wait_written  # type: ignore[method-assign]
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


async def test_what_another_user_names_is_a_session_of_its_own(nursery: trio.Nursery) -> None:
    stage = Stage()
    it = attachments(stage, nursery)
    client = Client(stage.config, stage.context.surfaces, local_user(os.getuid() + 1))
    other = Attachments(client, stage.context, on_change=lambda: None, later=nursery.start_soon)
    assert other.take_hello({"session": "k"}) == ""
    assert other.key == other.key_of({}) == other.key_of(named("k")) == f"uid {os.getuid() + 1}: k"
    ours = await present(it, it.key_of(named("k")) or "")
    theirs = await present(other, other.key_of(named("k")) or "")
    assert ours.state is not theirs.state
    assert set(stage.memory.records) == {"k", f"uid {os.getuid() + 1}: k"}


TOKEN = "0123456789abcdef" * 2


def load_own(stage: Stage, it: Attachments) -> None:
    tools = [(each, 1) for each in (stage.catalog.value.servers["alpha"].tools or {}).values()]
    stage.sessions.load(it.own.state, tools, source=Source.MANUAL)


async def test_what_a_bridge_without_a_key_has_loaded_is_there_when_it_comes_back(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    it = attachments(stage, nursery)
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


def back(stage: Stage, nursery: trio.Nursery, uid: int | None = None, **more: object) -> Attachments:
    """A bridge that comes back, as a connection."""
    client = Client(stage.config, stage.context.surfaces, LOCAL_USER if uid is None else local_user(uid))
    it = Attachments(client, stage.context, on_change=lambda: None, later=nursery.start_soon)
    hello = {"anonymous": TOKEN, "resumed": 1.0, **more}
    client.wish(hello)
    assert it.take_hello(hello) == ""
    return it


async def test_a_bridge_that_comes_back_is_in_use_before_it_asks_for_anything(nursery: trio.Nursery) -> None:
    stage = Stage()
    back(stage, nursery)
    await trio.testing.wait_all_tasks_blocked()
    assert len(list(stage.sessions.named)) == 1


async def test_a_bridges_session_stays_while_it_is_recalled_whoever_else_comes(nursery: trio.Nursery) -> None:
    stage = Stage()
    written, kept = trio.Event(), stage.memory.kept
    first: list[str] = []

    async def wait_written(key: str) -> bool:
        first.append(key)
        if key == first[0]:
            await written.wait()
        return await kept(key)

    stage.memory.kept = wait_written  # type: ignore[method-assign]
    it = back(stage, nursery)
    await trio.testing.wait_all_tasks_blocked()
    for number in range(MAX_KEYS + 1):
        await present(it, f"k{number}")
    written.set()
    await trio.testing.wait_all_tasks_blocked()
    assert it.direct is it.own
    assert it.own.state.key == first[0]


async def test_a_bridge_that_comes_back_before_its_connection_is_missed_shares_its_session(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    first = attachments(stage, nursery)
    first.take_hello({"anonymous": TOKEN})
    again = back(stage, nursery)
    await trio.testing.wait_all_tasks_blocked()
    assert again.own.state is first.own.state
    first.leave()
    load_own(stage, again)
    assert len(list(stage.sessions.named)) == len(stage.memory.records) == 1


async def test_another_users_bridge_does_not_come_back_to_ours(nursery: trio.Nursery) -> None:
    stage = Stage()
    first = attachments(stage, nursery)
    first.take_hello({"anonymous": TOKEN})
    load_own(stage, first)
    other = back(stage, nursery, os.getuid() + 1)
    await trio.testing.wait_all_tasks_blocked()
    assert not other.own.state.loaded.tools


async def test_a_store_that_does_not_answer_is_asked_again_for_a_bridges_session(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    stage = Stage()
    first = attachments(stage, nursery)
    first.take_hello({"anonymous": TOKEN})
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
async def test_what_no_bridge_makes_up_is_no_key(nursery: trio.Nursery, token: object) -> None:
    stage = Stage()
    it = attachments(stage, nursery)
    assert it.take_hello({"anonymous": token}) == ""
    assert it.own.state.key is None


async def test_a_key_that_is_given_counts_more_than_one_that_is_made_up(nursery: trio.Nursery) -> None:
    it = attachments(Stage(), nursery)
    assert it.take_hello({"session": "k", "anonymous": TOKEN}) == ""
    assert it.key_of({}) == "k"
    assert it.own.state.key is None


async def test_whoever_keeps_nothing_may_call_what_is_not_loaded_and_shares_the_offer_of_his_profile(
    nursery: trio.Nursery,
) -> None:
    stage = Stage(profiles={"default": {"surface": "load"}})
    client = Client(stage.config, stage.context.surfaces, Principal(keeps=False))
    own = Attachments(client, stage.context, on_change=lambda: None, later=nursery.start_soon).own
    kept = attachments(stage, nursery).own.view()
    offer, view = kept.offer, own.view()
    assert (kept.auto_load, view.auto_load) == (False, True)
    assert view.offer is offer is kept.offer


async def test_whoever_keeps_nothing_shares_links_with_those_who_are_allowed_the_same(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()

    def own(owner: str) -> Attachment:
        client = Client(stage.config, stage.context.surfaces, Principal(owner=owner, keeps=False))
        return Attachments(client, stage.context, on_change=lambda: None, later=nursery.start_soon).own

    own("token ci: ").links["made:up"] = "alpha"
    assert own("token ci: ").links == {"made:up": "alpha"}
    assert own("token other: ").links == {}
    assert attachments(stage, nursery).own.links == {}
