"""Why servers of a real daemon are down, as `mcpd status --json` has it: a cause, its data, and what helps."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import pytest

from tests.e2e import harness
from tests.waiting import eventually

pytestmark = pytest.mark.e2e

running = partial(harness.running, forked=False)
"""A daemon that is run as users run it."""

FAILS = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}
CONFIG = {
    "mcpServers": {
        "missing": {"command": "no-such-program"},
        "fails": {**FAILS, "restart": {"base": 300, "cap": 300}},
        "loops": {**FAILS, "restart": {"base": 0.01, "floor": 0, "intensity": 1}},
        "socket": {"type": "unix", "url": "/nowhere/mcp.sock"},
        "faulty": {"command": "x", "enabled": "yes"},
        "waiting": {"command": "x", "env": {"KEY": "${SET_NOWHERE}"}},
    }
}
STATES = {
    "missing": "failed",
    "fails": "backoff",
    "loops": "crashloop",
    "socket": "backoff",
    "faulty": "failed",
    "waiting": "failed",
}


def test_a_status_has_the_cause_of_each_server_that_is_down_and_so_has_the_refusal_of_a_call() -> None:
    with running(CONFIG) as daemon:

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = daemon.ask("status")["servers"]
            return found if {name: each["state"] for name, each in found.items()} == STATES else None

        eventually(look, daemon.said)
        servers = daemon.status()["servers"]
        with daemon.client() as client:
            refused = client.run("missing", "any")
            faulty = client.run("faulty", "any")
    told = {name: (each["cause"], each["causeData"]) for name, each in servers.items()}
    assert told["missing"] == ("command-not-found", {"command": "no-such-program"})
    assert told["fails"] == told["loops"] == ("exited", {"status": 3})
    assert told["socket"][0] == "socket-missing"
    assert "`command -v no-such-program`" in servers["missing"]["helps"]
    assert "exit status 3" in servers["loops"]["happened"]
    assert told["faulty"][0] == told["waiting"][0] == "configuration"
    assert told["waiting"][1]["variable"] == "SET_NOWHERE"
    assert "expected true or false" in servers["faulty"]["reason"]
    assert faulty["structuredContent"]["error"]["cause"] == "configuration"
    assert refused["structuredContent"]["error"]["cause"] == "command-not-found"
