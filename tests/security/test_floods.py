"""What a server or a client can make the daemon write and pass on has a bound, whatever they say."""

import os
import resource
import shlex
import signal
import socket
import time
from contextlib import ExitStack
from typing import Any

from daemon.catalog.listing import MAX_DEFINITION_BYTES
from daemon.counting.measures import LOG_BURST_BYTES, LOG_BYTES_PER_SECOND
from tests.e2e.harness import Daemon, changeable, own_directory, running, scripted, started
from tests.scripted_server import tool
from tests.waiting import eventually

FLOOD = """
line=$(head -c 8000 /dev/zero | tr '\\0' e)
for round in $(seq 40); do
    for number in $(seq 60); do echo "$line"; done
    sleep 0.1
done >&2
echo the last line >&2
"""
"""20 MB of stderr within four seconds or more."""

SOFT_FILES, FILES = 1024, 160
"""Descriptors of a shell, and of the daemon: 40 are its own, 64 are kept, and the rest is for clients."""

SLACK = 256 * 1024
"""Bytes of log that may be about everything else."""


def flooding() -> dict[str, Any]:
    """A server that floods its stderr beside its work."""
    server = scripted(tools=["echo"])
    command = shlex.join([server["command"], *server["args"]])
    return {**server, "command": "/bin/sh", "args": ["-c", f"({FLOOD}) & exec {command}"]}


def test_a_server_that_floods_its_stderr_gets_its_share_of_the_log_and_no_more() -> None:
    began = time.monotonic()
    with running({"mcpServers": {"loud": flooding()}}) as daemon:
        daemon.ready()
        eventually(lambda: "the last line" in daemon.run("logs", "loud"), daemon.said)
        seconds = time.monotonic() - began
        log = daemon.said()
    assert len(log) < LOG_BURST_BYTES + seconds * LOG_BYTES_PER_SECOND + SLACK
    assert "its stderr is left out for now; `mcpd logs` has the last of it" in log


def test_a_client_that_makes_up_long_names_of_tools_does_not_fill_the_log() -> None:
    with running({"mcpServers": {"quiet": scripted(tools=["echo"])}}) as daemon:
        daemon.ready()
        with daemon.client() as client:
            for number in range(100):
                client.ask("tools/call", {"name": f"{number} {'x' * 20_000}", "arguments": {}})
                client.ask(
                    "tools/call",
                    {"name": "call-category-tool", "arguments": {"category": "y" * 20_000, "name": "echo"}},
                )
        eventually(lambda: daemon.said().count(" call ") >= 200, daemon.said)
        assert len(daemon.said()) < SLACK


def test_a_definition_that_is_too_long_is_not_shown_and_the_operator_learns_why() -> None:
    with running({"mcpServers": {"wordy": changeable("echo")}}) as daemon:
        daemon.ready()
        daemon.changes("wordy", tool("long", description="x" * MAX_DEFINITION_BYTES), "short")
        with daemon.client() as client:
            answer = client.call("get-category-tools", {"category": "wordy"})["structuredContent"]
        assert sorted(answer["tools"]) == ["announce", "set_tools", "short"]
        assert "the limit is 262144" in daemon.status()["servers"]["wordy"]["quarantined"]["long"]


def test_clients_that_take_all_descriptors_leave_some_to_operators_and_restarts_and_keep_nobody_out() -> None:
    with ExitStack() as stack:
        daemon = Daemon(own_directory(), {"mcpServers": {"one": scripted(tools=["echo"])}}, {})
        daemon.forked = False
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT_FILES, before[1]))
        try:
            stack.enter_context(started(daemon))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert daemon.process is not None
        child = daemon.ready()["one"]["pid"]
        assert resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)[0] == before[1]
        assert resource.prlimit(child, resource.RLIMIT_NOFILE)[0] == SOFT_FILES
        here = stack.enter_context(daemon.client())
        assert not here.run("one", "echo")["isError"]
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        hoard = stack.enter_context(ExitStack())
        for _ in range(FILES):  # the last of them wait in the backlog
            client = hoard.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            client.connect(str(daemon.socket))
        eventually(lambda: "is kept for operators and servers" in daemon.said(), daemon.said)
        assert not here.run("one", "echo")["isError"]
        os.kill(child, signal.SIGKILL)
        eventually(lambda: daemon.status()["servers"]["one"]["pid"] not in {None, child}, daemon.said)
        assert "one" in daemon.run("status")
        eventually(lambda: not here.run("one", "echo")["isError"], daemon.said)
        hoard.close()
        with daemon.client() as late:
            assert late.ask("ping")["result"] == {}


def test_a_first_list_over_the_limit_is_the_servers_fault() -> None:
    long = [tool(f"tool_{number}", description="x" * 1000) for number in range(100)]
    server = {**scripted(tools=long), "limits": {"messageBytes": 64 * 1024}}
    with running({"mcpServers": {"wordy": server}}) as daemon:

        def known() -> dict[str, Any]:
            found: dict[str, Any] = daemon.ask("status")["servers"]["wordy"]
            return found if found["cause"] else {}

        found = eventually(known, daemon.said)
        assert (found["state"], found["cause"]) == ("degraded", "message-too-large")
        assert "internal error in mcpd" not in daemon.said()
