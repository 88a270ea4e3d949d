"""Why a server was away last night: it is killed, so is mcpd, and the next morning both are told."""

import json
import os
import shlex
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.e2e.harness import Daemon, running, scripted
from tests.waiting import eventually

CONFIG: dict[str, Any] = {"mcpServers": {"git": scripted(), "time": scripted()}}


def told(daemon: Daemon, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.run("events", "--json", *words).splitlines()]


def kinds(daemon: Daemon, server: str) -> list[str]:
    return [event["kind"] for event in daemon.ask("events", server=server)["events"]]


def starts_on_disk(daemon: Daemon) -> int:
    with closing(sqlite3.connect(daemon.state)) as database:
        found: int = database.execute("SELECT count(*) FROM events WHERE kind = 'daemon-started'").fetchone()[0]
        return found


def test_the_next_daemon_says_why_a_server_was_away() -> None:
    with running(CONFIG) as daemon:
        pid = daemon.ready()["git"]["pid"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: kinds(daemon, "git").count("ready") == 2, daemon.said)
        daemon.ask("restart", server="time")
        before = told(daemon)[-1]["daemon"]
        daemon.restart()
        daemon.ready()

        [ended, *_] = [event for event in told(daemon, "git", "--since", "12h") if event["kind"] == "ended"]
        assert (ended["cause"], ended["causeData"], ended["run"]) == ("killed", {"signal": "SIGKILL"}, 1)
        assert ended["daemon"] == before
        assert "It was killed outright (SIGKILL)" in daemon.run("events", "git", "--since", "12h")
        assert "restarted" in kinds(daemon, "time")
        of_mcpd = [event["kind"] for event in told(daemon) if event["server"] is None]
        assert of_mcpd[-3:] == ["signal", "daemon-stopped", "daemon-started"]
        assert not told(daemon, "--kind", "daemon-started")[-1]["details"].get("unclean")

        # What has happened is on disk half a second later.
        eventually(lambda: starts_on_disk(daemon) == 2, daemon.said)
        daemon.restart(signal.SIGKILL)
        daemon.ready()
        assert told(daemon, "--kind", "daemon-started")[-1]["details"]["unclean"] is True


def test_an_outage_goes_on_while_mcpd_is_stopped(tmp_path: Path) -> None:
    program, server = tmp_path / "late", scripted()
    with running({"mcpServers": {"late": {**server, "command": str(program)}}}) as daemon:
        eventually(lambda: "ended" in kinds(daemon, "late"), daemon.said)
        daemon.stop()
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(server["command"])} "$@"\n')
        program.chmod(0o700)
        daemon.start()
        daemon.ready("late")
        [ended, *_], [ready] = (told(daemon, "late", "--kind", kind) for kind in ("ended", "ready"))
        away = ended["details"]["awaySince"]
        assert (ready["details"]["awaySince"], ready["details"]["awayOverRestart"]) == (away, True)


def test_the_log_of_a_server_that_wrote_nothing_still_tells_what_happened() -> None:
    with running({"mcpServers": {"git": scripted()}}) as daemon:
        os.kill(daemon.ready()["git"]["pid"], signal.SIGKILL)
        eventually(lambda: kinds(daemon, "git").count("ready") == 2, daemon.said)
        assert "-- git: ended after " in daemon.run("logs", "git")
        assert "ended" not in daemon.run("logs", "git", "--no-events")


def test_each_thing_that_changes_a_server_is_told_as_what_it_was() -> None:
    limited = {**scripted(), "limits": {"memoryBytes": 1024 * 1024}}
    config = {"mcpServers": {"greedy": limited, "time": scripted(), "old": scripted()}}
    with running(config) as daemon:
        daemon.ready("time", "old")
        eventually(lambda: "ended" in kinds(daemon, "greedy"), daemon.said)
        [ended, *_] = [event for event in told(daemon, "greedy") if event["kind"] == "ended"]
        assert (ended["cause"], ended["causeData"]["limit"]) == ("memory-ceiling", 1024 * 1024)
        assert ended["causeData"]["used"] > 1024 * 1024

        changed = {"mcpServers": {"greedy": limited, "time": {**scripted(), "env": {"A": "1"}}}}
        daemon.config.write_text(json.dumps(changed))
        daemon.run("reload")
        daemon.ready("time")
        [restarted] = [event for event in told(daemon, "time") if event["kind"] == "restarted"]
        assert restarted["details"]["by"] == "configuration"
        [reloaded] = told(daemon, "--kind", "reloaded")
        assert (reloaded["details"]["restarted"], reloaded["details"]["removed"]) == (["time"], ["old"])

        daemon.config.write_text("{")
        assert daemon.outcome("reload").returncode != 0
        assert "line 1" in told(daemon, "--kind", "reloaded")[-1]["text"]

        with daemon.client().hello(session="maria") as client:
            client.greet()
            client.ask("tools/list")
            daemon.run("disable", "time/echo")
        assert [event["kind"] for event in told(daemon, "--session", "maria")][:1] == ["session-began"]
        [switched] = told(daemon, "--kind", "switched")
        assert (switched["server"], switched["details"]["on"]) == ("time", False)
