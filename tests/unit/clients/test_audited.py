"""Calls in the audit: who made them, by which rule, and how they ended; one record each."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from daemon.audit.audit_files import AuditQuery, read
from daemon.audit.audit_log import Audit
from daemon.clients.calls import LARGE, MAX_ARGUMENTS
from daemon.clients.client import Principal
from daemon.clients.dispatch import Dispatch, plain_call
from daemon.config.tuning import AuditFailure, AuditKeys
from daemon.errors import UpstreamLost, UpstreamUnavailable
from daemon.tracing.tracer import Tracer
from tests.fakes_upstream import Client, Guest, Stage, error_of
from tests.unit.clients.asking import greet
from tests.unit.clients.inputs import META, asks
from tests.unit.clients.permissions.agreeing import accept, asked, greeted, reply, stage_of

GUEST = "token without a name (session #1)"


def audited(root: Path, rules: Any = (), surface: str = "category", **keys: Any) -> Stage:
    """A stage with an audit that is written when it is read."""
    stage = stage_of(surface, *(rules or ({"match": "*", "then": "allow"},)))

    audit = Audit(root / "audit", AuditKeys(**keys), "host/1/a")
    msgspec.structs.force_setattr(stage.context, "audit", audit)
    return stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return audited(tmp_path)


async def records(stage: Stage) -> list[dict[str, Any]]:
    await stage.context.audit._round()
    found = read(stage.context.audit.root, AuditQuery())
    return [msgspec.json.decode(entry.line) for entry in found]


async def test_a_call_that_was_sent(stage: Stage, nursery: trio.Nursery) -> None:
    client = (await stage.connect(nursery, Principal(owner="token ci: ", token="ci", pid=77))).client
    said = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "agent", "version": "1"}}
    await client.request("initialize", said, request_id=0)
    digest = ""
    for number in (1, 2):
        await client.call("alpha", "echo", {"text": "hi"}, request_id=number)
        sent = await stage.alpha.wait_sent(number)
        digest = hashlib.sha256(sent.raw_arguments).hexdigest()
        stage.answer(sent)
        await client.get()
    found = await records(stage)
    for each in found:
        assert each.pop("durationMs") >= 0
        assert each.pop("at") < "3"
        del each["prev"], each["seq"]
    first, second = found
    assert first == second
    tool = stage.catalog.value.servers["alpha"].tools
    assert tool is not None
    assert first == {
        "daemon": "host/1/a",
        "decision": "sent",
        "session": "#1",
        "client": "agent 1",
        "principal": "token ci",
        "pid": 77,
        "server": "alpha",
        "tool": "echo",
        "schemaHash": tool["echo"].schema_hash,
        "rule": "default: *: allow",
        "outcome": "ok",
        "bytes": len('{"content":[]}'),
        "argumentsSha256": digest,
    }


async def test_arguments_only_where_they_are_wanted(tmp_path: Path, nursery: trio.Nursery) -> None:
    stage = audited(tmp_path, arguments=True)
    client = await stage.client(nursery)
    await client.call("alpha", "echo", {"text": "x" * 5000})
    stage.answer(await stage.alpha.wait_sent())
    await client.get()
    (found,) = await records(stage)
    assert msgspec.json.decode(found["arguments"]) == {"text": "x" * 5000}


async def test_a_repaired_call_says_how(stage: Stage, client: Client) -> None:
    await client.call("alpha", "echo", '{"text": "hi"}')
    stage.answer(await stage.alpha.wait_sent())
    await client.get()
    (found,) = await records(stage)
    assert (found["decision"], found["rule"]) == ("repaired", "stringified")


async def test_a_refused_call_names_its_rule(tmp_path: Path, nursery: trio.Nursery) -> None:
    stage = audited(tmp_path, [{"match": "alpha/echo", "then": "deny"}])
    client = await stage.client(nursery)
    await client.call("alpha", "echo", {})
    outcome = error_of(await client.get())["code"]
    (found,) = await records(stage)
    assert (found["decision"], found["outcome"]) == ("refused", outcome)
    assert (found["server"], found["rule"]) == ("alpha", "default: alpha/echo: deny")


async def test_calls_are_refused_while_an_audit_that_fails_closed_cannot_be_written(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    stage = audited(tmp_path, fail=AuditFailure.CLOSED)
    stage.context.audit.problem = "No space left on device"
    client = await stage.client(nursery)
    await client.call("alpha", "echo", {})
    error = error_of(await client.get())
    assert (error["code"], "(No space left on device)" in error["message"]) == ("AuditUnavailable", True)
    (found,) = await records(stage)
    assert (stage.alpha.sent, found["decision"], found["outcome"]) == ([], "refused", "AuditUnavailable")


async def test_a_held_tool_is_recorded_under_its_own_name_and_hash(stage: Stage, nursery: trio.Nursery) -> None:
    audit, stage = stage.context.audit, Stage(trust="none", profiles={"default": {"surface": "full"}})
    msgspec.structs.force_setattr(stage.context, "audit", audit)
    client = await stage.client(nursery)
    await client.ask("tools/call", {"name": "mcp__alpha__echo", "arguments": {}})
    assert error_of(await client.get())["code"] == "ToolHeld"
    (found,) = await records(stage)
    held = stage.catalog.value.servers["alpha"].tool_list.held["echo"].definition
    assert (found["server"], found["tool"], found["schemaHash"]) == ("alpha", "echo", held.schema_hash)


async def test_calls_without_an_answer(stage: Stage, client: Client) -> None:
    await client.call("alpha", "echo", {}, request_id=1)
    stage.lose(await stage.alpha.wait_sent(), UpstreamLost("gone"))
    await client.get()
    await client.call("alpha", "echo", {}, request_id=2)
    await stage.alpha.wait_sent(2)
    await client.tell("notifications/cancelled", {"requestId": 2})
    await stage.alpha.wait_cancelled()
    stage.alpha.is_modern = True
    await client.call("alpha", "echo", {}, request_id=3)
    stage.answer(await stage.alpha.wait_sent(3), b'{"requestState":"s","resultType":"input_required"}')
    (await stage.alpha.wait_sent(4)).call.in_line = True
    await client.tell("notifications/cancelled", {"requestId": 3})
    await stage.alpha.wait_cancelled(2)
    outcomes = [(each["decision"], each["outcome"]) for each in await records(stage)]
    assert outcomes == [("sent", "UpstreamLost"), ("sent", "cancelled"), ("sent", "cancelled")]


async def test_what_mcpd_answers_itself_is_no_decision(stage: Stage, nursery: trio.Nursery) -> None:
    client = await greeted(stage, nursery)
    await client.describe("alpha")
    await client.get()
    assert await records(stage) == []


async def test_a_call_that_mcpd_fails_on_after_it_was_sent(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dispatch, "_note", lambda *_args: 1 / 0)
    await client.call("alpha", "echo", {})
    await stage.alpha.wait_sent()
    assert (await client.get())["error"]["message"] == "Internal error: ZeroDivisionError"
    (found,) = await records(stage)
    assert (found["decision"], found["outcome"]) == ("sent", "InternalError")
    monkeypatch.setattr(Dispatch, "begin", lambda *_args: 1 / 0)
    plain = b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","arguments":{}}}'
    assert plain_call(plain)
    await client.send(plain)
    assert (await client.get())["error"]["message"] == "Internal error: ZeroDivisionError"


async def test_a_parked_call_whose_client_never_comes_back(stage: Stage, client: Client) -> None:
    await client.call("alpha", "echo", {}, _meta=META)
    asks(stage, await stage.alpha.wait_sent())
    assert (await client.get())["result"]["resultType"] == "input_required"
    client.close()
    await stage.alpha.wait_cancelled()
    assert [(each["decision"], each["outcome"]) for each in await records(stage)] == [("sent", "cancelled")]


async def test_a_cut_shows_no_half_of_a_secret(tmp_path: Path, nursery: trio.Nursery) -> None:
    stage = audited(tmp_path, arguments=True)
    stage.context.redact.hide(["correct-horse-battery-staple"])
    client = await stage.client(nursery)
    # Of four bytes each, so that a cut by bytes comes before the one by characters.
    args = {"text": "\U0001f600" * (MAX_ARGUMENTS // 2 - 6) + "correct-horse-battery-staple"}
    called = {"name": "call-category-tool", "arguments": {"category": "alpha", "name": "echo", "args": args}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}
    await client.send(msgspec.json.encode(request))
    stage.answer(await stage.alpha.wait_sent())
    await client.get()
    (found,) = await records(stage)
    assert "correct" not in found["arguments"]


async def answered(stage: Stage, guest: Guest, number: int) -> None:
    await guest.client.ask("tools/call", {"name": "add", "arguments": {"a": 1}}, request_id=number)
    stage.answer(await stage.alpha.wait_sent(number))
    await guest.client.get()


async def test_a_call_shares_nothing_with_those_of_another_session_nor_with_those_that_were_sent(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    stage = audited(tmp_path, surface="full")
    guest = await stage.connect(nursery)
    for number in (1, 2):
        await answered(stage, guest, number)
        await records(stage)
    known = guest.session.calls.recorded
    (decision, _session, client), (_made, kept) = known.popitem()
    known[decision, 0, client] = b'"daemon":"","decision":"another session\'s"', kept
    await answered(stage, guest, 3)
    await records(stage)
    stage.alpha.refusal = UpstreamUnavailable("down", server="alpha")
    stage.alpha.can_wake = False
    await guest.client.ask("tools/call", {"name": "add", "arguments": {}}, request_id=4)
    await guest.client.get()
    found = [(each["decision"], each["outcome"]) for each in await records(stage)]
    assert found == [("sent", "ok")] * 3 + [("refused", "UpstreamUnavailable")]


@pytest.mark.parametrize(("arguments", "traced"), [(False, False), (True, False), (False, True)])
async def test_a_call_of_a_recorded_decision_has_members_of_its_own(
    tmp_path: Path, nursery: trio.Nursery, arguments: bool, traced: bool
) -> None:
    stage = audited(tmp_path, surface="full", arguments=arguments)
    if traced:
        tracer = Tracer(lambda: None, (1.0, True), arguments=False)
        msgspec.structs.force_setattr(stage.context, "tracer", tracer)
    client = (await stage.connect(nursery)).client
    given, found = list[bytes](), list[dict[str, Any]]()
    for number, failed in enumerate([b"false", b"false", b"true"], 1):
        await client.ask("tools/call", {"name": "add", "arguments": {"n": number}}, request_id=number)
        sent = await stage.alpha.wait_sent(number)
        given.append(sent.raw_arguments)
        stage.answer(sent, b'{"content":[],"isError":%b}' % failed)
        await client.get()
        found = await records(stage)
    assert [each["outcome"] for each in found] == ["ok", "ok", "isError"]
    assert [each["argumentsSha256"] for each in found] == [hashlib.sha256(each).hexdigest() for each in given]
    assert [each.get("arguments", "").encode() for each in found] == (given if arguments else [b""] * 3)
    assert len({each.get("traceId") for each in found}) == (3 if traced else 1)


async def test_no_call_is_kept_until_its_record_is_written(tmp_path: Path, nursery: trio.Nursery) -> None:
    stage = audited(tmp_path, surface="full")
    guest = await stage.connect(nursery)
    for number in (1, 2, 3):
        await answered(stage, guest, number)
        if number < 3:
            await records(stage)
    ((_make, *parts),) = stage.context.audit._waiting
    assert {type(each) for each in parts} == {bytes, str, float, int}
    await records(stage)
    large = {"name": "add", "arguments": {"text": "x" * LARGE}}
    await guest.client.ask("tools/call", large, request_id=4)
    stage.answer(await stage.alpha.wait_sent(4))
    await guest.client.get()
    ((_make, *parts),) = stage.context.audit._waiting
    assert [type(each) for each in parts] == [bytes]
    assert len(parts[0]) < LARGE


async def test_a_question_is_recorded_and_each_call_after_it_says_who_agreed(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    stage = audited(tmp_path, [{"match": "alpha/*", "then": "ask"}], surface="full")
    guest = await stage.connect(nursery)
    await greet(guest.client)
    tools = stage.catalog.value.servers["alpha"].tools
    assert tools is not None
    for number in (1, 2, 3):
        if number == 3:
            guest.session.statistics().own.grants.allow(tools["add"], "uid 0 (terminal)")
        await guest.client.ask("tools/call", {"name": "add", "arguments": {"a": 1}}, request_id=number)
        if number < 3:
            await reply(guest.client, await asked(guest.client), accept())
        stage.answer(await stage.alpha.wait_sent(number))
        await guest.client.get()
    found = await records(stage)
    assert [each["decision"] for each in found] == ["asked", "sent", "asked", "sent", "sent"]
    assert (found[0]["tool"], found[1]["rule"]) == ("add", "default: alpha/*: ask")
    assert [each["by"] for each in found if each["decision"] == "sent"] == [GUEST, GUEST, "uid 0 (terminal)"]
