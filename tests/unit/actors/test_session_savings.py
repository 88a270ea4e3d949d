"""What a session is said to have been spared, by what its client was really sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.counting.tally import summary, tokens_in
from tests.fakes_upstream import MODERN, Stage, tool

if TYPE_CHECKING:
    import trio

    from tests.fakes_upstream import Guest

BIG = [tool(f"tool_{number}", description="long " * 100) for number in range(20)]
INFO = "io.modelcontextprotocol/clientInfo"


def stage_of(surface: str) -> Stage:
    stage = Stage(profiles={"default": {"surface": surface}})
    stage.lists("alpha", *BIG)
    return stage


async def named(stage: Stage, nursery: trio.Nursery, name: str, version: str) -> Guest:
    guest = await stage.connect(nursery)
    client = {"name": name, "version": version}
    await guest.client.request("initialize", {"protocolVersion": "2025-11-25", "clientInfo": client})
    return guest


def full_size(stage: Stage) -> int:
    return stage.means.offers.of(stage.catalog.value, stage.config.profiles["default"]).listing_bytes


def size_of(tools: list[Any]) -> int:
    return sum(len(json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode()) for each in tools)


async def test_a_session_is_spared_what_it_was_not_listed_less_what_it_was_told_instead(
    nursery: trio.Nursery,
) -> None:
    stage = stage_of("load")
    guest = await named(stage, nursery, "opencode", "1")
    first = (await guest.client.request("tools/list"))["result"]["tools"]
    full = full_size(stage)
    assert guest.session.statistics().tokens_not_sent == tokens_in(full - size_of(first))
    load = {"name": "load_mcp_tool", "arguments": {"names": ["tool_1"]}}
    await guest.client.ask("tools/call", load, request_id="load")
    await guest.client.get()
    second = (await guest.client.request("tools/list"))["result"]["tools"]
    answered = len(json.dumps((await guest.client.get())["result"], separators=(",", ":")).encode())
    # However often it asks: what it has is what counts.
    for _ in range(3):
        await guest.client.request("tools/list")
    spared = guest.session.statistics().tokens_not_sent
    assert spared == pytest.approx((full - size_of(second) - answered / 2) / 4, abs=5)
    assert summary(stage.tally)["estimatedTokensNotSent"] == pytest.approx(spared, abs=5)
    assert len(first) < len(second)


@pytest.mark.parametrize(
    ("name", "version"), [("claude-code", "2.1.329"), ("claude-code", "3.0"), ("codex-mcp-client", "0.169.0")]
)
@pytest.mark.parametrize("surface", ["category", "full"])
async def test_to_clients_that_defer_tools_themselves_it_does_not_apply(
    nursery: trio.Nursery, name: str, version: str, surface: str
) -> None:
    stage = stage_of(surface)
    guest = await named(stage, nursery, name, version)
    await guest.client.request("tools/list")
    await guest.client.request("tools/call", {"name": "get-category-tools", "arguments": {"category": "alpha"}})
    assert guest.session.statistics().tokens_not_sent is None
    told = summary(stage.tally)
    assert (told["estimatedTokensSpared"], told["estimatedTokensSentInstead"]) == (0, 0)
    assert stage.tally.lists[surface].count == 1


async def test_a_modern_client_is_known_by_its_envelope(nursery: trio.Nursery) -> None:
    stage = stage_of("category")
    guest = await stage.connect(nursery)
    meta = {**MODERN, INFO: {"name": "claude-code", "version": "2.1.329"}}
    await guest.client.request("tools/list", {"_meta": meta})
    assert guest.session.statistics().tokens_not_sent is None


async def test_on_the_surface_that_shows_everything_nothing_is_spared(nursery: trio.Nursery) -> None:
    stage = stage_of("full")
    guest = await named(stage, nursery, "claude-code", "2.1.197")
    await guest.client.request("tools/list")
    assert guest.session.statistics().tokens_not_sent == 0
    assert summary(stage.tally)["estimatedTokensNotSent"] == 0


async def test_a_client_that_has_all_of_a_category_described_was_sent_more(nursery: trio.Nursery) -> None:
    stage = stage_of("category")
    guest = await named(stage, nursery, "opencode", "1")
    await guest.client.request("tools/list")
    for _ in range(2):
        described = {"name": "get-category-tools", "arguments": {"category": "alpha"}}
        await guest.client.request("tools/call", described)
    spared = guest.session.statistics().tokens_not_sent
    assert spared is not None
    assert spared < 0
