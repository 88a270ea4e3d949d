"""What clients are given where no surface is named: by what they say they are, and then for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.clients.client import LOCAL_USER, Principal
from daemon.operators.session_commands import why
from daemon.protocol import HELLO
from daemon.states import ServerState
from daemon.surfaces.table import SEARCHING_CLIENTS
from tests.fakes_upstream import MODERN, Stage

if TYPE_CHECKING:
    import trio

    from tests.fakes_upstream import Guest

INFO = "io.modelcontextprotocol/clientInfo"
META_TOOLS = ["get-category-tools", "call-category-tool", "call-read-only-tool"]
CLAUDE = {"name": "claude-code", "version": "2.1.329"}
OLD_CLAUDE = {"name": "claude-code", "version": "2.1.197"}
CODEX = {"name": "codex-mcp-client", "version": "0.169.0"}
OPENCODE = {"name": "opencode", "version": "1.18.33"}

PASSING = Principal(keeps=False)
"""Somebody whose connection may be another's with the next request."""


async def sits_down(stage: Stage, nursery: trio.Nursery, info: object, hello: object = None) -> Guest:
    guest = await stage.connect(nursery)
    if hello is not None:
        await guest.client.tell(HELLO, hello)
    await guest.client.request("initialize", {"protocolVersion": "2025-11-25", "clientInfo": info})
    return guest


async def names(guest: Guest, info: object = None, *, modern: bool = False) -> list[str]:
    meta = {"_meta": {**MODERN, **({INFO: info} if info else {})}} if modern else {}
    answered = await guest.client.request("tools/list", meta)
    return [each["name"] for each in answered["result"]["tools"]]


def many(count: int) -> list[str]:
    return [f"tool_{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("info", "surface"),
    [
        (CLAUDE, "full"),
        (CODEX, "full"),
        (OLD_CLAUDE, "category"),
        (OPENCODE, "category"),
        ({"name": "gemini-cli-mcp-client", "version": "0.61.0"}, "category"),
        ({"name": "claude-code"}, "category"),
        ({"name": "claude-code", "version": ["2.1.329"]}, "category"),
        ({"name": "x" * 10_000, "version": "9" * 10_000}, "category"),
        ({}, "category"),
        ("claude-code 2.1.329", "category"),
        (None, "category"),
    ],
)
async def test_a_client_has_the_surface_that_fits_it(nursery: trio.Nursery, info: object, surface: str) -> None:
    guest = await sits_down(Stage(), nursery, info)
    found = await names(guest)
    assert found == (META_TOOLS if surface == "category" else ["echo", "add", "beta__echo", "beta__add"])
    assert guest.session.statistics().surface == surface


async def test_a_client_that_begins_without_a_word_has_categories_until_it_says_what_it_is(
    nursery: trio.Nursery,
) -> None:
    guest = await Stage().connect(nursery)
    assert await names(guest) == META_TOOLS
    assert guest.session.statistics().choice.grounds == "silent_client"
    await guest.client.request("initialize", {"protocolVersion": "2025-11-25", "clientInfo": CLAUDE})
    assert "echo" in await names(guest)


async def test_what_a_client_asks_for_comes_before_what_fits_it(nursery: trio.Nursery) -> None:
    stage = Stage()
    for hello, surface, said in (
        ({"surface": "browse"}, "browse", "asked for with --surface or in the URL"),
        ({"lazy": True}, "browse", "asked for with --lazy"),
        ({"lazy": False}, "full", "loading on demand is switched off (lazy)"),
        (
            {"surface": "auto"},
            "full",
            "claude-code 2.1.329 searches tools itself, 4 tools are within its 500",
        ),
    ):
        session = (await sits_down(stage, nursery, CLAUDE, hello)).session
        assert (session.statistics().surface, why(session.statistics().choice)) == (surface, said)


@pytest.mark.parametrize(
    ("written", "surface"),
    [
        ({"lazy": False}, "full"),
        ({"profiles": {"default": {"lazy": False}}}, "full"),
        ({"profiles": {"default": {"deferredLoading": True}}}, "search"),
        ({"profiles": {"default": {"surface": "category"}}}, "category"),
        ({"profiles": {"default": {"surface": "auto"}}}, "full"),
    ],
)
async def test_the_switches_and_a_profile_that_names_a_surface_come_before_what_fits(
    nursery: trio.Nursery, written: dict[str, Any], surface: str
) -> None:
    guest = await sits_down(Stage(**written), nursery, CLAUDE)
    assert guest.session.statistics().surface == surface


@pytest.mark.parametrize("known", SEARCHING_CLIENTS, ids=lambda known: known.name)
async def test_more_tools_than_a_client_can_take_are_shown_in_categories(
    nursery: trio.Nursery, known: Any
) -> None:
    stage = Stage()
    stage.lists("alpha", *many(known.tools - 2))
    info = {"name": known.name, "version": ".".join(map(str, known.since))}
    first = await sits_down(stage, nursery, info)
    assert len(await names(first)) == known.tools
    # One more does not change what a client has in the middle of its conversation; who comes next has less.
    stage.lists("alpha", *many(known.tools - 1))
    assert (await first.client.get())["method"] == "notifications/tools/list_changed"
    assert len(await names(first)) == known.tools + 1
    second = await sits_down(stage, nursery, info)
    assert await names(second) == META_TOOLS
    assert second.session.statistics().choice.grounds == "too_many_tools"


async def test_only_the_tools_of_the_clients_own_profile_count(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"default": {}, "small": {"categories": ["beta"]}})
    stage.lists("alpha", *many(600))
    assert (await sits_down(stage, nursery, CLAUDE)).session.statistics().surface == "category"
    small = (await sits_down(stage, nursery, CLAUDE, {"profile": "small"})).session.statistics()
    assert (small.surface, small.choice.tools) == ("full", 2)


async def test_another_profile_of_an_operators_is_decided_for_anew(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"default": {}, "plain": {"surface": "search"}})
    guest = await sits_down(stage, nursery, CLAUDE)
    guest.session.move("plain")
    assert guest.session.statistics().surface == "search"
    guest.session.move("default")
    assert guest.session.statistics().surface == "full"


@pytest.mark.parametrize("principal", [LOCAL_USER, PASSING], ids=["keeps", "passing"])
async def test_each_envelope_of_a_shared_connection_is_answered_as_its_client_needs(
    nursery: trio.Nursery, principal: Principal
) -> None:
    guest = await Stage().connect(nursery, principal)
    for _ in range(2):
        assert "echo" in await names(guest, CLAUDE, modern=True)
        assert await names(guest, OPENCODE, modern=True) == META_TOOLS
        assert await names(guest, OLD_CLAUDE, modern=True) == META_TOOLS


async def test_an_envelope_that_names_nobody_is_nobodys_where_others_may_have_come_before(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    passing, own = await stage.connect(nursery, PASSING), await stage.connect(nursery)
    for guest, surface in ((passing, "category"), (own, "full")):
        assert "echo" in await names(guest, CLAUDE, modern=True)
        await names(guest, modern=True)
        assert guest.session.statistics().surface == surface
    assert passing.session.statistics().client == ""


async def test_a_client_whose_connections_end_keeps_its_surface_over_them(nursery: trio.Nursery) -> None:
    stage = Stage()
    assert "echo" in await names(await stage.connect(nursery, PASSING), CLAUDE, modern=True)
    stage.lists("alpha", *many(600))
    assert len(await names(await stage.connect(nursery, PASSING), CLAUDE, modern=True)) == 602
    # Another token's client is another.
    other = Principal(keeps=False, owner="token ci: ", token="ci")
    assert await names(await stage.connect(nursery, other), CLAUDE, modern=True) == META_TOOLS


async def test_a_call_that_waits_is_decided_as_its_own_client_needs(nursery: trio.Nursery) -> None:
    stage = Stage(listed=False)
    guest = await stage.connect(nursery)

    def call(info: object, name: str, arguments: object, request_id: int) -> dict[str, Any]:
        meta = {**MODERN, INFO: info}
        params = {"name": name, "arguments": arguments, "_meta": meta}
        return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}

    wrapped = {"category": "alpha", "name": "echo", "args": {}}
    await guest.client.send(
        call(OPENCODE, "call-category-tool", wrapped, 1), call(CLAUDE, "alpha__echo", {}, 2)
    )
    stage.becomes("alpha", ServerState.READY)
    stage.lists("alpha", "echo")
    await stage.alpha.wait_sent(2)
    for sent in stage.alpha.sent:
        stage.answer(sent)
    answered = [await guest.client.get(), await guest.client.get()]
    assert sorted(each["id"] for each in answered) == [1, 2]
    assert not any(each["result"].get("isError") for each in answered)
