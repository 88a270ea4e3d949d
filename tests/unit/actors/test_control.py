"""How an operator's connection is served: what is asked, refused and answered, and when it ends."""

import pytest
import trio
from trio.testing import MockClock

from daemon.actors.control import CONFIG_FAULT, IDLE_SECONDS, MAX_REQUESTS
from daemon.config.parse import Plan
from daemon.errors import ConfigError, Fault
from daemon.operators.base import Refused
from tests.unit.cases import cases
from tests.unit.operators.stage import OperatorStage


async def test_a_slow_call_holds_up_nothing_else(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    client = await stage.connect(nursery)
    await client.ask("call", {"server": "alpha", "tool": "echo"}, request_id="slow")
    sent = await stage.alpha.wait_sent()
    assert (await client.request("status", request_id="quick"))["id"] == "quick"
    assert (await client.request("tools", request_id="tools"))["id"] == "tools"
    stage.stage.answer(sent)
    assert (await client.get())["id"] == "slow"


async def test_requests_beyond_the_bound_are_refused_until_one_has_ended(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    client = await stage.connect(nursery)
    for number in range(MAX_REQUESTS):
        await client.ask("call", {"server": "alpha", "tool": "echo"}, request_id=number)
        await stage.alpha.wait_sent(number + 1)
    refused = await client.request("status", request_id="more")
    assert f"Overloaded: {MAX_REQUESTS} requests are in progress" in refused["error"]["message"]
    stage.stage.answer(stage.alpha.sent[0])
    assert (await client.get())["id"] == 0
    assert "result" in await client.request("status", request_id="again")


@cases("method", "params", "code", "hint")
async def test_a_wrong_question_is_refused_with_what_would_be_right(
    nursery: trio.Nursery, method: str, params: object, code: int, hint: str
) -> None:
    client = await OperatorStage().connect(nursery)
    answer = await client.request(method, params)
    assert (answer["id"], answer["error"]["code"]) == (1, code)
    assert hint in answer["error"]["message"]
    assert "result" in await client.request("tools", request_id=2)


@pytest.mark.parametrize("line", [b"garbage", b"[]", b'{"id":1.5,"jsonrpc":"2.0","method":"status"}', b"\xff"])
async def test_garbage_is_refused_and_the_connection_kept(nursery: trio.Nursery, line: bytes) -> None:
    client = await OperatorStage().connect(nursery)
    await client.send(line)
    assert (await client.get())["error"]["code"] in {-32700, -32600}
    await client.tell("anything", {})
    assert "result" in await client.request("status", request_id=2)


async def test_a_faulty_configuration_is_told_with_every_fault(nursery: trio.Nursery) -> None:
    async def reload() -> Plan:
        raise ConfigError(
            "/etc/mcpd.json", [Fault(path="$.a", message="one"), Fault(path="$.b", message="two")]
        )

    error = (await (await OperatorStage().connect(nursery, reload=reload)).request("reload"))["error"]
    assert (error["code"], error["message"].splitlines()[0]) == (CONFIG_FAULT, "/etc/mcpd.json: 2 faults")
    faults = [{"path": "$.a", "message": "one"}, {"path": "$.b", "message": "two"}]
    assert error["data"] == {"source": "/etc/mcpd.json", "faults": faults}


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [(KeyError("a bug"), -32603, "KeyError: 'a bug'"), (Refused("not now"), -32602, "not now")],
)
async def test_a_bug_in_a_command_costs_one_answer(
    nursery: trio.Nursery, fault: Exception, code: int, said: str
) -> None:
    async def broken() -> Plan:
        raise fault

    client = await OperatorStage().connect(nursery, reload=broken)
    error = (await client.request("reload"))["error"]
    assert (error["code"], error["message"]) == (code, said)
    assert "result" in await client.request("status", request_id=2)


async def test_who_asks_nothing_is_shown_out(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    client = await OperatorStage().connect(nursery)
    await trio.sleep(2 * IDLE_SECONDS)
    assert await client.is_closed()


async def test_who_waits_for_an_answer_or_asks_again_stays(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = OperatorStage()
    client = await stage.connect(nursery)
    await client.ask("call", {"server": "alpha", "tool": "echo"}, request_id="slow")
    sent = await stage.alpha.wait_sent()
    await trio.sleep(10 * IDLE_SECONDS)
    stage.stage.answer(sent)
    assert (await client.get())["id"] == "slow"
    for number in range(4):
        await trio.sleep(0.9 * IDLE_SECONDS)
        assert (await client.request("tools", request_id=number))["id"] == number
