"""What is told of a reload: the plan, and how the servers are that it started."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import trio

from daemon.config.parse import Plan
from daemon.config.tuning import Restart
from daemon.operators.base import OUTCOME_SECONDS, NoParams
from daemon.operators.server_changes import reload
from daemon.supervision.lifecycle import ChildSpec
from tests.unit.operators.running import running

if TYPE_CHECKING:
    from trio.testing import MockClock

    from daemon.supervision.lifecycle import Lifecycle


async def test_the_report_of_a_reload_has_the_plan_and_how_the_started_servers_are() -> None:
    async with running() as here:
        assert await reload(here.context, NoParams()) == {
            "config": "/etc/mcpd.json",
            "added": [],
            "removed": [],
            "enabled": [],
            "disabled": [],
            "restarted": ["git"],
            "changed": [],
            "kept": ["time"],
            "sections": [],
            "needsRestartOfDaemon": [],
            "states": {"git": {"state": "ready", "reason": ""}},
        }


async def test_a_report_does_not_wait_for_ever_for_a_server_that_hangs(autojump_clock: MockClock) -> None:
    async with running(patience=math.inf) as here:

        async def hang(_lifecycle: Lifecycle) -> None:
            await trio.sleep_forever()

        here.supervisor.add(ChildSpec(name="slow", run=hang, policy=Restart()))
        here.plan = Plan(added=("slow", "off"))
        began = trio.current_time()
        report: Any = await reload(here.context, NoParams())
        assert report["states"]["slow"]["state"] == "starting"
        assert trio.current_time() - began >= OUTCOME_SECONDS
