"""The metrics as operators get them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from tests.fakes_upstream import Stage
from tests.unit.operators.stage import OperatorStage, operator_context

if TYPE_CHECKING:
    import trio


async def test_the_text_is_the_answer(nursery: trio.Nursery) -> None:
    async def export() -> str:
        return "x 1"

    stage = Stage()
    counters = attrs.evolve(operator_context(stage).counters, export=export)
    client = await OperatorStage(stage).connect(nursery, counters=counters)
    assert (await client.request("metrics"))["result"] == {"text": "x 1"}
