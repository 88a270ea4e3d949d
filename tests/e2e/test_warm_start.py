"""What is known of servers outlives the daemon, and servers that list nothing; epochs count on."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from daemon.catalog.entry import EMPTIED
from tests.e2e.harness import Daemon, changeable, running, scripted, serving
from tests.e2e.loading import META_TOOLS
from tests.scripted_server import tool
from tests.waiting import eventually

READ = tool("read", inputSchema={"type": "object", "properties": {"path": {"type": "string"}}})
LOOK = tool("look")
SURFACES = ("load", "category", "browse", "search", "full")
PROFILES = {"default": {"surface": "load"}, **{name: {"surface": name} for name in SURFACES}}


def of(**servers: Any) -> dict[str, Any]:
    return {"mcpServers": servers, "profiles": PROFILES}


def program(path: Path, server: dict[str, Any]) -> dict[str, Any]:
    """The server as a program of its own, which can be taken away."""
    words = " ".join("'" + word.replace("'", "'\\''") + "'" for word in (server["command"], *server["args"]))
    path.write_text(f"#!/bin/sh\nexec {words}\n")
    path.chmod(0o755)
    return {"command": str(path)}


def epoch(daemon: Daemon, server: str = "s") -> int:
    found: int = daemon.ask("status")["servers"][server]["epoch"]
    return found


# --- before any server is up ---------------------------------------------------------------------------------


def test_last_known_tools_are_shown_on_every_surface_while_no_server_comes_up(tmp_path: Path) -> None:
    server = program(tmp_path / "serve", scripted(tools=[READ, LOOK]))
    with serving(of(s=server)) as daemon:
        with daemon.client().hello(session="k") as client:
            schema = client.load("read")["read"]
        before = epoch(daemon)
        daemon.stop(signal.SIGKILL)
        (tmp_path / "serve").unlink()
        daemon.start()
        with daemon.client().hello(profile="category") as client:
            told = client.get("s")
            assert told["tools"]["read"] == schema
            assert told["meta"]["unavailableTools"] == ["read", "look"]
            assert told["meta"]["epoch"] == before
            assert told["meta"]["unavailableServers"]["s"]["state"] in {
                "starting",
                "stopped",
                "failed",
                "backoff",
            }
            assert client.run("s", "read")["structuredContent"]["error"]["code"] == "UpstreamUnavailable"
        with daemon.client().hello(profile="browse") as client:
            told = client.call("get_tools", {"category": "s"})["structuredContent"]
            assert (told["tools"]["read"], told["meta"]["unavailableTools"]) == (schema, ["read", "look"])
        with daemon.client().hello(profile="search") as client:
            found = client.call("search_tools", {"query": "read"})["structuredContent"]["tools"]
            assert [(each["name"], each["server"]) for each in found] == [("read", "s")]
        with daemon.client().hello(profile="full") as client:
            assert client.listed() == ["mcpd_status", "read", "look"]
        with daemon.client().hello(session="k") as client:
            assert client.listed() == [*META_TOOLS, "read"]
            refused = client.call("read", {})["structuredContent"]["error"]
            assert refused["code"] == "UpstreamUnavailable"
            assert client.load("look")["look"]["inputSchema"] == LOOK["inputSchema"]
        assert {each["status"] for each in daemon.loaded("k").values()} == {"valid"}


def test_the_next_daemon_knows_the_era_and_which_lists_are_empty(tmp_path: Path) -> None:
    dies_of_the_probe = {"server/discover": {"exit": 3, "never": True}}
    at_once = {"base": 0.01, "floor": 0.0}
    server = program(tmp_path / "serve", scripted(tools=[READ], on=dies_of_the_probe)) | {"restart": at_once}
    with running(of(s=server)) as daemon:
        # The first death may have had another reason: it is of the second that the era is known.
        for restarts in (1, 1, 0):
            assert daemon.ready()["s"]["restarts"] == restarts
            daemon.restart()
        daemon.stop()
        (tmp_path / "serve").write_text("#!/bin/sh\nexec sleep 1000\n")
        daemon.start()
        with daemon.client().hello(profile="full") as client:
            assert client.listed() == ["read"]
            for kind in ("prompts", "resources"):
                assert client.ask(f"{kind}/list")["result"][kind] == []
        assert daemon.ask("status")["servers"]["s"]["state"] == "starting"


def test_a_server_of_another_configuration_has_none_of_the_old_tools() -> None:
    config = of(s=changeable(READ), t=changeable(LOOK))
    with serving(config) as daemon:
        with daemon.client().hello(session="k") as client:
            client.load("read", "look")
        was = epoch(daemon)
        daemon.stop()
        other = {**config["mcpServers"]["s"], "command": "/nonexistent/server"}
        daemon.config.write_text(json.dumps(of(s=other, t=config["mcpServers"]["t"])))
        daemon.start()
        with daemon.client().hello(profile="category") as client:
            assert client.get("s")["tools"] == {}
            assert client.get("t")["tools"].keys() == {"set_tools", "announce", "look"}
        assert epoch(daemon) >= was
        # The old one comes back: what it listed is still known.
        daemon.stop()
        daemon.config.write_text(json.dumps(config))
        daemon.start()
        with daemon.client().hello(session="k") as client:
            assert client.listed() == [*META_TOOLS, "read", "look"]


# --- failed and empty lists ----------------------------------------------------------------------------------


FAILED = {"on": {"tools/list": {"error": {"code": -32000, "message": "the backend is away"}}}}
EMPTY: dict[str, Any] = {"tools": []}


@pytest.mark.parametrize(
    ("later", "problem"),
    [(FAILED, "the backend is away"), (EMPTY, EMPTIED.format("tool"))],
    ids=["failed", "empty"],
)
@pytest.mark.parametrize("killed", ["server", "daemon"])
def test_a_server_that_comes_back_without_a_list_keeps_its_tools(
    tmp_path: Path, later: dict[str, Any], problem: str, killed: str
) -> None:
    script = {"count": str(tmp_path / "count"), "runs": [{"tools": [READ, LOOK]}, later]}
    with running(of(s=scripted(**script))) as daemon, daemon.client().hello(session="k") as one:
        pid = daemon.ready()["s"]["pid"]
        one.load("read")
        before = epoch(daemon)
        if killed == "server":
            daemon.ask("restart", server="s")
            assert daemon.ask("status")["servers"]["s"]["pid"] != pid
        else:
            daemon.restart()
        shown = eventually(lambda: daemon.ask("status")["servers"]["s"]["listingError"], daemon.said)
        assert problem in shown
        assert problem in daemon.ask("refresh", server="s")["servers"]["s"]["problem"]
        assert epoch(daemon) == before
        with daemon.client().hello(profile="category") as client:
            assert client.get("s")["tools"].keys() == {"read", "look"}
        with daemon.client().hello(session="k") as client:
            assert client.listed() == [*META_TOOLS, "read"]
        assert daemon.loaded("k")["s/read"]["status"] == "valid"


# --- epochs --------------------------------------------------------------------------------------------------
