"""What operators get who call a tool, and what its server is sent."""

import json
from typing import Any

import attrs
import msgspec
import pytest
import trio
from msgspec import Raw
from trio.testing import MockClock

from daemon.clients.approvals import ASK_SECONDS
from daemon.errors import UpstreamCallError, UpstreamLost, UpstreamTimeout
from daemon.facts import Approved, Switched
from daemon.operators.own_requests import Forwarding, OperatorCallParams, call, forward
from daemon.protocol import CAPABILITIES_KEY, TASKS_EXTENSION
from daemon.wire.envelope import Buffer
from tests.fakes_upstream import Client, Sent, Stage, error_of, tool
from tests.unit.clients.inputs import QUESTION, Told, asks
from tests.unit.operators.stage import OperatorStage
from tests.waiting import until


async def ask(client: Client, server: str, tool: str, *, request_id: object = 1, **params: object) -> None:
    await client.ask("call", {"server": server, "tool": tool, **params}, request_id=request_id)


async def calling(nursery: trio.Nursery, **params: Any) -> tuple[OperatorStage, Client, Sent]:
    """An operator calls `echo`."""
    daemon = OperatorStage()
    client = await daemon.connect(nursery)
    await ask(client, "alpha", "echo", **params)
    return daemon, client, await daemon.alpha.wait_sent()


async def test_call_runs_a_tool_and_passes_its_result_unopened(nursery: trio.Nursery) -> None:
    stage, client, sent = await calling(nursery, arguments={"n": 1})
    assert (sent.tool, sent.arguments, sent.call.wants_progress) == ("echo", {"n": 1}, False)
    stage.stage.progress(sent, progress=1)
    stage.stage.answer(sent, b'{ "n":123456789012345678901234567890}')
    assert await client.line() == b'{"jsonrpc":"2.0","id":1,"result":{ "n":123456789012345678901234567890}}'
    assert [ok for _, ok in stage.alpha.recorded] == [True]


async def test_a_call_of_what_waits_for_approval_says_how_to_approve_it(nursery: trio.Nursery) -> None:
    stage = OperatorStage(Stage(listed=False, trust="changes"))
    stage.stage.learn(Approved())
    stage.stage.lists("alpha", "add")
    stage.stage.lists("alpha", "add", "echo")
    client = await stage.connect(nursery)
    await ask(client, "alpha", "echo")
    error = error_of(await client.get())
    assert (error["code"], error["approve"]) == ("ToolHeld", "mcpd approve alpha/echo")
    assert not stage.alpha.sent


async def test_a_server_in_place_of_a_tool_is_told_from_a_misspelt_tool(nursery: trio.Nursery) -> None:
    client = await OperatorStage(Stage(listed=False)).connect(nursery)
    told = (await client.request("tool", {"tool": "alpha"}))["error"]["message"]
    assert told == "alpha is a server: it has no tools now (`mcpd status alpha`)"


@pytest.mark.parametrize("arguments", [[], 5, "text", None])
async def test_a_call_without_an_object_sends_nothing(nursery: trio.Nursery, arguments: object) -> None:
    """A client's call is refused here (callpath); an operator's typo must not reach the server either."""
    stage = OperatorStage()
    stage.alpha.on_send = lambda sent: sent.exchange.answered(b"{}")
    client = await stage.connect(nursery)
    await ask(client, "alpha", "echo", arguments=arguments)
    answer = await client.get()
    assert not stage.alpha.sent
    assert "error" in answer or answer["result"]["isError"]


LACKING = b'{"code":-32021,"message":"no","data":{"requiredCapabilities":{"extensions":{"%b":{}}}}}'


async def test_a_call_that_lacks_another_capability_than_tasks_is_sent_once(nursery: trio.Nursery) -> None:
    stage, client, sent = await calling(nursery)
    stage.stage.refuse(sent, LACKING % b"com.example/other")
    assert "no (-32021)" in error_of(await client.get())["message"]
    assert len(stage.alpha.sent) == 1


async def test_a_tool_that_is_a_task_has_a_result(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    stage, client, sent = await calling(nursery)
    stage.stage.refuse(sent, LACKING % TASKS_EXTENSION.encode())
    states: list[Any] = [{"resultType": "task"}, {}, None, {"status": "completed", "result": {"content": []}}]
    for number, state in enumerate(states, 2):
        sent = await stage.alpha.wait_sent(number)
        assert TASKS_EXTENSION in json.loads(sent.call.envelope[CAPABILITIES_KEY])["extensions"]
        if state is None:
            stage.stage.lose(sent, UpstreamTimeout("no answer"))
        else:
            stage.stage.answer(sent, json.dumps({"taskId": "t", "status": "working", **state}).encode())
    assert (await client.get())["result"] == {"content": []}
    assert [sent.call.method for sent in stage.alpha.sent] == ["tools/call"] * 2 + ["tasks/get"] * 3


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_call_that_is_a_task_is_in_flight_until_the_task_ends_and_is_recorded_as_it_ends(
    nursery: trio.Nursery, autojump_clock: MockClock, cancels: bool
) -> None:
    stage, client, sent = await calling(nursery)
    stage.stage.answer(sent, b'{"resultType":"task","taskId":"t","status":"working"}')
    polls = await stage.alpha.wait_sent(2)
    (found,) = (await client.request("calls", request_id=2))["result"]["inFlight"]
    if cancels:
        await client.ask("cancel", {"id": found["id"]}, request_id=3)
        assert (await stage.alpha.wait_sent(3)).call.method == "tasks/cancel"
        await client.get()
    else:
        failed = b'{"taskId":"t","status":"failed","error":{"code":-1,"message":"broke"}}'
        stage.stage.answer(polls, failed)
    await client.get()
    ((_, ended),) = stage.stage.recent.after(0)
    assert (ended.tool, ended.outcome) == ("echo", "CallCancelled" if cancels else "UpstreamCallError")
    assert [ok for _, ok in stage.alpha.recorded] == [False]


async def test_the_error_of_a_server_is_told(nursery: trio.Nursery) -> None:
    stage, client, sent = await calling(nursery, request_id=1)
    stage.stage.refuse(sent, b'{"code":-32602,"message":"not like this","data":7}')
    error = error_of(await client.get())
    assert error["code"] == "UpstreamCallError"
    assert "not like this (-32602)" in error["message"]
    await ask(client, "alpha", "echo", request_id=2)
    stage.stage.lose(await stage.alpha.wait_sent(2), UpstreamLost("it died"))
    assert error_of(await client.get())["code"] == "UpstreamLost"
    assert [ok for _, ok in stage.alpha.recorded] == [False, False]


async def test_a_call_wakes_a_server_that_is_down(nursery: trio.Nursery) -> None:
    stage = OperatorStage()
    stage.alpha.up = False
    client = await stage.connect(nursery)
    await ask(client, "alpha", "echo")
    await stage.alpha.wait_woken()
    stage.alpha.come_up()
    stage.stage.answer(await stage.alpha.wait_sent())
    assert "content" in (await client.get())["result"]


@pytest.mark.parametrize("wakeable", [True, False])
async def test_a_call_to_a_server_that_stays_down_says_so(
    nursery: trio.Nursery, autojump_clock: MockClock, wakeable: bool
) -> None:
    stage = OperatorStage()
    stage.alpha.up = False
    stage.alpha.can_wake = wakeable
    client = await stage.connect(nursery)
    await ask(client, "alpha", "echo")
    assert error_of(await client.get())["code"] == "UpstreamUnavailable"
    assert stage.alpha.woken == wakeable


async def test_an_operator_who_goes_away_gives_the_call_up(nursery: trio.Nursery) -> None:
    stage, client, sent = await calling(nursery)
    client.close()
    await stage.alpha.wait_cancelled()
    assert [key for key, _ in stage.alpha.cancelled] == [sent.key]


async def test_a_call_is_refused_where_a_models_would_be() -> None:
    overrides = {"add": {"enabled": False}}
    stage = Stage(
        categories={
            "c": {"description": "C", "server": "alpha", "tools": {"overrides": overrides}},
            "d": {"description": "D", "server": "beta"},
        }
    )
    stage.learn(Switched(off=frozenset({("beta", "echo")})))
    daemon = OperatorStage(stage)
    for server in daemon.servers.values():
        server.on_send = lambda sent: sent.exchange.answered(b"{}")

    async def refusal(server: str, tool: str) -> str:
        result = json.loads(bytes(await call(daemon.context(), OperatorCallParams(server, tool))))
        text: str = result["content"][0]["text"] if result else ""
        return text

    assert await refusal("alpha", "echo") == ""
    assert await refusal("beta", "add") == ""
    unknown = "there is no tool 'alpha/ehco'. Did you mean alpha/echo? There are: alpha/echo."
    assert unknown in await refusal("alpha", "ehco"), "spelt as it was written"
    assert "'alpha/add' cannot be called: it is switched off by mcpd's conf" in await refusal("alpha", "add")
    assert "`mcpd enable beta/echo`" in await refusal("beta", "echo")
    servers = {name: entry for name, entry in stage.catalog.value.servers.items() if name != "beta"}
    stage.catalog.set(attrs.evolve(stage.catalog.value, servers=servers))
    assert await refusal("beta", "add") == "UnknownServer: server beta is no longer in mcpd's configuration"


async def test_a_server_that_is_off_is_told_from_one_that_does_not_exist(nursery: trio.Nursery) -> None:
    off = Stage(mcpServers={"alpha": {"command": "x"}, "off": {"command": "x", "enabled": False}})
    client = await OperatorStage(off).connect(nursery)
    await ask(client, "off", "echo")
    assert "switched off in the configuration" in error_of(await client.get())["message"]


SCHEMA = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}


@pytest.mark.parametrize(("arguments", "says"), [({}, "zone"), ({"zone": 5}, "$.zone")])
async def test_arguments_that_do_not_fit_are_told_with_the_schema_and_not_sent(
    nursery: trio.Nursery, arguments: dict[str, object], says: str
) -> None:
    stage = OperatorStage()
    stage.stage.lists("alpha", tool("now", inputSchema=SCHEMA))
    client = await stage.connect(nursery)
    await ask(client, "alpha", "now", arguments=arguments)
    text, schema = (await client.get())["result"]["content"][0]["text"].split("\n")
    assert text.startswith("InvalidArguments: the arguments of now do not fit it")
    assert says in text
    assert json.loads(schema.removeprefix("schema: ")) == {
        key: SCHEMA[key] for key in ("properties", "required")
    }
    assert not stage.alpha.sent


async def test_answers_to_what_a_modern_server_wants_go_first() -> None:
    daemon = OperatorStage()

    def answer(sent: Sent) -> None:
        members = json.loads(b"{%b}" % b"".join(sent.call.params))
        assert members == {"inputResponses": {"k": {"action": "decline"}}, "requestState": "s", "uri": "x:y"}
        assert sent.call.envelope == {"io.modelcontextprotocol/clientCapabilities": b'{"roots":{}}'}
        sent.exchange.answered(b"{}")

    daemon.alpha.on_send = answer
    told = b'{"capabilities":{"roots":{}},"inputResponses":{"k":{"action":"decline"}},"requestState":"s"}'
    given = msgspec.json.decode(told, type=Forwarding)
    members: tuple[Buffer, ...] = (b'"uri":', b'"x:y"')
    assert await forward(daemon.context(), daemon.alpha, "resources/read", members, given) == Raw(b"{}")
    # Only tools' calls are counted among calls.
    assert not daemon.alpha.recorded


@pytest.mark.parametrize("result", [b"5", b"[]", b'"x"', b"null"])
async def test_a_result_that_is_no_object_is_the_servers_fault(result: bytes) -> None:
    daemon = OperatorStage()
    daemon.alpha.on_send = lambda sent: sent.exchange.answered(result)
    members: tuple[Buffer, ...] = (b'"uri":', b'"x:y"')
    with pytest.raises(UpstreamCallError, match="something other than an object"):
        await forward(daemon.context(), daemon.alpha, "resources/read", members, Forwarding())


async def test_where_no_operator_could_be_told_a_servers_request_is_refused() -> None:
    daemon, told = OperatorStage(), list[Told]()

    def ask(sent: Sent) -> None:
        sent.exchange.progressed({"progress": Raw(b"1")})
        told.append(asks(daemon.stage, sent, "roots/list", {})[1])
        sent.exchange.answered(b"{}")

    daemon.alpha.on_send = ask
    await forward(daemon.context(), daemon.alpha, "tools/call", (b"",), Forwarding(progress=True))
    assert [code for code, _ in told[0].errors] == [-32600]


async def test_progress_is_asked_for_only_where_it_is_wanted(nursery: trio.Nursery) -> None:
    daemon, client, sent = await calling(nursery, progress=True, request_id="a")
    assert sent.call.wants_progress
    daemon.stage.progress(sent, progress=3, total=4, message="so far")
    report = await client.get()
    assert report["method"] == "notifications/progress"
    assert report["params"] == {"progressToken": "a", "progress": 3, "total": 4, "message": "so far"}
    daemon.stage.answer(sent)
    assert (await client.get())["id"] == "a"


async def told_by(peer: Told) -> Any:
    """The first answer or error that a server is told."""
    await until(lambda: peer.count)
    return [*peer.results, *peer.errors][0]


async def test_a_question_reaches_the_operator_and_the_answer_the_server(nursery: trio.Nursery) -> None:
    daemon, client, sent = await calling(nursery, capabilities={"elicitation": {"form": {}}})
    _, told = asks(daemon.stage, sent)
    asked = await client.get()
    assert (asked["method"], asked["params"]) == ("elicitation/create", QUESTION)
    await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {}}})
    assert await told_by(told) == {"action": "accept", "content": {}}
    daemon.stage.answer(sent)
    assert "result" in await client.get()


async def test_who_declares_nothing_is_not_asked(nursery: trio.Nursery) -> None:
    daemon, client, sent = await calling(nursery)
    assert sent.raw_arguments == b"{}"
    _, told = asks(daemon.stage, sent)
    assert await told_by(told) == {"action": "decline"}
    _, refused = asks(daemon.stage, sent, "sampling/createMessage", {"messages": []})
    assert (await told_by(refused))[0] == -32601
    daemon.stage.answer(sent)
    assert "result" in await client.get()


async def test_a_question_ends_with_the_call(nursery: trio.Nursery) -> None:
    daemon, client, sent = await calling(nursery, capabilities={"roots": {}})
    request, told = asks(daemon.stage, sent, "roots/list", {})
    asked = await client.get()
    # The server's own end of the call does this (`upstreams.call_admission`).
    request.withdraw("the call has ended")
    daemon.stage.answer(sent)
    cancelled, answer = await client.get(), await client.get()
    assert cancelled["params"] == {"requestId": asked["id"], "reason": "the call has ended"}
    assert "result" in answer
    assert not told.count


async def test_a_question_ends_when_the_operator_goes(nursery: trio.Nursery) -> None:
    daemon, client, sent = await calling(nursery, capabilities={"roots": {}})
    _, told = asks(daemon.stage, sent, "roots/list", {})
    await client.get()
    client.close()
    assert (await told_by(told))[0] == -32603
    await daemon.alpha.wait_cancelled()


# --- within a profile ----------------------------------------------------------------------------------------

ASKING = {"default": {"permissions": [{"match": "alpha/echo", "then": "ask"}]}}
CAN_ASK = {"profile": "default", "capabilities": {"elicitation": {"form": {}}}}
ONCE = {"action": "accept", "content": {"choice": "allow once"}}


def asking_stage(**more: Any) -> OperatorStage:
    return OperatorStage(Stage(profiles=ASKING, **more))


async def asked_about(nursery: trio.Nursery) -> tuple[OperatorStage, Client, Any]:
    """An operator has called `echo`, and is asked."""
    stage = asking_stage()
    client = await stage.connect(nursery)
    await ask(client, "alpha", "echo", **CAN_ASK)
    return stage, client, await client.get()


async def test_a_tool_that_changes_while_its_user_is_asked_is_not_called(nursery: trio.Nursery) -> None:
    stage, client, question = await asked_about(nursery)
    assert question["params"]["message"].startswith("mcpd asks: alpha/echo wants to run with {}")
    assert question["params"]["requestedSchema"]["properties"]["choice"]["enum"] == ["allow once", "refuse"]
    stage.stage.lists("alpha", {"name": "echo", "description": "Does more.", "inputSchema": {"type": "object"}})
    await client.send({"jsonrpc": "2.0", "id": question["id"], "result": ONCE})
    error = error_of(await client.get())
    assert (error["code"], "it has changed since" in error["message"]) == ("PermissionDenied", True)
    assert not stage.alpha.sent
    await ask(client, "alpha", "echo", request_id=2, **CAN_ASK)
    await client.send({"jsonrpc": "2.0", "id": (await client.get())["id"], "result": ONCE})
    stage.stage.answer(await stage.alpha.wait_sent())
    assert (await client.get())["result"] == {"content": []}


async def test_a_rule_that_denies_meanwhile_counts(nursery: trio.Nursery) -> None:
    stage, client, question = await asked_about(nursery)
    stage.stage.learn(Switched(off=frozenset({("alpha", "echo")})))
    await client.send({"jsonrpc": "2.0", "id": question["id"], "result": ONCE})
    assert error_of(await client.get())["code"] == "ToolDisabled"
    assert not stage.alpha.sent


async def test_who_does_not_answer_has_not_agreed(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    stage, client, question = await asked_about(nursery)
    await trio.sleep(ASK_SECONDS + 1)
    withdrawn = await client.get()
    assert withdrawn["params"]["requestId"] == question["id"]
    assert "has not answered within 600 s" in error_of(await client.get())["message"]
    assert not stage.alpha.sent


async def test_until_a_server_has_listed_only_rules_by_name_allow(nursery: trio.Nursery) -> None:
    stage = asking_stage(listed=False)
    client = await stage.connect(nursery)
    assert error_of(await client.request("call", {"server": "alpha", "tool": "echo", **CAN_ASK}))["code"] == (
        "UpstreamUnavailable"
    )
    assert (stage.alpha.woken, stage.alpha.sent) == (1, [])
    await ask(client, "alpha", "add", **CAN_ASK)
    stage.stage.answer(await stage.alpha.wait_sent())
    assert "result" in await client.get()
