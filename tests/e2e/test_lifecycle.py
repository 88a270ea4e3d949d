"""Servers that die and a daemon that ends: everything comes back, nothing is left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemon.processes import proc
from tests.e2e import harness
from tests.e2e.harness import Daemon, node_server, scripted
from tests.waiting import WAIT, eventually

run_as_users_do = partial(harness.running, forked=False)
"""A daemon that is run as users run it."""
CALL = {"category": "everything", "name": "trigger-long-running-operation"}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """For tests that leave its server as it was, or another process of it."""
    servers = {"everything": node_server("server-everything"), "time": scripted()}
    with run_as_users_do({"mcpServers": servers}) as daemon:
        daemon.ready()
        yield daemon


def in_flight(daemon: Daemon) -> int:
    found: int = daemon.ask("status")["servers"]["everything"]["inFlight"]
    return found


def _call(request_id: int, arguments: dict[str, Any], token: str | int | None = None) -> bytes:
    params: dict[str, Any] = {"name": "call-category-tool", "arguments": arguments}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}).encode()


def test_a_killed_server_comes_back_by_itself_and_its_neighbour_never_notices(daemon: Daemon) -> None:
    with daemon.client() as client:
        before = daemon.ready()
        os.kill(before["time"]["pid"], signal.SIGKILL)
        assert eventually(lambda: not client.run("time", "echo", text="x")["isError"])
        after = daemon.ready()
    assert after["time"]["pid"] != before["time"]["pid"]
    assert after["time"]["restarts"] == before["time"]["restarts"] + 1
    assert after["time"]["epoch"] == before["time"]["epoch"]
    assert after["everything"]["pid"] == before["everything"]["pid"]


def test_sigterm_answers_what_is_in_flight_and_ends(daemon: Daemon) -> None:
    with daemon.client() as client:
        client.send(_call(1, {**CALL, "args": {"duration": 60, "steps": 2}}))
        eventually(lambda: in_flight(daemon) == 1)
        assert daemon.stop() == 0
        answer = client.receive()
    daemon.start()
    assert answer["result"]["structuredContent"]["error"]["code"] == "UpstreamLost"


def test_a_second_sigterm_is_no_accident() -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()"
    config = {"mcpServers": {"stubborn": {"command": "python3", "args": ["-c", stubborn]}}}
    with harness.running(config) as daemon:
        eventually(lambda: daemon.ask("status")["servers"]["stubborn"]["pid"])
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGTERM)
        # Two signals of a kind that come at once are one to the kernel.
        eventually(lambda: "going down" in daemon.said())

        assert daemon.stop() == 0
        assert "ending every server at once" in daemon.said()
        assert "Traceback" not in daemon.said()


def test_sigterm_again_and_again_to_the_very_end_is_one_clean_end() -> None:
    with run_as_users_do({"mcpServers": {}}) as daemon:
        assert daemon.process is not None
        deadline = time.monotonic() + WAIT
        while daemon.process.poll() is None:
            assert time.monotonic() < deadline, daemon.said()
            daemon.process.send_signal(signal.SIGTERM)
            # Not a flood: a hundred thousand a second would only show how deep Python's handlers nest.
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.process.wait(0.001)
        assert daemon.process.returncode == 0


def test_a_server_that_hangs_at_its_start_delays_nobody() -> None:
    silent = {"command": "sleep", "args": ["600"]}
    config = {"mcpServers": {**{f"silent-{number}": silent for number in range(6)}, "time": scripted()}}
    with harness.running(config) as daemon, daemon.client() as client:
        assert client.ask("ping")["result"] == {}
        entries = daemon.ready("time")

    assert {entries[f"silent-{number}"]["state"] for number in range(6)} <= {"queued", "starting"}


# --- what a killed daemon leaves -----------------------------------------------------------------------------


def deaf(record: Path) -> dict[str, Any]:
    """A server that ends of nothing but SIGKILL, with a grandchild in a session of its own."""
    spawned = [{"kind": "setsid", "ignore_term": True}]
    return scripted(ignore=["eof", "term"], spawn=spawned, record=str(record))


def pids(record: Path) -> list[int]:
    """The server and its grandchild, the newest of each."""
    told = [json.loads(line) for line in record.read_text().splitlines()]
    newest = {each["event"]: each["pid"] for each in told if each["event"] in {"start", "spawned"}}
    assert len(newest) == 2
    return list(newest.values())


def alive(numbers: list[int]) -> list[int]:
    seen = [proc.read(pid) for pid in numbers]
    return [process.pid for process in seen if process is not None and not process.is_dead]


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process of the same user that is nobody's server."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n", WAIT)


def killed(daemon: Daemon) -> None:
    """Kill a daemon, with a server that is deaf; that stays."""
    daemon.ready("deaf")
    assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL


def test_the_next_daemon_ends_what_a_killed_one_has_left_and_nobody_else(tmp_path: Path, stranger: int) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    with (
        run_as_users_do({"mcpServers": {"deaf": deaf(other)}}) as living,
        run_as_users_do({"mcpServers": {"deaf": deaf(own)}}) as daemon,
    ):
        living.ready("deaf")
        killed(daemon)
        left = pids(own)
        assert alive(left) == left

        daemon.start()

        assert not alive(left)
        assert daemon.ready("deaf")["deaf"]["pid"] not in left
        said = f"): server deaf: pid {', '.join(map(str, sorted(left)))}"
        assert said in daemon.said()
        assert alive([stranger, *pids(other)]) == [stranger, *pids(other)]
    assert not alive(pids(own))


def test_the_doctor_finds_what_is_left_and_ends_it_when_told_to(tmp_path: Path) -> None:
    with run_as_users_do({"mcpServers": {"deaf": deaf(tmp_path / "own")}}) as daemon:
        killed(daemon)
        left = pids(tmp_path / "own")

        told = daemon.run("doctor", check=None)
        assert "left running by a killed daemon" in told
        assert all(f"pid {pid}" in told for pid in left)
        assert alive(left) == left

        told = daemon.run("doctor", "--end-leftovers", check=None)
        assert "Ended" in told
        assert not alive(left)
        assert "No killed daemon has left anything running." in daemon.run("doctor", check=None)
        daemon.start()


def test_instances_that_a_killed_daemon_has_left_are_ended_by_the_next(tmp_path: Path) -> None:
    record = tmp_path / "record"
    server = {**scripted(ignore=["eof", "term"], record=str(record)), "share": "session"}
    with run_as_users_do({"mcpServers": {"deaf": server}}) as daemon:
        with daemon.client() as one, daemon.client() as other:
            for client in (one, other):
                client.run("deaf", "echo")
            assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL
        told = [json.loads(line) for line in record.read_text().splitlines()]
        left = [each["pid"] for each in told if each["event"] == "start"]
        assert len(left) >= 2
        daemon.start()
        assert not alive(left)
