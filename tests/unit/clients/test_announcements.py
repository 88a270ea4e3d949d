"""What a client is told of its list of tools, and how long anybody waits until it has looked."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from loguru import logger

from daemon.catalog.kinds import LISTS
from daemon.clients.attachments import MAX_KEYS
from daemon.clients.client import Client
from daemon.clients.list_changes import (
    MAX_CLIENTS,
    MAX_LISTS,
    MAX_OWED,
    MAX_SUBSCRIPTIONS,
    PATIENCE,
    TAKING_IN,
    Habit,
    ListChanges,
    Savings,
)
from daemon.facts import Configured
from daemon.model import Kind
from daemon.surfaces.table import SURFACES
from daemon.wire.outbox import Outbox
from daemon.wire.peer import Peer
from tests.fakes_upstream import MODERN, Stage
from tests.tallies import new_tally
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
    window.it.announce_if_changed()
    assert window.told == []
    for _ in range(3):
        window.changes()
    assert [each["method"] for each in window.told] == [LISTS[Kind.TOOL].changed]
    window.lists()
    window.changes()
    assert len(window.told) == 2


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


def test_each_wait_in_vain_in_a_row_is_followed_by_twice_as_many_without() -> None:
    habit, owed = Habit(), []
    for _ in range(9):
        habit = habit.unheard()
        owed.append(habit.owed)
        while not habit.listens:
            habit = habit.heard(waited=False)
    assert owed == [1, 2, 4, 8, 16, 32, MAX_OWED, MAX_OWED, MAX_OWED]


PROMPTS, RESOURCES = LISTS[Kind.PROMPT].changed, LISTS[Kind.RESOURCE].changed


class Reader:
    """A client, and its lists as it would be given them now."""

    def __init__(self) -> None:
        self._link = ScriptedLink(outbox := Outbox())
        peer = Peer(self._link, outbox, RecordingHandler(), strict=True)
        self.it = ListChanges(peer, outbox, Client(config_of({}), SURFACES), {}, handshaken=True)
        self.lists: dict[Kind, tuple[bytes, ...]] = dict.fromkeys(Kind, ())

    def lists_all(self) -> None:
        for kind, items in self.lists.items():
            if kind is not Kind.TOOL:
                self.gets(kind, items)

    def gets(self, kind: Kind, items: tuple[bytes, ...], *, first: bool = True) -> None:
        self.it.given((kind, None), items, lambda: self.lists[kind], first=first, last=True)

    def told(self) -> list[str]:
        """The methods that it was told since the last look, after another one of ours."""
        self.it.announce_if_changed()
        told = [json.loads(line)["method"] for line in self._link.sent]
        self._link.sent.clear()
        return told


async def test_resources_and_their_templates_share_a_notification(nursery: trio.Nursery) -> None:
    reader = Reader()
    reader.lists_all()
    reader.lists[Kind.RESOURCE] = reader.lists[Kind.TEMPLATE] = (b"1",)
    assert reader.told() == [RESOURCES]
    reader.lists_all()
    reader.lists[Kind.TEMPLATE] = ()
    assert reader.told() == [RESOURCES]


async def test_what_is_followed_is_told_each_time(nursery: trio.Nursery) -> None:
    reader = Reader()
    reader.it.handshaken = False
    reader.it.open[b"1"] = {LISTS[Kind.RESOURCE].wish: True}
    for kind in (Kind.RESOURCE, Kind.TEMPLATE):
        reader.it.follow((kind, None), partial(reader.lists.__getitem__, kind))
    for number in range(3):
        reader.lists[Kind.TEMPLATE] = (b"%d" % number,)
        reader.lists[Kind.PROMPT] = (b"%d" % number,)
        assert reader.told() == [RESOURCES]
    del reader.it.open[b"1"]
    reader.it.unfollow()
    reader.lists[Kind.TEMPLATE] = ()
    assert reader.told() == []


async def test_a_list_that_cannot_be_made_costs_an_announcement(nursery: trio.Nursery) -> None:
    reader, said = Reader(), list[str]()
    reader.lists_all()
    del reader.lists[Kind.PROMPT]
    sink = logger.add(lambda message: said.append(message.record["message"]), level="ERROR")
    assert reader.told() == []
    logger.remove(sink)
    assert said == ["a fault of mcpd's own while listing prompts"]


async def test_a_client_hears_of_what_its_servers_list_anew(stage: Stage, nursery: trio.Nursery) -> None:
    for kind in (Kind.PROMPT, Kind.RESOURCE, Kind.TEMPLATE):
        stage.offers("alpha", kind, "a")
        stage.offers("beta", kind)
    client = await stage.client(nursery)
    await client.request("initialize", {})
    for method in ("prompts/list", "resources/list"):
        await client.request(method)
    stage.offers("alpha", Kind.PROMPT, "a", "b")
    stage.offers("alpha", Kind.TEMPLATE, "a{b}")
    stage.offers("beta", Kind.RESOURCE, "b")
    await trio.testing.wait_all_tasks_blocked()
    assert {(await client.get())["method"] for _ in range(2)} == {PROMPTS, RESOURCES}


async def test_a_profile_that_gives_them_up_takes_them_from_the_list(
    stage: Stage, nursery: trio.Nursery
) -> None:
    stage.offers("alpha", Kind.PROMPT, "a")
    stage.offers("beta", Kind.PROMPT)
    client = await stage.client(nursery)
    params = {"_meta": MODERN, "notifications": {"promptsListChanged": True}}
    await client.request("subscriptions/listen", params, request_id="s")
    servers = {name: {"command": "unused"} for name in ("alpha", "beta")}
    config = config_of({"mcpServers": servers, "profiles": {"default": {"prompts": False}}})
    stage.learn(Configured(config=config, now=0.0))
    assert (await client.get())["method"] == PROMPTS


TOOL_LIST, PROMPT_LIST = LISTS[Kind.TOOL], LISTS[Kind.PROMPT]


class Told:
    """A client's subscriptions, and what the client was told."""

    def __init__(self) -> None:
        self._link = ScriptedLink(outbox := Outbox())
        peer = Peer(self._link, outbox, RecordingHandler(), strict=True)
        self.it = ListChanges(peer, outbox, Client(config_of({}), SURFACES), {})

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._link.sent]


async def test_a_client_that_shook_hands_is_told_of_everything(nursery: trio.Nursery) -> None:
    told = Told()
    told.it.handshaken = True
    told.it.announce(PROMPT_LIST)
    told.it.announce(TOOL_LIST)
    assert [each["method"] for each in told.lines] == [PROMPT_LIST.changed, TOOL_LIST.changed]
    assert all("_meta" not in each["params"] for each in told.lines)


async def test_a_subscription_is_told_what_it_asked_for_until_it_ends(nursery: trio.Nursery) -> None:
    told = Told()
    told.it.open[b'"a"'] = {TOOL_LIST.wish: True}
    told.it.open[b"2"] = {PROMPT_LIST.wish: True, TOOL_LIST.wish: True}
    assert b"2" in told.it.open
    told.it.announce(TOOL_LIST)
    told.it.announce(PROMPT_LIST)
    del told.it.open[b"2"]
    assert not told.it.asking(PROMPT_LIST.wish)
    told.it.announce(PROMPT_LIST)
    ids = [each["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for each in told.lines]
    assert ids == ["a", 2, 2]


async def test_all_are_answered_when_the_daemon_ends_them(nursery: trio.Nursery) -> None:
    told = Told()
    for number in range(MAX_SUBSCRIPTIONS):
        told.it.open[b"%d" % number] = {TOOL_LIST.wish: True}
    told.it.end_all()
    assert [each["id"] for each in told.lines] == list(range(MAX_SUBSCRIPTIONS))
    assert {each["result"]["resultType"] for each in told.lines} == {"complete"}
    assert told.it.open == {}


def test_a_list_that_takes_the_place_of_another_counts_with_what_is_other() -> None:
    savings = Savings(tally := new_tally())
    for _ in range(3):
        savings.listed("load", None, sent=400, full=4400)
    assert savings.tokens == 1000
    savings.listed("load", None, sent=800, full=4400)
    assert savings.tokens == 900
    savings.listed("load", None, sent=800, full=8800)
    assert savings.tokens == 2000
    lists = tally.lists["load"]
    assert (lists.spared, lists.instead) == (8400, 400)


@pytest.mark.parametrize(
    ("surface", "sent", "full", "answer", "applies", "tokens", "counted"),
    [
        ("load", 400, 4400, 800, True, 900, (4000, 400)),
        ("category", 1400, 200, 4000, True, -800, (0, 3200)),
        ("full", 69_000, 69_000, 0, True, 0, (0, 0)),
        ("load", 400, 4400, 800, False, None, (0, 0)),
    ],
)
def test_a_client_is_told_what_it_was_spared_less_what_it_was_sent_instead(
    surface: str,
    sent: int,
    full: int,
    answer: int,
    *,
    applies: bool,
    tokens: int | None,
    counted: tuple[int, int],
) -> None:
    savings = Savings(tally := new_tally())
    savings.applies = applies
    savings.listed(surface, None, sent=sent, full=full)
    savings.answered(surface, answer)
    lists = tally.lists[surface]
    assert (savings.tokens, (lists.spared, lists.instead)) == (tokens, counted)


def test_it_is_counted_by_the_name_that_the_client_gives() -> None:
    savings = Savings(tally := new_tally())
    savings.client = "zed"
    savings.listed("load", None, sent=400, full=4400)
    assert tally.clients["zed"].spared == 4000


def test_each_session_of_a_connection_has_its_own_list_and_only_so_many_are_known() -> None:
    savings = Savings(new_tally())
    for key in ("a", "b", "a"):
        savings.listed("load", key, sent=0, full=400)
    assert savings.tokens == 200
    for number in range(1000):
        savings.listed("load", str(number), sent=400, full=400)
    assert len(savings._margins) == MAX_LISTS
