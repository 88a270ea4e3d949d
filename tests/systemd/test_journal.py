"""What happened, looked up in systemd's journal by the fields of its entries."""

from __future__ import annotations

import json
import os
import re
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.systemd.machine import FRONT, MEMBER, knock, run
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.systemd.machine import Service


def entries(*fields: str, pid: int) -> list[dict[str, Any]]:
    """The entries of one daemon that have these fields, oldest first."""
    found = run("journalctl", "-o", "json", f"_PID={pid}", *fields).stdout
    return [json.loads(line) for line in found.splitlines()]


def test_a_servers_events_are_found_by_its_name_with_run_cause_and_details(service: Service) -> None:
    child = service.ready("one")["one"]["pid"]
    os.kill(child, signal.SIGKILL)
    of_one = partial(entries, "MCPD_SERVER=one", pid=service.pid)
    eventually(lambda: [each["MCPD_EVENT"] for each in of_one()].count("ready") >= 2, service.said)

    found = of_one()
    assert [each["MCPD_EVENT"] for each in found[:5]] == ["started", "ready", "ended", "started", "ready"]
    [ended] = entries("MCPD_SERVER=one", "MCPD_EVENT=ended", "MCPD_CAUSE=killed", pid=service.pid)
    assert (ended["MCPD_RUN"], ended["PRIORITY"]) == ("1", "4")
    assert ended["MESSAGE"].startswith("one: ended after ")
    assert json.loads(found[1]["MCPD_DETAILS"])["pid"] == child
    assert json.loads(found[4]["MCPD_DETAILS"])["awaySince"] > 0
    assert {each["PRIORITY"] for each in found if each is not ended and each["MCPD_EVENT"] != "ended"} == {"6"}


def test_a_refused_user_is_found_by_the_kind_of_event(service: Service) -> None:
    knock(MEMBER, FRONT)
    refused = partial(entries, "MCPD_EVENT=refused", pid=service.pid)
    [told] = eventually(refused, service.said)
    assert told["PRIORITY"] == "4"
    assert f"uid {MEMBER}" in told["MESSAGE"]
    assert "MCPD_SERVER" not in told


def test_the_head_of_the_audit_is_in_the_journal_and_vouches_for_its_records(service: Service) -> None:
    service.ready("one")
    heads = partial(entries, "SYSLOG_IDENTIFIER=mcpd-audit", pid=service.pid)
    first = eventually(heads, service.said)[0]
    assert first["MESSAGE"].startswith(f"audit head {first['MCPD_AUDIT_SEQ']} {first['MCPD_AUDIT_HEAD']} of ")
    told = run("mcpd", "audit", "verify", "--state-dir", "/var/lib/mcpd", check=False)
    assert told.returncode == 0, told
    assert re.search(r"the journal: [1-9]", told.stdout), told.stdout
