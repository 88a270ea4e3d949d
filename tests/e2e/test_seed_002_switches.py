"""Seed 002 FR-1, NFR-1 and §9: switched off, it is as if mcpd were not there. Real clients."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import Daemon, running, scripted
from tests.e2e.loading import META_TOOLS, configured, servers_in
from tests.e2e.scripts import LIST, Clients, call, names, refusal

SERVERS = {"git": scripted(tools=["git_log"]), "time": scripted(tools=["get_current_time"])}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running(configured(SERVERS)) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture(scope="module")
def switched_off() -> Iterator[Daemon]:
    """The same with the master switch off."""
    with running(configured(SERVERS, lazy=False)) as daemon:
        daemon.ready()
        yield daemon


@pytest.mark.parametrize(
    ("everywhere", "profile", "lazy"),
    [(True, "on", True), (True, "off", False), (False, "on", False), (False, "off", False)],
)
def test_tools_are_loaded_on_demand_only_if_both_switches_are_on(
    daemon: Daemon, switched_off: Daemon, clients: Clients, everywhere: bool, profile: str, lazy: bool
) -> None:
    where = daemon if everywhere else switched_off
    seen = clients.session(where, LIST, call("load_mcp_server", name="git"), hello={"profile": profile})

    listed, called = seen.results
    if lazy:
        assert names(listed) == META_TOOLS
        assert set(servers_in(called)) == {"git"}
    else:
        assert names(listed) == ["git_log", "get_current_time"]
        assert refusal(called)["code"] == "UnknownTool"
        assert "load_mcp" not in seen.instructions


@pytest.mark.parametrize(
    ("options", "lazy"),
    [
        ([], True),
        (["--profile", "off"], False),
        (["--no-lazy"], False),
        (["--profile", "off", "--surface", "load"], False),
    ],
)
def test_the_bridge_can_switch_off_and_cannot_switch_on(
    daemon: Daemon, clients: Clients, options: list[str], lazy: bool
) -> None:
    listed = names(clients.bridged(daemon, options, LIST).last)

    assert (listed == META_TOOLS) is lazy


def test_the_bridge_cannot_switch_on_what_the_master_switch_turns_off(
    switched_off: Daemon, clients: Clients
) -> None:
    listed = names(clients.bridged(switched_off, ["--surface", "load", "--profile", "on"], LIST).last)

    assert "git_log" in listed
    assert "load_mcp_tool" not in listed


def request(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """A JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "direct", "version": "1"},
}
HANDSHAKE = [
    request(1, "initialize", INITIALIZE),
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    request(2, "tools/list", {}),
]
MODERN = [
    request(
        2,
        "tools/list",
        {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": INITIALIZE["clientInfo"],
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        },
    )
]
