"""The shape of `mcpd resources --json`, which other people's programs read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.model import Kind
from tests.unit.operators.offering import offer
from tests.unit.operators.stage import OperatorStage

if TYPE_CHECKING:
    import trio


async def test_resources_and_templates_are_told_with_their_servers(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    offer(daemon.stage, "alpha", Kind.RESOURCE, "file:///a")
    offer(daemon.stage, "beta", Kind.TEMPLATE, "x:{y}")
    client = await daemon.connect(nursery)
    answer = (await client.request("resources"))["result"]
    assert [each["uri"] for each in answer["resources"]] == ["file:///a"]
    assert [each["uri"] for each in answer["templates"]] == ["x:{y}"]
    assert list(answer["servers"]) == ["alpha", "beta"]
    assert (await client.request("resources", {"server": "beta"}))["result"]["resources"] == []
