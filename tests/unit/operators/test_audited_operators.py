"""Operators in the audit: what they send, what is refused, and what they leave before its end."""

from pathlib import Path
from typing import Any

import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from daemon.audit.audit_files import AuditQuery, read
from daemon.audit.audit_log import Audit
from daemon.config.parse import Plan
from daemon.config.tuning import AuditFailure, AuditKeys
from tests.unit.operators.stage import OperatorStage


def audit_below(root: Path) -> Audit:
    return Audit(root / "audit", AuditKeys(), "life")


async def records(audit: Audit) -> list[tuple[Any, ...]]:
    await audit._round()
    found = [msgspec.json.decode(entry.line) for entry in read(audit.root, AuditQuery())]
    return [(each["decision"], each.get("server"), each["tool"], each["outcome"]) for each in found]


async def test_calls_that_are_left_or_not_sent(tmp_path: Path, nursery: trio.Nursery) -> None:
    stage, audit = OperatorStage(), audit_below(tmp_path)
    client = await stage.connect(nursery, audit=audit)
    await client.request("call", {"server": "alpha", "tool": "missing"})
    await client.ask("call", {"server": "alpha", "tool": "echo"}, request_id=2)
    await stage.alpha.wait_sent()
    stage.alpha.up = stage.alpha.can_wake = False
    await client.request("call", {"server": "alpha", "tool": "add"}, request_id=3)
    audit.keys, audit.problem = AuditKeys(fail=AuditFailure.CLOSED), "No space left on device"
    await client.request("call", {"server": "alpha", "tool": "add"}, request_id=4)
    client.close()
    await stage.alpha.wait_cancelled()
    assert await records(audit) == [
        ("refused", "alpha", "missing", "UnknownTool"),
        ("refused", "alpha", "add", "UpstreamUnavailable"),
        ("refused", "alpha", "add", "AuditUnavailable"),
        ("sent", "alpha", "echo", "cancelled"),
    ]


async def test_a_command_that_its_operator_leaves_may_be_done(tmp_path: Path, nursery: trio.Nursery) -> None:
    audit, begun = audit_below(tmp_path), trio.Event()

    async def reload() -> Plan:
        begun.set()
        return await trio.sleep_forever()

    client = await OperatorStage().connect(nursery, reload=reload, audit=audit)
    await client.ask("reload", {}, request_id=1)
    await begun.wait()
    client.close()
    await wait_all_tasks_blocked()
    assert await records(audit) == [("command", None, "reload", "abandoned")]


async def test_records_name_the_operators_process_and_the_server_of_a_reload(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    audit = audit_below(tmp_path)
    client = await OperatorStage().connect(nursery, pid=4711, audit=audit)
    await client.request("reload", {"server": "alpha", "change": "set"})
    await client.request("call", {"server": "alpha", "tool": "missing"}, request_id=2)
    await client.request("status", {}, request_id=3)
    told = [("command", "alpha", "reload", "AssertionError"), ("refused", "alpha", "missing", "UnknownTool")]
    assert await records(audit) == told
    found = [msgspec.json.decode(entry.line) for entry in read(audit.root, AuditQuery())]
    assert [each["pid"] for each in found] == [4711, 4711]
