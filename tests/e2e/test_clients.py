"""Clients that nobody here wrote, through the socket and through `mcpd connect`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness import MCP1, NODE, ROOT, Daemon, program, running
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

SCRIPTS = Path(__file__).parent / "clients"
TYPESCRIPT_SDK = NODE / "@modelcontextprotocol" / "sdk"

CLIENTS = {
    "python-sdk-2-auto": [sys.executable, str(SCRIPTS / "sdk2.py"), "auto"],
    "python-sdk-2-legacy": [sys.executable, str(SCRIPTS / "sdk2.py"), "legacy"],
    "python-sdk-2-modern": [sys.executable, str(SCRIPTS / "sdk2.py"), "2026-07-28"],
    "python-sdk-1": [str(MCP1), str(SCRIPTS / "sdk1.py")],
    "typescript-sdk": ["node", str(SCRIPTS / "typescript.mjs"), str(TYPESCRIPT_SDK)],
}

SEEN = {
    "tools": ["get-category-tools", "call-category-tool", "call-read-only-tool"],
    "described": ["convert_time", "get_current_time"],
    "zone": "UTC",
    "refused": "UnknownCategory",
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    config = {
        "mcpServers": {"time": {"command": program("mcp-server-time")}},
        "categories": {"clock": {"description": "What time it is.", "server": "time"}},
    }
    with running(config) as daemon:
        daemon.ready()
        yield daemon


@pytest.mark.parametrize("way", ["socket", "connect"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_real_client_lists_describes_calls_and_is_refused(daemon: Daemon, client: str, way: str) -> None:
    if way == "socket":
        where = ["socket", str(daemon.socket)]
    else:
        where = ["stdio", *daemon.command("connect", "--socket", str(daemon.socket))]

    done = subprocess.run(
        [*CLIENTS[client], *where],
        cwd=ROOT,
        env={**daemon.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )

    assert done.returncode == 0, done.stderr + daemon.said()
    assert json.loads(done.stdout) == SEEN


def test_one_server_process_serves_every_client(daemon: Daemon) -> None:
    before = daemon.ask("status")["servers"]["time"]

    with daemon.client() as one, daemon.client() as two:
        assert one.run("clock", "get_current_time", timezone="UTC")["isError"] is False
        assert two.run("clock", "get_current_time", timezone="UTC")["isError"] is False
        after = daemon.ask("status")

    assert after["servers"]["time"]["pid"] == before["pid"]
    assert after["servers"]["time"]["calls"] == before["calls"] + 2
    assert len(after["sessions"]) == 2
