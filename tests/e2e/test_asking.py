"""What a real server asks reaches the real client whose call has caused it, over each transport and door."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.doors import TOKEN, HttpDoor
from tests.e2e.harness import ROOT, Daemon, free_port, node_server, running
from tests.e2e.test_upstreams import EAGER, everything
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

CLIENT = [sys.executable, str(ROOT / "tests" / "e2e" / "clients" / "asked.py")]
ASKING = [
    "trigger-elicitation-request",
    "trigger-sampling-request",
    "trigger-url-elicitation",
    "get-roots-list",
]
TRANSPORTS = {"stdio": "", "streamableHttp": "/mcp", "sse": "/sse"}
DOOR = HttpDoor()


@pytest.fixture(scope="module", params=TRANSPORTS)
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon with the reference server behind it, over one transport."""
    mode, port = request.param, free_port()
    entry: dict[str, Any] = node_server("server-everything")
    with ExitStack() as stack:
        if mode != "stdio":
            stack.enter_context(everything(mode, port))
            kind = "http" if mode == "streamableHttp" else mode
            url = f"http://127.0.0.1:{port}{TRANSPORTS[mode]}"
            entry = {"type": kind, "url": url, "restart": EAGER}
        profiles = {"default": {"surface": "full"}}
        config = {"mcpServers": {"everything": entry}, "profiles": profiles, "listen": DOOR.listen}
        daemon = stack.enter_context(running(config))
        daemon.ready()
        yield daemon


def begin(daemon: Daemon, name: str, times: int, way: str) -> subprocess.Popen[str]:
    """A client that calls what asks, so often."""
    where = ["socket", str(daemon.socket)] if way == "socket" else ["http", DOOR.url(), TOKEN]
    return subprocess.Popen(
        [*CLIENT, name, str(times), *where],
        env={**daemon.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def seen(client: subprocess.Popen[str]) -> dict[str, Any]:
    """What it saw, once it is done."""
    with client:
        out, error = client.communicate(timeout=WAIT)
    assert client.returncode == 0, error
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("way", ["socket", "http"])
def test_a_client_is_asked_what_its_calls_ask_and_has_the_tools_for_it(daemon: Daemon, way: str) -> None:
    found = seen(begin(daemon, f"only-{way}", 2, way))
    assert set(ASKING) <= set(found["tools"])
    assert found["asked"]["elicitation"] == found["asked"]["sampling"] == 2
    for tool, text in found["answers"]:
        # The server asks for roots once, and keeps what it was told.
        assert f"only-{way}" in text or (tool == "get-roots-list" and "only-socket" in text), text


def test_each_of_several_clients_is_asked_for_itself_or_not_at_all(daemon: Daemon) -> None:
    clients = {name: begin(daemon, name, 5, way) for name, way in (("anna", "socket"), ("ben", "http"))}
    refused = 0
    for name, client in clients.items():
        for tool, text in seen(client)["answers"]:
            if tool != "get-roots-list" and name not in text:
                assert "passed on to none" in text
                refused += 1
    # Once it is noticed that more than one may be meant, one client works at a time.
    assert refused <= len(clients)
