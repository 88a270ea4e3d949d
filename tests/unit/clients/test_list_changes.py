"""What a client is told of lists beside tools that have changed since it was given them."""

from __future__ import annotations

import json
from functools import partial

import trio
import trio.testing
from loguru import logger

from daemon.catalog.kinds import LISTS
from daemon.clients.client import Client
from daemon.clients.list_changes import ListChanges
from daemon.facts import Configured
from daemon.model import Kind
from daemon.surfaces.table import SURFACES
from daemon.wire.outbox import Outbox
from daemon.wire.peer import Peer
from tests.fakes_upstream import MODERN, Stage
from tests.unit.config.reading import config_of
from tests.unit.wire.fakes import RecordingHandler, ScriptedLink

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


async def test_a_change_is_told_once_until_the_list_is_asked_for_again(nursery: trio.Nursery) -> None:
    reader = Reader()
    reader.lists[Kind.PROMPT] = (b"1",)
    assert reader.told() == []
    reader.lists_all()
    assert reader.told() == []
    reader.lists[Kind.PROMPT] = (b"2",)
    assert reader.told() == [PROMPTS]
    reader.lists[Kind.PROMPT] = (b"3",)
    assert reader.told() == []
    reader.lists_all()
    reader.lists[Kind.PROMPT] = ()
    assert reader.told() == [PROMPTS]


async def test_resources_and_their_templates_share_a_notification(nursery: trio.Nursery) -> None:
    reader = Reader()
    reader.lists_all()
    reader.lists[Kind.RESOURCE] = reader.lists[Kind.TEMPLATE] = (b"1",)
    assert reader.told() == [RESOURCES]
    reader.lists_all()
    reader.lists[Kind.TEMPLATE] = ()
    assert reader.told() == [RESOURCES]


async def test_a_list_that_changes_between_its_pages_is_told(nursery: trio.Nursery) -> None:
    reader = Reader()
    reader.gets(Kind.PROMPT, (b"1", b"2"))
    reader.lists[Kind.PROMPT] = (b"0",)
    reader.gets(Kind.PROMPT, (b"0",), first=False)
    assert reader.told() == [PROMPTS]


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


async def test_a_client_hears_of_what_its_servers_list_anew(nursery: trio.Nursery) -> None:
    stage = Stage()
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


async def test_a_profile_that_gives_them_up_takes_them_from_the_list(nursery: trio.Nursery) -> None:
    stage = Stage()
    stage.offers("alpha", Kind.PROMPT, "a")
    stage.offers("beta", Kind.PROMPT)
    client = await stage.client(nursery)
    params = {"_meta": MODERN, "notifications": {"promptsListChanged": True}}
    await client.request("subscriptions/listen", params, request_id="s")
    servers = {name: {"command": "unused"} for name in ("alpha", "beta")}
    config = config_of({"mcpServers": servers, "profiles": {"default": {"prompts": False}}})
    stage.learn(Configured(config=config, now=0.0))
    assert (await client.get())["method"] == PROMPTS
