"""The shape of `mcpd prompts --json`, which other people's programs read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.model import Kind
from tests.unit.operators.offering import offer
from tests.unit.operators.stage import OperatorStage

if TYPE_CHECKING:
    import trio


async def test_prompts_are_told_with_their_servers(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    offer(daemon.stage, "alpha", Kind.PROMPT, "review")
    client = await daemon.connect(nursery)
    answer = (await client.request("prompts"))["result"]
    assert [each["name"] for each in answer["prompts"]] == ["review"]
    assert set(answer) == {"prompts", "servers"}
    assert set(answer["servers"]["alpha"]) == {"state", "reason", "known", "problem", "quarantined"}
    assert (await client.request("prompts", {"server": "beta"}))["result"] == {"prompts": [], "servers": {}}
    assert "Did you mean beta?" in (await client.request("prompts", {"server": "bta"}))["error"]["message"]
