"""Restarting a server, as an operator asks for it."""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.causes import Cause, Reason
from daemon.config.parse import Plan
from daemon.config.sandbox_keys import SandboxMode
from daemon.config.tuning import Restart
from daemon.errors import (
    ConnectionLost,
    NoWorkspace,
    RunError,
    StartTimeout,
    UnknownServer,
    UpstreamUnavailable,
)
from daemon.operators.base import OUTCOME_SECONDS, OneServer, Refused
from daemon.operators.sandbox_commands import LearnParams, learn
from daemon.operators.server_changes import ReloadParams, named, reload, restart
from daemon.operators.trust_commands import LockParams, lock
from daemon.states import ServerState
from daemon.supervision.lifecycle import ChildSpec, Lifecycle
from tests.fakes_upstream import error_of
from tests.unit.cases import rows_of
from tests.unit.operators.running import raw, running
from tests.unit.operators.stage import OperatorStage


async def test_a_server_that_is_switched_off_is_not_restarted(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    nursery.start_soon(stage.supervisor.run)
    stage.supervisor.children["alpha"].switch_off("switched off by an operator")
    await trio.testing.wait_all_tasks_blocked()
    client = await stage.connect(nursery)
    answer = await client.request("restart", {"server": "alpha"})
    assert "server alpha is switched off by an operator" in answer["error"]["message"]
    assert stage.runs == 1


async def test_a_refresh_tells_what_came_went_changed_and_was_renamed_or_the_problem() -> None:
    async with running() as here:
        here.list("git", raw("log"), raw("push", description="p"), raw("old", description="o"), raw("gone"))
        here.servers["git"].lists = (
            raw("log", description="other"),
            raw("push", description="p"),
            raw("new", description="o"),
            raw("fresh", description="f"),
        )
        await here.registry.settle()
        epoch = here.registry.catalog.value.servers["git"].epoch
        told = await here.refresh("git")
        (expected,) = rows_of(Path(__file__), "a_refresh_tells_what_came_went_changed_and_was_renamed")
        assert told["servers"]["git"] == {**expected, "epoch": epoch + 1}
        again = await here.refresh("git")
        assert again["servers"]["git"]["epoch"] == epoch + 1
        here.servers["git"].error = UpstreamUnavailable("server git is failed", server="git")
        told = await here.refresh("git")
        assert told["servers"]["git"]["problem"] == "server git is failed"
        here.supervisor.children["git"].status.become(ServerState.DEGRADED, Reason("it answers no pings"))
        told = await here.refresh("git")
        assert told["servers"]["git"]["problem"] == "it answers no pings"
        told = await here.refresh("off")
        assert "`mcpd enable off`" in told["servers"]["off"]["problem"]
        with pytest.raises(UnknownServer, match="Did you mean git"):
            await here.refresh("gti")


async def test_a_server_that_is_taken_away_just_when_it_is_to_list_is_a_problem_and_not_a_fault() -> None:
    async with running() as here:
        whole = here.registry.catalog.value
        servers = {name: entry for name, entry in whole.servers.items() if name != "git"}
        problems: list[str] = []

        async def refresh() -> None:
            with suppress(UnknownServer):
                told = await here.refresh("git")
                problems.append(told["servers"]["git"]["problem"])

        async def take_away() -> None:
            here.registry.catalog.set(attrs.evolve(whole, servers=servers))

        while not problems:  # trio shuffles: the one that takes away may be the first
            here.registry.catalog.set(whole)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refresh)
                nursery.start_soon(take_away)
        assert "removed from the configuration" in problems[0]


async def test_the_report_of_a_reload_has_the_plan_and_how_the_started_servers_are() -> None:
    async with running() as here:
        report = json.loads(msgspec.json.encode(await reload(here.context, ReloadParams())))
        assert [report] == rows_of(Path(__file__), "the_report_of_a_reload")


async def test_a_report_does_not_wait_for_ever_for_a_server_that_hangs(autojump_clock: MockClock) -> None:
    async with running(patience=math.inf) as here:

        async def hang(_lifecycle: Lifecycle) -> None:
            await trio.sleep_forever()

        here.supervisor.add(ChildSpec(name="slow", run=hang, policy=Restart()))
        here.plan = Plan(added=("slow", "off"))
        began = trio.current_time()
        report: Any = await reload(here.context, ReloadParams())
        assert report["states"]["slow"]["state"] == "starting"
        assert trio.current_time() - began >= OUTCOME_SECONDS


def test_an_instance_of_a_server_that_all_share_is_told_to_be_none() -> None:
    with pytest.raises(UnknownServer, match=r"has no instance 'alpha#2'\. All clients share the server"):
        named(OperatorStage().context(), "alpha#2")


async def test_the_requests_of_one_command_go_to_one_instance(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    instances = stage.divide("alpha", "alpha#0")
    instance = instances.instances[0]
    client = await stage.connect(nursery)
    instance.on_send = lambda sent: sent.exchange.answered(b'{"resultType":"input_required"}')
    params = {"server": "alpha", "tool": "echo", "command": "c1"}
    await client.request("call", params)
    instance.on_send = lambda sent: sent.exchange.answered(b'{"content":[]}')
    await client.request("call", params)
    assert len({holder.session for holder in instances.holders}) == 1
    assert [soon for _session, soon in instances.left] == [False, True]


async def test_an_unusable_workspace_is_handed_over_as_such(nursery: trio.Nursery, tmp_path: Path) -> None:
    stage = OperatorStage()
    instances = stage.divide("alpha", "alpha@")
    instances.error = NoWorkspace("which?")
    client = await stage.connect(nursery)
    gone = str(tmp_path / "gone")
    answer = await client.request("call", {"server": "alpha", "tool": "echo", "workspace": gone})
    assert error_of(answer)["code"] == "NoWorkspace"
    assert f"workspace '{gone}' does not exist" in instances.holders[0].fault


async def test_an_instance_that_is_named_is_called_itself(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    instances = stage.divide("alpha", "alpha#3", "alpha#7")
    client = await stage.connect(nursery)
    instances.instances[1].on_send = lambda sent: sent.exchange.answered(b'{"content":[]}')
    answer = await client.request("call", {"server": "alpha#7", "tool": "echo"})
    assert answer["result"] == {"content": []}
    assert not instances.holders
    assert not instances.left
    refused = error_of(await client.request("call", {"server": "alpha#7", "tool": "ecko"}))
    assert "there is no tool 'alpha/ecko'. Did you mean alpha/echo?" in refused["message"]
    unknown = error_of(await client.request("call", {"server": "alpha#8", "tool": "echo"}))
    assert "server alpha has no instance 'alpha#8'. Did you mean" in unknown["message"]


async def test_a_server_is_restarted_with_all_its_instances_or_one_of_them(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha#3", "alpha#7")
    stage.divide("beta")
    nursery.start_soon(stage.supervisor.run)
    await trio.testing.wait_all_tasks_blocked()
    before, context = stage.runs, stage.context()
    told = await restart(context, OneServer("alpha"))
    assert stage.runs == before + 2
    ready = {"state": "ready", "reason": ""}
    assert told["instances"] == {"alpha#3": ready, "alpha#7": ready}
    assert await restart(context, OneServer("alpha#3")) == {"server": "alpha#3", **ready}
    assert stage.runs == before + 3
    assert (await restart(context, OneServer("beta")))["instances"] == {}
    assert stage.runs == before + 3


async def test_the_logs_of_a_server_are_those_of_all_its_instances(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    instances = stage.divide("alpha", "alpha#3", "alpha#7")
    for each in instances.instances:
        each.stderr.add(f"I am {each.name}")
    client = await stage.connect(nursery)
    told = (await client.request("logs", {"server": "alpha"}))["result"]
    texts = {name: [line["text"] for line in page["lines"]] for name, page in told["instances"].items()}
    assert texts == {"alpha#3": ["I am alpha#3"], "alpha#7": ["I am alpha#7"]}
    seen = {name: {"after": page["next"], "source": page["source"]} for name, page in told["instances"].items()}
    instances.instances[1].stderr.add("more")
    told = (await client.request("logs", {"server": "alpha", "instances": seen}))["result"]
    assert [len(page["lines"]) for page in told["instances"].values()] == [0, 1]
    alone = (await client.request("logs", {"server": "alpha#7", "last": 1}))["result"]
    assert [line["text"] for line in alone["lines"]] == ["more"]
    counted = (await client.request("logs"))["result"]["servers"]
    assert counted == {"beta": {"lines": 0}, "alpha#3": {"lines": 1}, "alpha#7": {"lines": 2}}


async def test_all_instances_list_what_they_offer_or_it_is_said_that_none_runs(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    instances = stage.divide("alpha", "alpha#3", "alpha#7")
    stage.divide("beta")
    client = await stage.connect(nursery)
    told = (await client.request("refresh", {"server": "alpha"}))["result"]["servers"]
    assert list(told) == ["alpha#3", "alpha#7"]
    assert [each.listed for each in instances.instances] == [1, 1]
    told = (await client.request("refresh", {"server": "alpha#7"}))["result"]["servers"]
    assert list(told) == ["alpha#7"]
    told = (await client.request("refresh", {"server": "beta"}))["result"]["servers"]
    assert "none of its instances runs" in told["beta"]["problem"]
    told = (await client.request("refresh", {}))["result"]["servers"]
    assert list(told) == ["alpha#3", "alpha#7"]


class RestartedStage(OperatorStage):
    """Its servers need a minute to start again, as if they installed a package, and fail some times."""

    fails: Sequence[RunError] = ()

    async def _live(self, lifecycle: Lifecycle) -> None:
        if self.runs >= len(self.servers):
            await trio.sleep(60)
            if self.fails:
                error, *self.fails = self.fails
                raise error
        await super()._live(lifecycle)


SLOW = StartTimeout("it has no package")


@pytest.mark.parametrize(
    ("fails", "comes_up"),
    [((), True), ((SLOW,), True), ((SLOW,) * 99, False), ((ConnectionLost("no package", Cause.ENDED),), False)],
)
async def test_a_lesson_begins_once_its_server_is_up(
    nursery: trio.Nursery, autojump_clock: MockClock, fails: Sequence[RunError], comes_up: bool
) -> None:
    stage, states = RestartedStage(), list[object]()
    stage.fails = fails
    nursery.start_soon(stage.supervisor.run)
    await trio.testing.wait_all_tasks_blocked()
    context = stage.context(
        operator=SimpleNamespace(tell=lambda *_: states.append(stage.alpha.child.status.value.state))
    )
    # Its process is a fake.
    with pytest.raises(Refused, match="has not started" if comes_up else "no package"):
        await learn(context, LearnParams(server="alpha", mode=SandboxMode.HOME, seconds=600))
    assert states == (["ready"] if comes_up else [])
    assert not context.lessons


async def test_a_lock_waits_for_a_long_queue_of_starts(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = OperatorStage()
    stage.alpha.error = UpstreamUnavailable("it waits for its turn")
    await trio.testing.wait_all_tasks_blocked()
    stage.alpha.child.status.queue(9)

    async def has_its_turn() -> None:
        await trio.sleep(200)
        stage.alpha.error = None
        stage.alpha.child.status.become(ServerState.STARTING)

    nursery.start_soon(has_its_turn)
    params = LockParams(servers={"alpha": {}}, are_all=False, check=True, approve=False, seconds=240)
    assert (await lock(stage.context(), params))["failed"] == {}
