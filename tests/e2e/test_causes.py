"""Why servers of a real daemon are down, as `mcpd status --json` has it: a cause, its data, and what helps."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import harness
from tests.waiting import WAIT, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

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


SDK = """
import json, sys
import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main(tool, arguments, command, *words):
    async with stdio_client(StdioServerParameters(command=command, args=list(words))) as (read, write):
        async with ClientSession(read, write) as session:
            instructions = (await session.initialize()).instructions
            tools = {each.name: each.description for each in (await session.list_tools()).tools}
            said = (await session.call_tool(tool, json.loads(arguments))).model_dump(mode="json")
    print(json.dumps({"instructions": instructions, "tools": tools, "said": said}))

anyio.run(main, *sys.argv[1:])
"""
"""A client on the SDK 1.x, as an argument of its interpreter: all that it is told, and what a tool answers."""

WANTS = "It wants the environment variable DATABASE_URL, which it does not get."
REFUSES = "wants to know who calls: no credentials were sent, or wrong ones, or they have expired (HTTP 401)."


class Unauthorized(BaseHTTPRequestHandler):
    """Answers 401 to everything."""

    def do_POST(self) -> None:
        """Refuse."""
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_DELETE = do_POST  # noqa: N815 - the names that http.server looks for

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def refusing() -> Iterator[str]:
    """The url of a server that lets nobody in."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Unauthorized) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()


def test_models_are_told_on_every_surface_why_a_server_is_down_and_what_helps() -> None:
    dies = "import sys; sys.exit('DATABASE_URL is required')"
    with refusing() as url:
        servers = {
            "up": harness.scripted(tools=["echo"]),
            "broken": {"command": sys.executable, "args": ["-c", dies], "restart": {"base": 300, "cap": 300}},
            "notion": {"url": url, "oauth": False},
        }
        with running({"mcpServers": servers}) as daemon:

            def client(tool: str, arguments: dict[str, Any], *options: str) -> dict[str, Any]:
                bridge = daemon.command("connect", "--socket", str(daemon.socket), *options)
                asked = subprocess.run(
                    [str(harness.MCP1), "-c", SDK, tool, json.dumps(arguments), *bridge],
                    check=True,
                    capture_output=True,
                    text=True,
                    timeout=WAIT,
                    cwd=daemon.code,
                    env=daemon.environ,
                )
                told: dict[str, Any] = json.loads(asked.stdout)
                return told

            eventually(lambda: set(states(daemon)) == {"ready", "backoff", "needs_auth"}, daemon.said)
            status = daemon.ask("status")["servers"]
            full = client("mcpd_status", {}, "--surface", "full")
            category = client("get-category-tools", {"category": "broken"}, "--surface", "category")
            called = client(
                "call-category-tool", {"category": "notion", "name": "x", "args": {}}, "--surface", "category"
            )
            itself = client("mcpd_status", {}, "--server", "broken")
            shown = daemon.run("status", check=None)

    assert (status["broken"]["happened"], status["notion"]["cause"]) == (WANTS, "unauthorized")
    assert WANTS in shown
    for told in (full["instructions"], full["tools"]["mcpd_status"], full["said"]["content"][0]["text"]):
        assert f"{WANTS} What helps (tell the user): A server gets HOME" in told
        assert REFUSES in told
    assert list(full["tools"]) == ["mcpd_status", "echo"]
    assert "mcpd_status" not in category["tools"]
    known = category["said"]["structuredContent"]["meta"]["unavailableServers"]["broken"]
    assert (known["happened"], known["helps"]) == (WANTS, status["broken"]["helps"])
    assert '"Authorization": "Bearer ${TOKEN}"' in called["said"]["content"][0]["text"]
    assert itself["instructions"].startswith(f"broken: down now. {WANTS}")
    assert list(itself["tools"]) == ["mcpd_status"]
    assert "notion" not in json.dumps(itself)


def states(daemon: harness.Daemon) -> list[str]:
    return [each["state"] for each in daemon.ask("status")["servers"].values()]
