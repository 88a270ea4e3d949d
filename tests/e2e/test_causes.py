"""Why servers of a real daemon are down, as `mcpd status --json` has it: a cause, its data, and what helps."""

import json
import sys
from typing import Any

from tests.e2e.harness import Daemon, running, scripted
from tests.pages import Page, site
from tests.waiting import eventually

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


WANTS = "It needs the environment variable DATABASE_URL, which is not set for it."
REFUSES = "requires credentials: none were sent, or they are wrong or expired (HTTP 401)."


class Unauthorized(Page):
    """Answers 401 to everything."""

    def do_POST(self) -> None:
        """Refuse."""
        self.say(status=401)

    do_GET = do_DELETE = do_POST


def test_models_are_told_on_every_surface_why_a_server_is_down_and_what_helps() -> None:
    dies = "import sys; sys.exit('DATABASE_URL is required')"
    with site(Unauthorized) as address:
        servers = {
            "up": scripted(tools=["echo"]),
            "broken": {"command": sys.executable, "args": ["-c", dies], "restart": {"base": 300, "cap": 300}},
            "notion": {"url": f"{address}/mcp", "oauth": False},
        }
        with running({"mcpServers": servers}) as daemon:

            def told(tool: str, arguments: dict[str, Any], **hello: Any) -> dict[str, Any]:
                with daemon.client().hello(**hello) as client:
                    greeting = client.greet()
                    tools = client.ask("tools/list")["result"]["tools"]
                    listed = {each["name"]: each["description"] for each in tools}
                    return {**greeting, "tools": listed, "said": client.call(tool, arguments)}

            eventually(lambda: set(states(daemon)) == {"ready", "backoff", "needs_auth"}, daemon.said)
            # Its last words may be read a moment after its end.
            eventually(lambda: daemon.ask("status")["servers"]["broken"]["happened"] == WANTS, daemon.said)
            status = daemon.ask("status")["servers"]
            full = told("mcpd_status", {}, surface="full")
            category = told("get-category-tools", {"category": "broken"}, surface="category")
            asked = {"category": "notion", "name": "x", "args": {}}
            called = told("call-category-tool", asked, surface="category")
            itself = told("mcpd_status", {}, servers=["broken"])
            shown = daemon.run("status", check=None)

    assert (status["broken"]["happened"], status["notion"]["cause"]) == (WANTS, "unauthorized")
    assert WANTS in shown
    for text in (full["instructions"], full["tools"]["mcpd_status"], full["said"]["content"][0]["text"]):
        assert f"{WANTS} What helps (tell the user): `mcpd set" in text
        assert REFUSES in text
    assert list(full["tools"]) == ["mcpd_status", "echo"]
    assert "mcpd_status" not in category["tools"]
    known = category["said"]["structuredContent"]["meta"]["unavailableServers"]["broken"]
    assert (known["happened"], known["helps"]) == (WANTS, status["broken"]["helps"])
    assert "`mcpd set notion headers.Authorization`" in called["said"]["content"][0]["text"]
    assert itself["instructions"].startswith(f"broken: down now. {WANTS}")
    assert list(itself["tools"]) == ["mcpd_status"]
    assert "notion" not in json.dumps(itself)


def states(daemon: Daemon) -> list[str]:
    return [each["state"] for each in daemon.ask("status")["servers"].values()]
