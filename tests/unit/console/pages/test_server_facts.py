"""What is said of a server in the list and on its page."""

from __future__ import annotations

from daemon.console.pages.server_pages import MEBIBYTE, memory_now, server_facts
from daemon.states import ServerState
from tests.unit.operators.stage import OperatorStage


async def test_the_next_try_of_a_degraded_server_is_that_of_its_lists() -> None:
    stage = OperatorStage()
    stage.stage.becomes("alpha", ServerState.DEGRADED)
    problem = stage.stage.catalog.value.servers["alpha"].status.why
    stage.alpha.list_status = type(stage.alpha.list_status)(problem=problem, next_at=1234.4)
    assert server_facts(stage.context(), "alpha", {})["nextRetryAt"] == 1234


async def test_memory_is_that_of_all_its_instances_to_a_mebibyte() -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha#1", "alpha#2")
    for number, each in enumerate(stage.context().instances_of("alpha")):
        each.children[number] = number
    memory = {0: 10 * MEBIBYTE + 100, 1: 5 * MEBIBYTE}
    assert server_facts(stage.context(), "alpha", memory)["memory"] == 15 * MEBIBYTE


async def test_where_no_server_has_a_process_nothing_is_read() -> None:
    assert await memory_now(OperatorStage().context()) == {}
