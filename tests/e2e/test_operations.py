"""Operators change a running daemon: real commands, real servers, a real client that goes on all the while."""

import json
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from tests.e2e.harness import Daemon, running, scripted
from tests.houses import ECHO, LISTING_SERVER
from tests.waiting import eventually


def of(**servers: Any) -> dict[str, Any]:
    return {"mcpServers": servers}


def states(daemon: Daemon) -> dict[str, str]:
    return {name: server["state"] for name, server in daemon.ask("status")["servers"].items()}


def pids(daemon: Daemon) -> dict[str, int]:
    return {name: server["pid"] for name, server in daemon.ask("status")["servers"].items()}


def settled(daemon: Daemon) -> None:
    """Wait until no server is on its way."""
    eventually(lambda: not {"queued", "starting", "stopped", "stopping"} & set(states(daemon).values()))


def test_a_reload_touches_one_server_of_twenty() -> None:
    servers: dict[str, Any] = {f"s{number}": ECHO for number in range(20)}
    with running(of(**servers)) as daemon:
        settled(daemon)
        before = pids(daemon)
        servers["s3"] = {**ECHO, "env": {"A": "1"}}
        daemon.config.write_text(json.dumps({**of(**servers), "limits": {"starts": 2}}))
        with daemon.client() as client:
            said = daemon.run("reload")
            waits = "needs a new start: limits (`mcpd start --restart`)"
            assert said == f"restarted: s3; unchanged: 19; {waits}\ns3: ready\n"
            assert not client.run("s4", "echo", n=1).get("isError")
        after = pids(daemon)
        assert {name for name in servers if before[name] != after[name]} == {"s3"}


def test_servers_come_go_fail_and_are_switched_by_the_file() -> None:
    with running(of(a=ECHO, b=ECHO)) as daemon:
        settled(daemon)
        nowhere = {"command": "/nowhere/no-such-server"}
        daemon.config.write_text(json.dumps(of(b={**ECHO, "enabled": False}, c=ECHO, bad=nowhere)))
        said = daemon.run("reload")
        assert said.startswith(
            "added: c, bad; removed: a; switched off: b; unchanged: 0\nc: ready\nbad: failed"
        )
        assert states(daemon) == {"b": "disabled", "c": "ready", "bad": "failed"}


def test_a_signal_and_a_watched_file_reload_as_well() -> None:
    with running(of(a=ECHO)) as daemon:
        settled(daemon)
        daemon.config.write_text(json.dumps({**of(b=ECHO), "watch": True}))
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        eventually(lambda: set(states(daemon)) == {"b"})
        daemon.config.write_text(json.dumps({**of(c=ECHO), "watch": True}))
        eventually(lambda: set(states(daemon)) == {"c"})


def test_a_refresh_shows_what_came_and_went(tmp_path: Path) -> None:
    listing = tmp_path / "tools.json"

    def lists(*names: str) -> None:
        listing.write_text(json.dumps([{"name": name, "inputSchema": {"type": "object"}} for name in names]))

    lists("one", "two")
    server = {"command": sys.executable, "args": ["-S", "-E", "-c", LISTING_SERVER, str(listing)]}
    with running(of(a=server, bad={"command": "/nowhere/no-such-server"})) as daemon:
        settled(daemon)
        assert daemon.run("refresh", "a") == "a: epoch 1, 2 tools; as before\n"
        lists("two", "three", "four")
        assert daemon.run("refresh") == "a: epoch 2, 3 tools; came: three, four; went: one\n"
        assert "bad: " in daemon.run("refresh", "bad", check=1)
        daemon.run("refresh", "nobody", check=1)


def test_a_server_that_fails_the_same_way_again_and_again_is_told_of_once() -> None:
    """Its traceback, whose numbers differ each time, stays in `mcpd logs`."""
    program = "import os\ndef fail(): raise RuntimeError(f'no licence for {os.getpid()}')\nfail()"
    broken = {
        "command": sys.executable,
        "args": ["-c", program],
        "restart": {"base": 0.1, "floor": 0.1, "cap": 0.1},
    }
    with running({"mcpServers": {"broken": broken}}) as daemon:
        eventually(lambda: daemon.ask("status")["servers"]["broken"]["restarts"] > 5, daemon.said)
        said = [line for line in daemon.said().splitlines() if "[server=broken]" in line]
        kept = daemon.run("logs", "broken")
    assert len([line for line in said if "Traceback" in line]) == 1
    assert len([line for line in said if "started" in line]) == 1
    ends = [line for line in said if " ended: exited with status 1" in line]
    # The third is said a minute later.
    assert 2 <= len(ends) <= 3
    assert "as the one before it" in ends[1]
    assert "`mcpd logs broken` has them" in ends[1]
    assert kept.count("Traceback") > 5


def test_a_restart_lists_a_divided_server_whose_first_list_failed(tmp_path: Path) -> None:
    program, words = tmp_path / "server", scripted(tools=["echo"])
    with running({"mcpServers": {"s": {"command": str(program), "share": "session"}}}) as daemon:
        eventually(lambda: daemon.status()["servers"]["s"]["cause"] == "command-not-found", daemon.said)
        assert "no instance runs (command not found" in daemon.run("restart", "s")
        program.write_text(f"#!/bin/sh\nexec {shlex.join([words['command'], *words['args']])}\n")
        program.chmod(0o700)
        assert daemon.run("restart", "s") == "s: no instance runs; each starts at its first use\n"
        assert daemon.status()["servers"]["s"]["tools"] == 1
