"""Restarting a server, as an operator asks for it."""

from __future__ import annotations

import trio
import trio.testing

from tests.unit.operators.stage import OperatorStage


async def test_restart_starts_a_server_afresh(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    nursery.start_soon(stage.supervisor.run)
    await trio.testing.wait_all_tasks_blocked()
    assert stage.runs == 2
    client = await stage.connect(nursery)
    answer = await client.request("restart", {"server": "alpha"})
    assert answer["result"]["server"] == "alpha"
    with trio.fail_after(30):
        await stage.supervisor.children["alpha"].status.wait_until(
            lambda status: status.incarnation == 2 and str(status.state) == "ready"
        )
    assert stage.runs == 3


async def test_a_server_that_is_switched_off_is_not_restarted(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    nursery.start_soon(stage.supervisor.run)
    stage.supervisor.children["alpha"].switch_off("switched off by an operator")
    await trio.testing.wait_all_tasks_blocked()
    client = await stage.connect(nursery)
    answer = await client.request("restart", {"server": "alpha"})
    assert "server alpha is switched off by an operator" in answer["error"]["message"]
    assert stage.runs == 1
