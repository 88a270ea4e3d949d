"""Who is told what: a client that shook hands everything, a subscription what it asked for, under its id."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from daemon.catalog.kinds import LISTS
from daemon.clients.client import Client
from daemon.clients.list_changes import MAX_SUBSCRIPTIONS, ListChanges
from daemon.model import Kind
from daemon.surfaces.table import SURFACES
from daemon.wire.outbox import Outbox
from daemon.wire.peer import Peer
from tests.unit.config.reading import config_of
from tests.unit.wire.fakes import RecordingHandler, ScriptedLink

if TYPE_CHECKING:
    import trio

TOOLS, PROMPTS = LISTS[Kind.TOOL], LISTS[Kind.PROMPT]


class Told:
    """A client's subscriptions, and what the client was told."""

    def __init__(self) -> None:
        self._link = ScriptedLink(outbox := Outbox())
        peer = Peer(self._link, outbox, RecordingHandler(), strict=True)
        self.it = ListChanges(peer, outbox, Client(config_of({}), SURFACES), {})

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._link.sent]


async def test_nobody_is_told_who_has_not_asked(nursery: trio.Nursery) -> None:
    told = Told()
    told.it.announce(TOOLS)
    assert told.lines == []


async def test_a_client_that_shook_hands_is_told_of_everything(nursery: trio.Nursery) -> None:
    told = Told()
    told.it.handshaken = True
    told.it.announce(PROMPTS)
    told.it.announce(TOOLS)
    assert [each["method"] for each in told.lines] == [PROMPTS.changed, TOOLS.changed]
    assert all("_meta" not in each["params"] for each in told.lines)


async def test_a_subscription_is_told_what_it_asked_for_until_it_ends(nursery: trio.Nursery) -> None:
    told = Told()
    told.it.open[b'"a"'] = {TOOLS.wish: True}
    told.it.open[b"2"] = {PROMPTS.wish: True, TOOLS.wish: True}
    assert b"2" in told.it.open
    told.it.announce(TOOLS)
    told.it.announce(PROMPTS)
    del told.it.open[b"2"]
    assert not told.it.asking(PROMPTS.wish)
    told.it.announce(PROMPTS)
    ids = [each["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for each in told.lines]
    assert ids == ["a", 2, 2]


async def test_all_are_answered_when_the_daemon_ends_them(nursery: trio.Nursery) -> None:
    told = Told()
    for number in range(MAX_SUBSCRIPTIONS):
        told.it.open[b"%d" % number] = {TOOLS.wish: True}
    told.it.end_all()
    assert [each["id"] for each in told.lines] == list(range(MAX_SUBSCRIPTIONS))
    assert {each["result"]["resultType"] for each in told.lines} == {"complete"}
    assert told.it.open == {}
