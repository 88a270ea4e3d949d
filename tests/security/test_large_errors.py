"""What servers refuse with may be as long as a message: what is shown, kept and logged of it is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from daemon.safety.redact import CUT, REASON, SHOWN
from tests.e2e.harness import running, scripted
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

LONG = "word " * 600_000
"""3 MB: clients, who send it here, are let say 4 MiB."""

ANSWER = 8 * SHOWN
"""Bytes of an answer with an error in it: the message is in there three times, the data once."""

LOGGED = 64 * 1024
"""Bytes of a short log."""


def test_a_long_error_is_cut_for_the_model_and_says_so() -> None:
    with running({"mcpServers": {"s": scripted(tools=["act", "echo"])}}) as daemon, daemon.client() as client:
        daemon.ready("s")
        said = client.run("s", "act", error={"code": -7, "message": LONG})
        assert said["isError"]
        assert len(json.dumps(said)) < ANSWER
        error = said["structuredContent"]["error"]["upstream"]
        assert error["code"] == -7
        assert error["message"].endswith(CUT)
        said = client.run("s", "act", error={"code": -7, "message": "short", "data": {"seen": [LONG]}})
        assert len(json.dumps(said)) < ANSWER
        error = said["structuredContent"]["error"]["upstream"]
        assert error["message"] == "short"
        assert error["data"].startswith('{"seen":')
        assert error["data"].endswith(CUT)
        assert not client.run("s", "echo")["isError"]
        assert len(daemon.said()) < LOGGED


def test_a_long_refusal_to_list_and_to_start_is_cut_in_status_and_log(tmp_path: Path) -> None:
    refused = {"error": {"code": -7, "message": LONG * 3}}
    servers = {}
    for method in ("initialize", "tools/list"):
        name = method.partition("/")[0]
        script = tmp_path / name
        script.write_text(json.dumps({"on": {method: refused}}))
        servers[name] = scripted()
        servers[name]["args"][-1] = f"@{script}"
    with running({"mcpServers": servers}) as daemon:

        def reasons() -> list[str]:
            status = daemon.ask("status")["servers"]
            return [each["reason"] for each in status.values() if "word word" in each["reason"]]

        eventually(lambda: len(reasons()) == len(servers), daemon.said)
        for reason in reasons():
            assert reason.endswith(CUT)
            assert len(reason) <= REASON + 100
        assert len(daemon.said()) < LOGGED
