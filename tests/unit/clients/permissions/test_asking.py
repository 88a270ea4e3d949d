"""Calls that are made only if the user agrees: never before, never otherwise, and asked about once."""

import json
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.clients.approvals import ASK_SECONDS
from daemon.clients.client import Principal
from tests.fakes_upstream import Client, Stage, error_of, tool
from tests.unit.cases import cases
from tests.unit.clients.permissions import agreeing

SURFACES = ["category", "browse", "search", "search-wrapped", "load", "full"]
WEB = Principal(owner="token ci: ", token="ci", keeps=False)


async def call(client: Client, surface: str = "category", request_id: Any = 1, **more: Any) -> None:
    await client.ask("tools/call", {**agreeing.call_of(surface), **more}, request_id=request_id)


@pytest.fixture
def surface() -> str:
    return "category"


@pytest.fixture
def stage(surface: str) -> Stage:
    return agreeing.stage_of(surface.removesuffix("-wrapped"))


@pytest.fixture
async def client(stage: Stage, nursery: trio.Nursery) -> Client:
    return await agreeing.greeted(stage, nursery)


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_call_is_sent_when_its_user_agrees(stage: Stage, client: Client, surface: str) -> None:
    for request_id in (1, 2):
        await call(client, surface, request_id)
        question = await agreeing.asked(client)
        message = question["params"]["message"]
        assert message.startswith('mcpd asks: alpha/echo wants to run with {"x":1}\n')
        assert len(stage.alpha.sent) == request_id - 1
        await agreeing.reply(client, question, agreeing.accept())
        sent = await stage.alpha.wait_sent(request_id)
        assert b"".join(map(bytes, sent.call.params)).endswith(b'{"x": 1}')
        stage.answer(sent)
        assert (await agreeing.answer_to(client, request_id))["result"] == {"content": []}


@pytest.mark.parametrize("surface", SURFACES)
async def test_what_is_allowed_for_the_session_is_not_asked_about_again_until_it_changes(
    stage: Stage, client: Client, surface: str
) -> None:
    await call(client, surface)
    await agreeing.reply(client, await agreeing.asked(client), agreeing.accept("allow for this session"))
    stage.answer(await stage.alpha.wait_sent(1))
    await agreeing.answer_to(client)
    await call(client, surface, 2)
    stage.answer(await stage.alpha.wait_sent(2))
    await agreeing.answer_to(client, 2)
    stage.lists("alpha", tool("echo", description="Another."), "add")
    await call(client, surface, 3)
    message = await client.get()
    while message.get("id") is None:
        message = await client.get()
    if "result" in message:
        assert error_of(message)["code"] == "ToolChanged"
        await call(client, surface, 4)
        message = await agreeing.asked(client)
    assert message["method"] == "elicitation/create"
    assert len(stage.alpha.sent) == 2


@cases("answer", "why")
async def test_whatever_is_no_agreement_sends_nothing_and_says_what_is_left_to_do(
    stage: Stage, client: Client, answer: Any, why: str
) -> None:
    await call(client)
    await agreeing.reply(client, await agreeing.asked(client), answer)
    error = error_of(await agreeing.answer_to(client))
    assert error["code"] == "PermissionDenied"
    assert why in error["message"]
    assert "Do not call it again unless the user asks you to" in error["message"]
    # Where a user has chosen, nobody is told a way around that.
    is_left = answer != agreeing.accept("refuse")
    assert error.get("allow") == ("mcpd allow 1 alpha/echo" if is_left else None)
    assert ("`mcpd allow 1 alpha/echo` (for a while: --for 1h)" in error["message"]) is is_left
    # By the time that somebody types this, a run that ends with its answer has ended.
    assert ("--session KEY`, then `mcpd allow KEY alpha/echo`; or write {" in error["message"]) is is_left
    assert ('{"match": "alpha/echo", "then": "allow"} before the rule' in error["message"]) is is_left
    assert not stage.alpha.sent


async def test_without_an_answer_or_after_a_cancellation_nothing_is_sent(stage: Stage, client: Client) -> None:
    await call(client)
    question = await agreeing.asked(client)
    error = {"code": -32601, "message": "no"}
    await client.send({"jsonrpc": "2.0", "id": question["id"], "error": error})
    assert "the client refused to ask the user: no" in error_of(await agreeing.answer_to(client))["message"]
    assert not stage.alpha.sent
    await call(client, request_id=2)
    question = await agreeing.asked(client)
    await client.tell("notifications/cancelled", {"requestId": 2})
    assert (await client.get())["method"] == "notifications/cancelled"
    await agreeing.reply(client, question, agreeing.accept())
    await trio.testing.wait_all_tasks_blocked()
    assert not stage.alpha.sent


async def test_a_user_has_so_long_and_the_client_is_told_that_it_goes_on(
    stage: Stage, client: Client, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    await call(client, _meta={"progressToken": 5})
    question = await agreeing.asked(client)
    reports = []
    while (message := await client.get()).get("id") != 1:
        if message["method"] == "notifications/progress":
            reports.append(message["params"]["progress"])
        else:
            assert message["method"] == "notifications/cancelled"
            assert message["params"]["requestId"] == question["id"]
    assert "has not answered within" in error_of(message)["message"]
    assert reports == sorted(reports)
    assert len(reports) > 10
    assert trio.current_time() - began == pytest.approx(ASK_SECONDS, abs=1)
    await agreeing.reply(client, question, agreeing.accept())
    await trio.testing.wait_all_tasks_blocked()
    assert not stage.alpha.sent


@pytest.mark.parametrize("capabilities", [{}, {"sampling": {}}, {"elicitation": {"url": {}}}])
async def test_a_client_that_cannot_ask_is_told_how_the_user_can_allow_it(
    stage: Stage, nursery: trio.Nursery, capabilities: Any
) -> None:
    client = await agreeing.greeted(stage, nursery, capabilities)
    await call(client)
    error = error_of(await agreeing.answer_to(client))
    assert (error["code"], error["allow"]) == ("PermissionDenied", "mcpd allow 1 alpha/echo")
    assert not stage.alpha.sent
    (echo,) = (
        each
        for each in stage.services.offers.of(stage.catalog.value, stage.config.profiles["default"]).all
        if each.name == "echo" and each.tool.server == "alpha"
    )
    assert echo.asks


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("change", ["deny", "off", "changed"])
async def test_what_holds_when_the_user_has_agreed_decides(
    stage: Stage, client: Client, change: str, modern: bool
) -> None:
    meta: dict[str, Any] = {"_meta": agreeing.META} if modern else {}
    await call(client, **meta)
    asked: Any = (await required(client))[1] if modern else await agreeing.asked(client)
    match change:
        case "deny":
            agreeing.configure(stage, agreeing.DENIES)
        case "off":
            agreeing.configure(stage, {"match": "beta/*", "then": "deny"}, agreeing.DENIES)
        case _:
            stage.lists("alpha", tool("echo", description="Another."), "add")
    if modern:
        await again(client, asked, agreeing.accept())
    else:
        await agreeing.reply(client, asked, agreeing.accept())
    error = error_of(await agreeing.answer_to(client, 2 if modern else 1))
    assert error["code"] == ("PermissionDenied" if change == "changed" else "ToolDisabled")
    assert not stage.alpha.sent


async def test_who_was_asked_about_a_program_has_agreed_to_no_other_of_its_name(
    stage: Stage, client: Client
) -> None:
    await call(client)
    question = await agreeing.asked(client)
    agreeing.configure(stage, agreeing.ASKS, command="other")
    await agreeing.reply(client, question, agreeing.accept("allow for this session"))
    await agreeing.answer_to(client)
    assert not any(each.grants for each in (*stage.sessions.own, *stage.sessions.named.values()))
    assert not stage.alpha.sent


async def test_a_call_in_line_is_asked_about_if_a_reload_says_so(nursery: trio.Nursery) -> None:
    stage = agreeing.stage_of("category", {"match": "alpha/echo", "then": "allow"})
    client = await agreeing.greeted(stage, nursery)
    await call(client)
    queued = await stage.alpha.wait_sent(1)
    agreeing.configure(stage, agreeing.ASKS)
    assert queued.call.check() is False
    question = await agreeing.asked(client)
    assert len(stage.alpha.sent) == 1
    await agreeing.reply(client, question, agreeing.accept())
    again = await stage.alpha.wait_sent(2)
    assert again.call.check() is True
    stage.answer(again)
    await agreeing.answer_to(client)


async def test_a_call_in_line_that_a_reload_denies_is_refused(stage: Stage, client: Client) -> None:
    await call(client)
    await agreeing.reply(client, await agreeing.asked(client), agreeing.accept())
    queued = await stage.alpha.wait_sent(1)
    agreeing.configure(stage, agreeing.DENIES)
    with pytest.raises(Exception, match="denies it"):
        queued.call.check()


# --- MCP 2026-07-28 ----------------------------------------------------------------------------------------


async def required(client: Client, request_id: object = 1) -> tuple[dict[str, Any], str]:
    message = await agreeing.answer_to(client, request_id)
    result = message["result"]
    assert result["resultType"] == "input_required", message
    return result["inputRequests"], result["requestState"]


async def asked_in_its_answer(nursery: trio.Nursery) -> tuple[Stage, Client, str]:
    """A modern client that has called, and the state of the question that it was answered with."""
    stage = agreeing.stage_of()
    client = await stage.client(nursery)
    await call(client, _meta=agreeing.META)
    return stage, client, (await required(client))[1]


async def again(client: Client, state: str, answer: Any = None, request_id: object = 2, **more: Any) -> None:
    more |= {} if answer is None else {"inputResponses": {"permission": answer}}
    await call(client, request_id=request_id, _meta=agreeing.META, requestState=state, **more)


@pytest.mark.parametrize("principal", [Principal(), WEB])
async def test_a_modern_client_is_answered_with_the_question_and_comes_back(
    stage: Stage, nursery: trio.Nursery, principal: Principal
) -> None:
    client = (await stage.connect(nursery, principal)).client
    await call(client, _meta=agreeing.META)
    requests, state = await required(client)
    schema = requests["permission"]["params"]["requestedSchema"]["properties"]["choice"]
    assert ("allow for this session" in schema["enum"]) == principal.keeps
    # Over HTTP the next request may come by another connection.
    client = client if principal.keeps else (await stage.connect(nursery, principal)).client
    await again(client, state, agreeing.accept())
    sent = await stage.alpha.wait_sent(1)
    assert not sent.call.others  # type: ignore[attr-defined]
    stage.answer(sent)
    assert (await agreeing.answer_to(client, 2))["result"]["content"] == []
    # Its state is used up.
    await again(client, state, agreeing.accept(), 3)
    assert (await agreeing.answer_to(client, 3))["error"]["data"] == {"code": "UnknownRequestState"}
    await call(client, request_id=4, _meta=agreeing.META)
    await required(client, 4)
    assert len(stage.alpha.sent) == 1


async def test_a_modern_client_may_allow_a_tool_for_its_session(nursery: trio.Nursery) -> None:
    stage, client, state = await asked_in_its_answer(nursery)
    await again(client, state, agreeing.accept("allow for this session"))
    stage.answer(await stage.alpha.wait_sent(1))
    await agreeing.answer_to(client, 2)
    await call(client, request_id=3, _meta=agreeing.META)
    await stage.alpha.wait_sent(2)
    stranger = (await stage.connect(nursery, WEB)).client
    await call(stranger, _meta=agreeing.META)
    _, state = await required(stranger)
    await again(stranger, state, agreeing.accept("allow for this session"))
    assert error_of(await agreeing.answer_to(stranger, 2))["code"] == "PermissionDenied"


async def test_other_arguments_are_not_what_was_agreed_to(nursery: trio.Nursery) -> None:
    stage, client, state = await asked_in_its_answer(nursery)
    params = {**agreeing.call_of("category", args={"x": 2}), "requestState": state, "_meta": agreeing.META}
    await client.ask(
        "tools/call", {**params, "inputResponses": {"permission": agreeing.accept()}}, request_id=2
    )
    assert (await agreeing.answer_to(client, 2))["error"]["data"] == {"code": "UnknownRequestState"}
    assert not stage.alpha.sent


async def test_arguments_that_come_back_are_sent_as_they_were_shown(nursery: trio.Nursery) -> None:
    stage = agreeing.stage_of("full")
    client = await stage.client(nursery)
    shown = b'{"x":1,"x":2}'
    meta = json.dumps(agreeing.META).encode()
    await client.send(
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":%b,"_meta":%b}}'
        % (shown, meta)
    )
    requests, state = await required(client)
    assert requests["permission"]["params"]["message"].count('"x":') == 2
    params = {"name": "echo", "arguments": {"x": 2}, "_meta": agreeing.META, "requestState": state}
    await client.ask(
        "tools/call", {**params, "inputResponses": {"permission": agreeing.accept()}}, request_id=2
    )
    assert bytes((await stage.alpha.wait_sent(1)).call.params[-1]) == shown


async def test_a_modern_client_that_brings_no_answer_is_asked_again(nursery: trio.Nursery) -> None:
    stage, client, state = await asked_in_its_answer(nursery)
    await again(client, state)
    _, state = await required(client, 2)
    await again(client, state, {"action": "decline"}, 3)
    assert "the client has declined or cancelled" in error_of(await agreeing.answer_to(client, 3))["message"]
    assert not stage.alpha.sent


async def test_a_modern_server_that_wants_a_call_again_has_its_user_asked_once(
    stage: Stage, nursery: trio.Nursery
) -> None:
    stage.alpha.is_modern = True
    client = await stage.client(nursery)
    await call(client, _meta=agreeing.META)
    _, state = await required(client)
    await again(client, state, agreeing.accept())
    needs = b'{"resultType":"input_required","inputRequests":{},"requestState":"theirs"}'
    stage.answer(await stage.alpha.wait_sent(1), needs)
    assert (await agreeing.answer_to(client, 2))["result"]["requestState"] == "theirs"
    # Its own way of repeating the call, with what the server has given it.
    await call(client, request_id=3, _meta=agreeing.META, requestState="theirs", inputResponses={})
    stage.answer(await stage.alpha.wait_sent(2))
    await agreeing.answer_to(client, 3)
    # But not as often as it likes.
    await call(client, request_id=4, _meta=agreeing.META, requestState="theirs", inputResponses={})
    _, state = await required(client, 4)
    await again(client, state, agreeing.accept(), 5)
    # What it brought besides is sent with what was agreed to.
    sent = await stage.alpha.wait_sent(3)
    assert bytes(sent.call.others["requestState"]) == b'"theirs"'  # type: ignore[attr-defined]


async def test_an_older_client_is_asked_once_for_a_modern_server(stage: Stage, nursery: trio.Nursery) -> None:
    stage.alpha.is_modern = True
    client = await agreeing.greeted(stage, nursery)
    await call(client)
    await agreeing.reply(client, await agreeing.asked(client), agreeing.accept())
    stage.answer(await stage.alpha.wait_sent(1), b'{"resultType":"input_required","requestState":"s"}')
    stage.answer(await stage.alpha.wait_sent(2))
    await agreeing.answer_to(client)


async def test_a_modern_client_has_so_many_questions_before_it(stage: Stage, nursery: trio.Nursery) -> None:
    client = await stage.client(nursery)
    for number in range(64):
        await call(client, request_id=number, _meta=agreeing.META)
        await required(client, number)
    await call(client, request_id=99, _meta=agreeing.META)
    assert error_of(await agreeing.answer_to(client, 99))["code"] == "Overloaded"


async def test_who_has_no_session_over_http_is_told_what_it_needs(stage: Stage, nursery: trio.Nursery) -> None:
    client = (await stage.connect(nursery, WEB)).client
    await call(client, _meta={**agreeing.META, "io.modelcontextprotocol/clientCapabilities": {}})
    error = error_of(await agreeing.answer_to(client))
    assert "Mcpd-Session" in error["message"]
    assert "allow" not in error
