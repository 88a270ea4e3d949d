"""Which instances of a server operators mean, and which one their own calls go to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from daemon.errors import NoWorkspace, UnknownServer
from daemon.operators.base import Refused
from daemon.operators.server_changes import RestartParams, is_divided, named, restart
from daemon.operators.switch import SwitchParams, switch
from tests.fakes_upstream import error_of
from tests.unit.operators.stage import OperatorStage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes_upstream import Client
    from tests.unit.operators.stage import FakeServer


async def asked(client: Client, instance: FakeServer, **params: Any) -> dict[str, Any]:
    """The answer to a call that an instance of alpha has answered."""
    await client.ask("call", {"server": "alpha", "tool": "echo", **params})
    instance.on_send = lambda sent: sent.exchange.answered(b'{"content":[]}')
    answer: dict[str, Any] = await client.get()
    return answer


def test_a_name_means_a_server_an_instance_or_all_instances() -> None:
    stage = OperatorStage()
    context = stage.context()
    assert [each.name for each in named(context, "alpha")] == ["alpha"]
    assert not is_divided(context, "alpha")
    stage.divide("alpha", "alpha#1", "alpha@~/app")
    assert [each.name for each in named(context, "alpha")] == ["alpha#1", "alpha@~/app"]
    assert [each.name for each in named(context, "alpha@~/app")] == ["alpha@~/app"]
    assert is_divided(context, "alpha")
    stage.divide("beta")
    assert named(context, "beta") == []


def test_an_instance_of_a_server_that_all_share_is_told_to_be_none() -> None:
    with pytest.raises(UnknownServer, match=r"has no instance 'alpha#2'\. All clients share it"):
        named(OperatorStage().context(), "alpha#2")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("alpha#2", "server alpha has no instance 'alpha#2'. Did you mean alpha#1"),
        ("beta@/a", "server beta has no instance 'beta@/a'. None runs now: each is started at its first use."),
        ("alfa", "no server is named 'alfa'. Did you mean alpha?"),
        ("alfa#1", "no server is named 'alfa#1'. Did you mean alpha?"),
    ],
)
def test_a_name_that_nothing_has_is_told_with_what_there_is(name: str, said: str) -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha#1")
    stage.divide("beta")
    with pytest.raises(UnknownServer) as refused:
        named(stage.context(), name)
    assert said in refused.value.message


async def test_a_call_goes_to_an_instance_of_the_operators_own_that_ends_with_it(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    stage = OperatorStage()
    instances = stage.divide("alpha", "alpha#0")
    instance = instances.instances[0]
    client = await stage.connect(nursery)
    assert "result" in await asked(client, instance, directory=str(tmp_path))
    (holder,) = instances.holders
    assert (holder.number, holder.workspace, holder.fault) == (0, str(tmp_path), "")
    assert instances.left == [(holder.session, True)]
    assert not stage.alpha.sent
    await asked(client, instance)
    first, second = instances.holders
    assert first.session != second.session
    assert second.workspace is None


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


async def test_a_workspace_that_cannot_be_used_is_handed_over_as_such(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
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
    assert "server alpha has no tool 'ecko'. Did you mean alpha/echo?" in refused["message"]
    unknown = error_of(await client.request("call", {"server": "alpha#8", "tool": "echo"}))
    assert "server alpha has no instance 'alpha#8'. Did you mean" in unknown["message"]


async def test_a_server_is_restarted_with_all_its_instances_or_one_of_them(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha#3", "alpha#7")
    stage.divide("beta")
    nursery.start_soon(stage.supervisor.run)
    await trio.testing.wait_all_tasks_blocked()
    before, context = stage.runs, stage.context()
    told = await restart(context, RestartParams("alpha"))
    assert stage.runs == before + 2
    ready = {"state": "ready", "reason": ""}
    assert told["instances"] == {"alpha#3": ready, "alpha#7": ready}
    assert await restart(context, RestartParams("alpha#3")) == {"server": "alpha#3", **ready}
    assert stage.runs == before + 3
    assert (await restart(context, RestartParams("beta")))["instances"] == {}
    assert stage.runs == before + 3


@pytest.mark.parametrize(
    "name", ["alpha#3", "alpha#3/echo", "alpha@/srv/app", "alpha@/srv/app/echo", "alpha#9"]
)
async def test_nothing_of_one_instance_alone_is_switched_off(name: str) -> None:
    stage = OperatorStage()
    stage.divide("alpha", "alpha#3", "alpha@/srv/app")
    said = f"{name} is of one instance, and only all are switched: write alpha, or alpha/TOOL"
    with pytest.raises(Refused, match=said):
        await switch(stage.context(), SwitchParams(name, True))


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
    assert "no instance of it runs" in told["beta"]["problem"]
    told = (await client.request("refresh", {}))["result"]["servers"]
    assert list(told) == ["alpha#3", "alpha#7"]
