"""What a client is told of its list of tools, and how long anybody waits until it has looked."""

import json
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from loguru import logger

from daemon.catalog.kinds import LISTS
from daemon.clients.client import Client
from daemon.clients.connection import MAX_KEYS
from daemon.clients.notifications import (
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
from daemon.counting.tally import tokens_in
from daemon.facts import Configured
from daemon.model import Kind
from daemon.surfaces.table import SURFACES
from daemon.wire.outbox import Outbox
from daemon.wire.requests import Peer
from tests.fakes_upstream import MODERN, Stage
from tests.tallies import new_tally
from tests.unit.cases import cases
from tests.unit.config.reading import config_of
from tests.unit.wire.fakes import RecordingHandler, ScriptedLink

pytestmark = pytest.mark.usefixtures("autojump_clock")

RELISTS = 0.04
"""Seconds until a real client lists again."""


class Window:
    """A client as a session sees it, and its lists as they would be given now."""

    def __init__(
        self, habits: dict[str, Habit] | None = None, client: str = "test 1", *, handshaken: bool = True
    ) -> None:
        self.link = ScriptedLink(outbox := Outbox())
        peer = Peer(self.link, outbox, RecordingHandler(), strict=True)
        self.client = Client(config_of({}), SURFACES)
        self.client.name = client
        self.it = ListChanges(
            peer, outbox, self.client, {} if habits is None else habits, handshaken=handshaken
        )
        self.items: dict[Kind, tuple[bytes, ...]] = dict.fromkeys(Kind, ())

    @property
    def told(self) -> list[dict[str, Any]]:
        """What it was told."""
        return [json.loads(line) for line in self.link.sent]

    def hears(self) -> list[str]:
        """The methods that it was told since the last look, after another one of ours."""
        self.it.announce_if_changed()
        methods = [each["method"] for each in self.told]
        self.link.sent.clear()
        return methods

    def lists(self, key: str | None = None) -> None:
        """It asks for its tools, and gets all of them."""
        self.it.asked(key)
        self.gets(key)

    def lists_others(self) -> None:
        """It gets all of its other lists."""
        for kind in (Kind.PROMPT, Kind.RESOURCE, Kind.TEMPLATE):
            self.gets(kind=kind)

    def gets(
        self, key: str | None = None, *, first: bool = True, last: bool = True, kind: Kind = Kind.TOOL
    ) -> None:
        """It gets a page."""
        self.it.given((kind, key), self.items[kind], lambda: self.items[kind], first=first, last=last)

    def changes(self) -> None:
        """It has other tools from now on."""
        self.items[Kind.TOOL] = (b"%d" % (len(self.items[Kind.TOOL]) + 1), *self.items[Kind.TOOL])
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


# --- who is waited for -------------------------------------------------------------------------------------


async def test_a_client_that_asked_too_late_is_waited_for_again(nursery: trio.Nursery) -> None:
    window = Window()
    window.lists()
    assert await load(window, nursery, None) == pytest.approx(PATIENCE)
    window.lists()
    assert await load(window, nursery) == pytest.approx(RELISTS + TAKING_IN)


async def test_a_client_that_lists_at_each_turn(nursery: trio.Nursery) -> None:
    """Some programs list their tools before each request to their model, hence after each answer."""
    window = Window()
    held = 0
    for _ in range(3 * MAX_OWED + 100):
        window.lists()
        held += await load(window, nursery, None) > 0
    assert held == 7 + 3, "and in the end once in so many"


@pytest.mark.parametrize(
    ("first", "second", "seconds"),
    [("codex 1", "codex 1", 0), ("codex 1", "claude-code 2", PATIENCE), ("", "", PATIENCE)],
)
async def test_what_one_window_has_learned_the_next_one_of_its_kind_need_not(
    nursery: trio.Nursery, first: str, second: str, seconds: float
) -> None:
    habits = dict[str, Habit]()
    for name, held in ((first, PATIENCE), (second, seconds)):
        window = Window(habits, name)
        window.lists()
        assert await load(window, nursery, None) == pytest.approx(held)


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


async def test_what_a_client_does_itself_counts_more_than_what_others_do(nursery: trio.Nursery) -> None:
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


async def test_a_list_that_comes_before_anybody_waits_was_waited_for(nursery: trio.Nursery) -> None:
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
    for _ in range(2):
        window.lists()
        window.changes()
        await trio.sleep(PATIENCE)
        assert await window.wait() == 0
    window.lists()
    assert await load(window, nursery) > 0, "and nothing is learned from that"


async def test_that_nobody_asks_after_a_change_between_two_pages_is_learned(nursery: trio.Nursery) -> None:
    window = Window()
    window.lists()
    window.changes()
    window.it.asked(None)
    window.gets(last=False)
    window.changes()
    assert await window.wait() == pytest.approx(PATIENCE)
    window.gets()
    assert await load(window, nursery, None) == 0


async def test_nobody_waits_for_a_client_that_was_not_told(nursery: trio.Nursery) -> None:
    blind, unsubscribed = Window(), Window()
    blind.changes()
    unsubscribed.it.handshaken = False
    unsubscribed.lists()
    unsubscribed.changes()
    assert (await blind.wait(), await unsubscribed.wait()) == (0, 0)


@pytest.mark.parametrize("asked", [True, False])
async def test_a_change_between_two_pages_keeps_nobody_waiting(nursery: trio.Nursery, *, asked: bool) -> None:
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


async def test_a_list_that_itself_waits_holds_no_answer_longer(nursery: trio.Nursery) -> None:
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


PROMPTS, RESOURCES = LISTS[Kind.PROMPT].changed, LISTS[Kind.RESOURCE].changed


async def test_resources_and_their_templates_share_a_notification(nursery: trio.Nursery) -> None:
    window = Window()
    window.lists_others()
    window.items[Kind.RESOURCE] = window.items[Kind.TEMPLATE] = (b"1",)
    assert window.hears() == [RESOURCES]
    window.lists_others()
    window.items[Kind.TEMPLATE] = ()
    assert window.hears() == [RESOURCES]


async def test_what_is_followed_is_told_each_time(nursery: trio.Nursery) -> None:
    window = Window(handshaken=False)
    window.it.open[b"1"] = {LISTS[Kind.RESOURCE].wish: True}
    for kind in (Kind.RESOURCE, Kind.TEMPLATE):
        window.it.follow((kind, None), partial(window.items.__getitem__, kind))
    for number in range(3):
        window.items[Kind.TEMPLATE] = window.items[Kind.PROMPT] = (b"%d" % number,)
        assert window.hears() == [RESOURCES]
    del window.it.open[b"1"]
    window.it.unfollow()
    window.items[Kind.TEMPLATE] = ()
    assert window.hears() == []


async def test_a_list_that_cannot_be_made_costs_an_announcement(nursery: trio.Nursery) -> None:
    window, said = Window(), list[str]()
    window.lists_others()
    del window.items[Kind.PROMPT]
    sink = logger.add(lambda message: said.append(message.record["message"]), level="ERROR")
    assert window.hears() == []
    logger.remove(sink)
    assert said == ["internal error in mcpd while listing prompts"]


async def test_a_profile_without_them_takes_them_from_the_list(stage: Stage, nursery: trio.Nursery) -> None:
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


async def test_a_subscription_is_told_what_it_asked_for_until_it_ends(nursery: trio.Nursery) -> None:
    window = Window(handshaken=False)
    window.it.open[b'"a"'] = {TOOL_LIST.wish: True}
    window.it.open[b"2"] = {PROMPT_LIST.wish: True, TOOL_LIST.wish: True}
    window.it.announce(TOOL_LIST)
    window.it.announce(PROMPT_LIST)
    del window.it.open[b"2"]
    assert not window.it.asking(PROMPT_LIST.wish)
    window.it.announce(PROMPT_LIST)
    ids = [each["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for each in window.told]
    assert ids == ["a", 2, 2]


async def test_all_are_answered_when_the_daemon_ends_them(nursery: trio.Nursery) -> None:
    window = Window(handshaken=False)
    for number in range(MAX_SUBSCRIPTIONS):
        window.it.open[b"%d" % number] = {TOOL_LIST.wish: True}
    window.it.end_all()
    assert [each["id"] for each in window.told] == list(range(MAX_SUBSCRIPTIONS))
    assert {each["result"]["resultType"] for each in window.told} == {"complete"}
    assert window.it.open == {}


def test_a_list_that_takes_the_place_of_another_counts_with_what_is_other() -> None:
    savings = Savings(tally := new_tally())
    savings.client = "zed"
    for _ in range(3):
        savings.listed("load", None, sent=400, full=4400)
    assert savings.spared == 4000
    savings.listed("load", None, sent=800, full=4400)
    assert savings.spared == 3600
    savings.listed("load", None, sent=800, full=8800)
    assert savings.spared == 8000
    lists = tally.lists["load"]
    assert (lists.spared, lists.instead) == (8400, 400)
    assert tally.clients["zed"].spared == 8400, "it is counted by the name that the client gives, too"


@cases("surface", "sent", "full", "answer", "applies", "tokens", "counted")
def test_a_client_is_told_what_it_was_spared_less_what_it_was_sent_instead(
    surface: str, sent: int, full: int, answer: int, *, applies: bool, tokens: int | None, counted: list[int]
) -> None:
    savings = Savings(tally := new_tally())
    savings.applies = applies
    savings.listed(surface, None, sent=sent, full=full)
    savings.answered(surface, answer)
    lists = tally.lists[surface]
    assert (tokens_in(savings.spared), [lists.spared, lists.instead]) == (tokens or 0, counted)


def test_each_session_of_a_connection_has_its_own_list_and_only_so_many_are_known() -> None:
    savings = Savings(new_tally())
    for key in ("a", "b", "a"):
        savings.listed("load", key, sent=0, full=400)
    assert savings.spared == 800
    for number in range(1000):
        savings.listed("load", str(number), sent=400, full=400)
    assert len(savings._margins) == MAX_LISTS
