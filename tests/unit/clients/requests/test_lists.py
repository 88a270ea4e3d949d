"""Long lists in pages, cursors that were never given out, and how many requests wait."""

from typing import Any

import pytest
import trio

from daemon.clients.requests.tools import (
    MAX_WAITING_LISTS,
    OTHERS,
    PATIENCE,
    list_page,
    list_result,
    patience_of,
)
from daemon.model import Kind
from daemon.surfaces.table import ClientInfo
from tests.fakes_upstream import MODERN, Stage

MANY = 1000
METHODS = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def listed_stage(**config: Any) -> Stage:
    """Servers that have listed all that they have: nothing but tools."""
    stage = Stage(**config)
    for server in ("alpha", "beta"):
        for kind in (Kind.PROMPT, Kind.RESOURCE, Kind.TEMPLATE):
            stage.offers(server, kind)
    return stage


@pytest.mark.parametrize("modern", [True, False])
async def test_many_resources_come_in_pages_each_once(nursery: trio.Nursery, *, modern: bool) -> None:
    stage = listed_stage(limits={"clientQueueBytes": 16 * 1024})
    uris = [f"file:///{number}/{'x' * (number % 50)}" for number in range(MANY)]
    stage.offers("alpha", Kind.RESOURCE, *uris)
    client = await stage.client(nursery)
    meta = {"_meta": MODERN} if modern else {}
    seen: list[str] = []
    result: dict[str, Any] = {"nextCursor": None}
    pages = 0
    while "nextCursor" in result:
        cursor = {} if result["nextCursor"] is None else {"cursor": result["nextCursor"]}
        result = (await client.request("resources/list", {**cursor, **meta}))["result"]
        seen += [each["uri"] for each in result["resources"]]
        pages += 1
        assert ("ttlMs" in result) == modern
    assert seen == uris
    assert 5 < pages < 30


@pytest.mark.parametrize("method", METHODS)
async def test_the_params_of_a_list_are_an_object_with_a_cursor_that_was_given_out(
    nursery: trio.Nursery, method: str
) -> None:
    client = await listed_stage().client(nursery)
    cursors: list[Any] = ["", "-1", "1", "x", "9" * 30, "\u0661", 0, {}]
    for params in ([], *({"cursor": cursor} for cursor in cursors)):
        assert (await client.request(method, params))["error"]["code"] == -32602, params
    assert (await client.request(method, {"cursor": None}))["result"] == {METHODS[method]: []}


async def test_only_so_many_lists_wait_for_servers(stage: Stage, nursery: trio.Nursery) -> None:
    stage.offers("alpha", Kind.PROMPT, "known")
    client = await stage.client(nursery)
    for number in range(MAX_WAITING_LISTS):
        await client.ask("prompts/list", request_id=number)
    answer = await client.request("prompts/list", request_id="more")
    assert (answer["id"], len(answer["result"]["prompts"])) == ("more", 1)
    stage.offers("beta", Kind.PROMPT, "late")
    answers = [await client.get() for _ in range(MAX_WAITING_LISTS)]
    assert {len(each["result"]["prompts"]) for each in answers} == {2}


def test_a_page_has_what_fits_and_one_item_at_least_and_the_end_of_a_list_is_no_fault() -> None:
    tools = (b'{"name":"a" ,  "x":1.0}', b'{"name":"b"}', b'{"name":"c"}')
    pages = [list_page(tools, *each) for each in ((None, 1), (None, 34), (None, 35), ("1", 25), ("3", 1))]
    assert pages == [range(1), range(1), range(2), range(1, 3), range(3, 3)]
    assert b"nextCursor" not in list_result(tools, pages[-1], modern=False)


async def test_a_list_is_waited_for_no_longer_than_its_client_is_patient(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    stage = Stage(listed=False, profiles={"default": {"surface": "full"}})
    stage.alpha.up, stage.alpha.wake_seconds = False, 2 * OTHERS
    client, began = await stage.client(nursery), trio.current_time()
    assert (await client.request("tools/list"))["result"] == {"tools": []}
    assert trio.current_time() - began == pytest.approx(OTHERS, abs=0.1)


def test_each_client_is_answered_before_it_gives_up_and_who_is_not_known_is_taken_for_patient() -> None:
    for name, gives_up in (("codex-mcp-client", 10), ("codex", 10), ("opencode", 5), ("claude-code", 30)):
        assert gives_up / 2 < patience_of(ClientInfo(name)) < gives_up
    assert patience_of(ClientInfo("codexes")) == patience_of(ClientInfo("")) == OTHERS > max(PATIENCE.values())
