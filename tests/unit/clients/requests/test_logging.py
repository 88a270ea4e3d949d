"""A client sets the level of the logs that it gets; a line of its own call comes with that call."""

import json
from typing import Any

import trio

from daemon.protocol import LOG_LEVEL_KEY, LOG_MESSAGE
from tests.fakes_upstream import MODERN, Client, Stage
from tests.unit.cases import cases
from tests.unit.clients.inputs import raw

LINE = {"level": "info", "data": "said"}


async def call(client: Client, **meta: Any) -> None:
    await client.call("alpha", "echo", request_id="c", **({"_meta": meta} if meta else {}))


def say(stage: Stage, cause: Any = None) -> None:
    stage.context.subscribers.hear("alpha", LOG_MESSAGE, raw(LINE), cause)
    stage.outbox.flush()


async def test_each_client_gets_what_its_level_takes(stage: Stage, nursery: trio.Nursery) -> None:
    talkative, quiet, unset = [await stage.client(nursery) for _client in range(3)]
    assert (await talkative.request("logging/setLevel", {"level": "debug"}))["result"] == {}
    assert (await quiet.request("logging/setLevel", {"level": "error"}))["result"] == {}
    say(stage)
    assert (await talkative.get())["params"] == LINE
    for client in (quiet, unset):
        assert (await client.request("ping"))["result"] == {}


async def test_a_level_holds_for_servers_that_a_client_sees_later(nursery: trio.Nursery) -> None:
    categories = {name: {"server": name} for name in ("alpha", "beta")}
    stage = Stage(categories=categories, profiles={"default": {"categories": ["alpha"]}, "wide": {}})
    guest, wishes = await stage.connect(nursery), stage.context.subscribers.wishes
    await guest.client.request("logging/setLevel", {"level": "debug"})
    assert (wishes("alpha").value.level, wishes("beta").value.level) == ("debug", None)
    guest.session.move("wide")
    assert wishes("beta").value.level == "debug"


async def test_a_level_that_does_not_exist_is_refused_and_any_of_a_modern_client(nursery: trio.Nursery) -> None:
    client = await Stage().client(nursery)
    wrong: list[Any] = [{}, {"level": "loud"}, {"level": 7}, []]
    for params in wrong:
        assert (await client.request("logging/setLevel", params))["error"]["code"] == -32602
    answer = await client.request("logging/setLevel", {"level": "debug", "_meta": MODERN})
    assert answer["error"]["code"] == -32601


@cases("meta", "level", "gets")
async def test_a_line_of_ones_own_call_comes_with_it(
    stage: Stage, nursery: trio.Nursery, meta: dict[str, Any], level: str | None, *, gets: bool
) -> None:
    client, other = await stage.client(nursery), await stage.client(nursery)
    if level is not None:
        await client.request("logging/setLevel", {"level": level})
    await call(client, **meta)
    sent = await stage.alpha.wait_sent()
    said = sent.call.envelope.get(LOG_LEVEL_KEY)
    wished = meta.get(LOG_LEVEL_KEY, level)
    assert (None if said is None else json.loads(said)) == (None if wished == "loud" else wished)
    say(stage, sent.exchange)
    stage.answer(sent)
    first = await client.get()
    assert (first.get("method") == LOG_MESSAGE) is gets
    assert (await other.request("ping"))["result"] == {}


async def test_a_flood_does_not_fill_the_memory_for_a_client_that_does_not_read(nursery: trio.Nursery) -> None:
    stage = Stage(limits={"clientQueueBytes": 65536})
    guest = await stage.connect(nursery)
    await guest.client.request("logging/setLevel", {"level": "debug"})
    line = raw({"level": "info", "data": "x" * 1000})
    for _line in range(5000):
        stage.context.subscribers.hear("alpha", LOG_MESSAGE, line, None)
    stage.outbox.flush()
    assert guest.session._link.queued <= 65536 + 2000
