"""Who ran a tool, and did somebody edit the record: asked of a real daemon, and after its end."""

import json
import os
from pathlib import Path
from typing import Any

from tests.e2e.harness import INITIALIZE, Daemon, running, scripted, serving
from tests.e2e.raw_http import RawHttp, listening, message, request
from tests.waiting import eventually

CONFIG: dict[str, Any] = {"mcpServers": {"git": scripted(tools=["echo", "fail"])}}


def told(daemon: Daemon, *words: str) -> list[dict[str, Any]]:
    """The records that fit."""
    return [json.loads(line) for line in daemon.run("audit", "--json", *words).splitlines()]


def verdict(daemon: Daemon, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit status of `mcpd audit verify`, and its report."""
    done = daemon.outcome("audit", "verify", "--json", *words)
    return done.returncode, json.loads(done.stdout)


def test_a_call_is_found_and_an_edit_or_a_cut_end_is_too() -> None:
    with serving(CONFIG) as daemon:
        for word in ("one", "two"):
            daemon.run("call", "git/echo", f"text={word}")
        eventually(lambda: len(told(daemon, "git/echo", "--since", "1h")) == 2, daemon.said)
        for record in told(daemon, "git/echo"):
            assert (record["decision"], record["outcome"], len(record["argumentsSha256"])) == ("sent", "ok", 64)
            assert record["principal"] == f"uid {os.getuid()} (terminal)"
        assert "git/echo" in daemon.run("audit", "--decision", "sent")
        event = json.loads(daemon.run("audit", "git/echo", "--format", "ocsf", "--limit", "1"))
        assert event["class_uid"] == 6003
        status, report = verdict(daemon)
        assert (status, report["intact"], report["notHere"]) == (0, True, [])
        daemon.stop()

        status, report = verdict(daemon)
        (chain,) = report["chains"]
        assert (status, report["compared"]["the store"]) == (0, 1)
        assert told(daemon)[-1]["decision"] == "ended"
        daemon.start()
        daemon.ready()
        # The last daemon's last head is in the store.
        status, report = verdict(daemon)
        assert (status, report["compared"]["the store"]) == (0, 1)
        assert report["chains"][0]["vouched"] >= chain["last"]

        (file,) = Path(report["chains"][0]["directory"]).glob("*.jsonl")
        whole = file.read_bytes()
        file.write_bytes(whole.replace(b'"outcome":"ok"', b'"outcome":"no"', 1))
        status, report = verdict(daemon)
        assert (status, f"{file} line " in report["chains"][0]["faults"][0]) == (1, True)
        file.write_bytes(b"".join(whole.splitlines(keepends=True)[: chain["last"] - 2]))
        status, report = verdict(daemon)
        assert (status, "was cut off" in report["chains"][0]["faults"][0]) == (1, True)
        file.write_bytes(whole)
        daemon.stop()
        file.write_bytes(b"".join(whole.splitlines(keepends=True)[: chain["last"] - 2]))
        daemon.start()
        daemon.ready()
        # Nor is it forgotten by the next daemon, which copies a head of its own.
        status, report = verdict(daemon)
        assert (status, "changed or removed" in report["chains"][0]["faults"][-1]) == (1, True)


def test_connections_that_were_refused_before_a_stop_are_counted() -> None:
    port, listen = listening()
    with running({**CONFIG, "listen": listen}) as daemon:
        for _ in range(3):
            with RawHttp(port) as http:
                http.send(request(body=message("initialize", INITIALIZE), Authorization="Bearer wrong"))
                assert http.status() == 401
        daemon.stop()
        found = told(daemon, "--decision", "refused")
        assert [each["details"]["count"] for each in found] == [1, 2]
        assert told(daemon)[-1]["decision"] == "ended"
