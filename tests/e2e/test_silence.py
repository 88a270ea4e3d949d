"""A server that is stopped: it is said so while it lasts, to whoever asks and to whoever waits for it."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any

import pytest

from tests.e2e.harness import Daemon, running, scripted
from tests.waiting import eventually

pytestmark = pytest.mark.e2e

PINGS = {"pingInterval": 0.3, "ping": 0.3, "missedPings": 100_000}


def one(daemon: Daemon, name: str = "s", code: int | None = None) -> dict[str, Any]:
    """What `mcpd status SERVER` tells a program."""
    told: dict[str, Any] = json.loads(daemon.run("status", name, "--json", check=code))
    return told


def test_a_stopped_server_is_degraded_and_ready_again_and_a_call_to_it_names_it() -> None:
    with running({"mcpServers": {"s": {**scripted(), "timeouts": PINGS}}}) as daemon:
        daemon.ready("s")
        pid = one(daemon, code=0)["server"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: one(daemon)["server"]["state"] == "degraded")
        told = one(daemon, code=1)["server"]
        assert told["cause"] == "unanswered-pings"
        assert told["pings"]["unanswered"] >= 1
        assert "kill -CONT" in told["helps"]
        assert "s: degraded\n  answers no pings (" in daemon.run("status", check=1)
        done = daemon.outcome("call", "s/echo", "--timeout", "1")
        assert done.returncode == 1
        assert "server s did not answer within 1 s (--timeout); the daemon did. It is degraded: " in done.stderr
        assert f"pid {pid}" in done.stderr
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: one(daemon)["server"]["state"] == "ready")
        assert one(daemon)["server"]["pid"] == pid
        assert "{}" in daemon.run("call", "s/echo")


def test_a_call_that_a_stopped_server_has_is_shown_with_its_age_and_is_answered_when_it_goes_on() -> None:
    with running({"mcpServers": {"s": {**scripted(), "timeouts": PINGS}}}) as daemon:
        daemon.ready("s")
        pid = one(daemon)["server"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        answers: list[str] = []
        caller = threading.Thread(target=lambda: answers.append(daemon.run("call", "s/echo")))
        caller.start()
        eventually(lambda: one(daemon)["calls"] and one(daemon)["server"]["state"] == "degraded")
        shown = one(daemon)
        (call,) = shown["calls"]
        assert (call["tool"], call["waitsFor"], shown["server"]["inFlight"]) == ("echo", "answer", 1)
        assert "while it works on 1 call" in shown["server"]["reason"]
        assert "Calls in flight\n" in daemon.run("status", "s", check=1)
        os.kill(pid, signal.SIGCONT)
        caller.join(60)
        assert "{}" in answers[0]
        eventually(lambda: one(daemon)["server"]["state"] == "ready")
