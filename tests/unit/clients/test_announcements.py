"""What a client is told of its list of tools, and how long anybody waits until it has looked."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from daemon.catalog.kinds import LISTS
from daemon.clients.attachments import MAX_KEYS
from daemon.clients.client import Client
from daemon.clients.list_changes import MAX_CLIENTS, MAX_LISTS, PATIENCE, TAKING_IN, Habit, ListChanges
from daemon.model import Kind
from daemon.surfaces.table import SURFACES
from daemon.wire.outbox import Outbox
from daemon.wire.peer import Peer
from tests.unit.config.reading import config_of
from tests.unit.wire.fakes import RecordingHandler, ScriptedLink

pytestmark = pytest.mark.usefixtures("autojump_clock")

RELISTS = 0.04
"""Seconds until a real client lists again."""


class Window:
    """A client as a session sees it, and its list as it would be given now."""

    def __init__(self, habits: dict[str, Habit] | None = None, client: str = "test 1") -> None:
        self.link = ScriptedLink(outbox := Outbox())
        peer = Peer(self.link, outbox, RecordingHandler(), strict=True)
        self.client = Client(config_of({}), SURFACES)
        self.client.name = client
        self.it = ListChanges(peer, outbox, self.client, {} if habits is None else habits, handshaken=True)
        self.tools: tuple[bytes, ...] = ()

    @property
    def told(self) -> list[dict[str, Any]]:
        """What it was told."""
        return [json.loads(line) for line in self.link.sent]

    def lists(self, key: str | None = None) -> None:
        """It asks for its list, and gets all of it."""
        self.it.asked(key)
        self.gets(key)

    def gets(self, key: str | None = None, *, first: bool = True, last: bool = True) -> None:
        """It gets a page."""
        self.it.given((Kind.TOOL, key), self.tools, lambda: self.tools, first=first, last=last)

    def changes(self) -> None:
        """Its list is another from now on."""
        self.tools = (b"%d" % (len(self.tools) + 1), *self.tools)
        self.it.announce_if_changed()

    async def wait(self, key: str | None = None) -> float:
        """Load something and be answered: after how long?"""
        began = trio.current_time()
        told = self.it.expect(key)
        if told is not None:
            await self.it.wait_listed(told)
        return trio.current_time() - began

    async def relist_after(self, seconds: float, key: str | None = None) -> None:
        """Take its time, and list."""
        await trio.sleep(seconds)
        self.lists(key)


async def load(window: Window, nursery: trio.Nursery, relists: float | None = RELISTS) -> float:
    """What a client's list becomes another by: how long is its answer held?"""
    window.changes()
    if relists is not None:
        nursery.start_soon(window.relist_after, relists)
    return await window.wait()


# --- who is told -------------------------------------------------------------------------------------------


async def test_who_was_given_a_list_is_told_once_until_it_looks_again(nursery: trio.Nursery) -> None:
    window = Window()
    window.changes()
    assert window.told == []
    window.lists()
    for _ in range(3):
        window.changes()
    assert [each["method"] for each in window.told] == [LISTS[Kind.TOOL].changed]
    window.lists()
    window.changes()
    assert len(window.told) == 2


async def test_a_list_that_is_as_it_was_is_no_news(nursery: trio.Nursery) -> None:
    window = Window()
    window.lists()
    window.it.announce_if_changed()
    assert window.told == []


async def test_every_subscription_is_told_under_its_own_id(nursery: trio.Nursery) -> None:
    window = Window()
    window.it.handshaken = False
    for request_id in (b'"a"', b"2"):
        window.it.open[request_id] = {"toolsListChanged": True}
    window.it.open[b"3"] = {"promptsListChanged": True}
    window.lists()
    window.changes()
    ids = [each["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for each in window.told]
    assert ids == ["a", 2]


async def test_a_list_that_cannot_be_made_costs_an_announcement(nursery: trio.Nursery) -> None:
    window = Window()

    def broken() -> tuple[bytes, ...]:
        raise ZeroDivisionError

    window.it.given((Kind.TOOL, None), (), broken, first=True, last=True)
    window.it.announce_if_changed()
    assert window.told == []


# --- who is waited for -------------------------------------------------------------------------------------


async def test_an_answer_comes_when_the_client_has_its_list_and_could_take_it_in(nursery: trio.Nursery) -> None:
    window = Window()
    window.lists()
    assert await load(window, nursery) == pytest.approx(RELISTS + TAKING_IN)


async def test_a_client_that_never_asks_is_waited_for_a_second_and_the_next_time_not_at_all(
    nursery: trio.Nursery,
) -> None:
    window = Window()
    window.lists()
    assert await load(window, nursery, None) == pytest.approx(PATIENCE)
    assert await load(window, nursery, None) == 0


async def test_a_client_that_asked_too_late_is_waited_for_again(nursery: trio.Nursery) -> None:
    window = Window()
    window.lists()
    assert await load(window, nursery, None) == pytest.approx(PATIENCE)
    window.lists()
    assert await load(window, nursery) == pytest.approx(RELISTS + TAKING_IN)


async def test_a_client_that_lists_at_each_turn_and_never_when_told_is_held_ever_more_rarely(
    nursery: trio.Nursery,
) -> None:
    """Some programs list their tools before each request to their model, hence after each answer."""
    window = Window()
    held = 0
    for _ in range(100):
        window.lists()
        held += await load(window, nursery, None) > 0
    assert held == 7


async def test_what_one_window_has_learned_the_next_one_of_its_kind_need_not(nursery: trio.Nursery) -> None:
    habits = dict[str, Habit]()
    first, second, other = (
        Window(habits, "codex 1"),
        Window(habits, "codex 1"),
        Window(habits, "claude-code 2"),
    )
    for window in (first, second, other):
        window.lists()
    assert await load(first, nursery, None) == pytest.approx(PATIENCE)
    assert await load(second, nursery, None) == 0
    assert await load(other, nursery) == pytest.approx(RELISTS + TAKING_IN)


async def test_clients_without_a_name_are_not_taken_for_one_another(nursery: trio.Nursery) -> None:
    habits = dict[str, Habit]()
    first, second = Window(habits, ""), Window(habits, "")
    for window in (first, second):
        window.lists()
    assert await load(first, nursery, None) == pytest.approx(PATIENCE)
    assert await load(second, nursery) == pytest.approx(RELISTS + TAKING_IN)


async def test_only_so_many_kinds_are_remembered_and_what_was_learned_last_is(nursery: trio.Nursery) -> None:
    habits = dict[str, Habit]()
    for name in ("first", "second", "first", *map(str, range(MAX_CLIENTS - 1))):
        window = Window(habits, name)
        window.lists()
        await load(window, nursery, None)
        window.lists()
    assert len(habits) == MAX_CLIENTS
    assert "first" in habits
    assert "second" not in habits


async def test_what_a_client_does_itself_counts_more_than_what_others_of_its_name_do(
    nursery: trio.Nursery,
) -> None:
    """Programs that are made with one SDK often go by its name."""
    habits = dict[str, Habit]()
    listens, deaf = Window(habits, "mcp 1"), Window(habits, "mcp 1")
    for window in (listens, deaf):
        window.lists()
    assert await load(listens, nursery) > 0
    assert await load(deaf, nursery, None) == pytest.approx(PATIENCE)
    assert await load(listens, nursery) == pytest.approx(RELISTS + TAKING_IN)


async def test_two_answers_wait_for_the_one_list_and_a_later_change_for_the_next(nursery: trio.Nursery) -> None:
    window = Window()
    window.lists()
    times: list[float] = []

    async def note(key: str | None) -> None:
        times.append(await window.wait(key))

    window.changes()
    nursery.start_soon(note, None)
    await trio.sleep(RELISTS / 2)
    window.changes()
    assert len(window.told) == 1, "it has not looked after the first one yet"
    nursery.start_soon(note, None)
    await trio.sleep(RELISTS / 2)
    window.lists()
    window.changes()
    assert len(window.told) == 2
    nursery.start_soon(window.relist_after, RELISTS)
    assert await window.wait() == pytest.approx(RELISTS + TAKING_IN)
    assert sorted(times) == pytest.approx([RELISTS / 2 + TAKING_IN, RELISTS + TAKING_IN])


async def test_two_waits_in_vain_for_one_announcement_are_one_lesson(nursery: trio.Nursery) -> None:
    window = Window()
    window.lists()
    window.changes()
    nursery.start_soon(window.wait)
    await window.wait()
    window.lists()
    assert await load(window, nursery) == pytest.approx(RELISTS + TAKING_IN)


async def test_a_list_that_comes_before_anybody_has_begun_to_wait_is_one_that_was_waited_for(
    nursery: trio.Nursery,
) -> None:
    """What is loaded under a key is written first."""
    habits = dict[str, Habit]()
    habits["test 1"] = Habit(misses=3, owed=0)
    window = Window(habits)
    window.lists()
    window.changes()
    told = window.it.expect(None)
    assert told is not None
    window.lists()
    assert habits["test 1"] == Habit()
    began = trio.current_time()
    await window.it.wait_listed(told)
    assert trio.current_time() - began == pytest.approx(TAKING_IN)


async def test_who_was_told_long_ago_is_not_waited_for(nursery: trio.Nursery) -> None:
    window = Window()
    window.lists()
    window.changes()
    await trio.sleep(PATIENCE)
    assert await window.wait() == 0
    window.lists()
    assert await load(window, nursery) > 0, "and nothing is learned from that"


async def test_nobody_waits_for_a_client_that_was_not_told(nursery: trio.Nursery) -> None:
    blind, unsubscribed = Window(), Window()
    blind.changes()
    unsubscribed.it.handshaken = False
    unsubscribed.lists()
    unsubscribed.changes()
    assert (await blind.wait(), await unsubscribed.wait()) == (0, 0)


async def test_a_list_in_pages_is_there_with_its_last_one(nursery: trio.Nursery) -> None:
    window = Window()
    window.lists()
    window.changes()
    told = window.it.expect(None)
    assert told is not None
    window.it.asked(None)
    window.gets(last=False)
    assert not told.listed.is_set()
    window.gets(first=False)
    assert told.listed.is_set()


@pytest.mark.parametrize("asked", [True, False])
async def test_a_change_between_two_pages_keeps_nobody_waiting_who_waits_for_the_list(
    nursery: trio.Nursery, *, asked: bool
) -> None:
    habits = dict[str, Habit]()
    window = Window(habits)
    window.lists()
    window.changes()
    told = window.it.expect(None)
    assert told is not None
    if asked:
        window.it.asked(None)
    window.gets(last=False)
    window.changes()
    nursery.start_soon(window.relist_after, RELISTS)
    began = trio.current_time()
    await window.it.wait_listed(told)
    assert trio.current_time() - began == pytest.approx(RELISTS + TAKING_IN)
    assert habits.get("test 1", Habit()).listens


async def test_a_list_that_itself_waits_holds_no_answer_longer_and_is_no_bad_sign(
    nursery: trio.Nursery,
) -> None:
    window = Window()
    window.lists()
    window.changes()
    window.it.asked(None)
    assert await window.wait() == pytest.approx(PATIENCE)
    window.gets()
    assert await load(window, nursery) > 0


async def test_each_session_of_a_connection_has_its_own_list(nursery: trio.Nursery) -> None:
    window = Window()
    window.lists("a")
    window.lists("b")
    window.changes()
    nursery.start_soon(window.relist_after, RELISTS, "b")
    assert await window.wait("b") == pytest.approx(RELISTS + TAKING_IN)
    assert window.it.expect("a") is not None


async def test_only_so_many_lists_are_kept(nursery: trio.Nursery) -> None:
    window = Window()
    for turn in range(3):
        for number in range(MAX_LISTS):
            window.lists(f"{turn} {number}")
        window.changes()
    assert window.it.expect("0 0") is None
    assert window.it.expect(f"2 {MAX_LISTS - 1}") is not None
    assert MAX_LISTS == MAX_KEYS
