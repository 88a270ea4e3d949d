"""Seed 002 FR-1, NFR-1 and §9: switched off, it is as if mcpd were not there. Real clients, real servers."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.e2e.harness import Daemon, running
from tests.e2e.loading import META_TOOLS, configured, repository, servers_in, three_servers
from tests.e2e.scripts import LIST, Clients, call, names, refusal
from tests.scripted_server import command, tool

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("repository")
    repository(place)
    # The real ones write compact ASCII; this one writes white space and escapes, which stay as they are, too.
    python, *arguments = command(
        tools=[tool("schön", title="Schön", inputSchema={"type": "object", "x": 1.50})]
    )
    return {**three_servers(place), "spaced": {"command": python, "args": arguments}}


@pytest.fixture(scope="module")
def daemon(servers: dict[str, Any]) -> Iterator[Daemon]:
    with running(configured(servers)) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture(scope="module")
def switched_off(servers: dict[str, Any]) -> Iterator[Daemon]:
    """The same with the master switch off."""
    with running(configured(servers, lazy=False)) as daemon:
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
        assert {"git_log", "get_current_time", "read_text_file"} <= set(names(listed))
        assert not {*META_TOOLS} & set(names(listed))
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


# The Python SDK's servers write the keys of their schemas in another order in each era; mcpd speaks the newest.
@pytest.mark.parametrize(
    ("server", "era"), [("git", "MODERN"), ("time", "MODERN"), ("files", "HANDSHAKE"), ("spaced", "HANDSHAKE")]
)
def test_switched_off_each_tool_is_what_its_server_lists_byte_for_byte(
    switched_off: Daemon, servers: dict[str, Any], server: str, era: str
) -> None:
    direct = listed_by(servers[server], {"MODERN": MODERN, "HANDSHAKE": HANDSHAKE}[era])

    assert direct
    through = listed_through(switched_off)
    assert [through.get(name) for name in direct] == list(direct.values())


def test_switched_off_nothing_is_listed_but_the_servers_tools_in_their_order(
    switched_off: Daemon, servers: dict[str, Any]
) -> None:
    every = [name for server in servers.values() for name in listed_by(server, HANDSHAKE)]

    assert list(listed_through(switched_off)) == every


def test_switched_off_a_real_client_sees_what_it_sees_without_us(
    switched_off: Daemon, servers: dict[str, Any], clients: Clients
) -> None:
    direct = clients.spawned([servers["git"]["command"], *servers["git"]["args"]], LIST).last["tools"]

    through = clients.session(switched_off, LIST).last["tools"]

    assert through[: len(direct)] == direct


class _List(msgspec.Struct):
    tools: list[msgspec.Raw]


class _Answer(msgspec.Struct):
    id: int | None = None
    result: msgspec.Raw = msgspec.Raw()


def by_name(answer: _Answer) -> dict[str, bytes]:
    """The raw bytes of each tool in an answer to `tools/list`."""
    tools = msgspec.json.decode(answer.result, type=_List).tools
    return {json.loads(bytes(tool))["name"]: bytes(tool) for tool in tools}


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


def listed_by(server: dict[str, Any], messages: list[dict[str, Any]]) -> dict[str, bytes]:
    """What a server of its own lists for a client without mcpd, in raw bytes."""
    with subprocess.Popen(
        [server["command"], *server["args"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(json.dumps(each) + "\n" for each in messages).encode())
        process.stdin.flush()
        answers = (msgspec.json.decode(line, type=_Answer) for line in process.stdout)
        tools = by_name(next(each for each in answers if each.id == 2))
        process.kill()
    return tools


def listed_through(daemon: Daemon) -> dict[str, bytes]:
    """What the daemon answers, in raw bytes."""
    with daemon.client() as client:
        client.ask("initialize", INITIALIZE)
        client.send(json.dumps(HANDSHAKE[2]).encode())
        return by_name(msgspec.json.decode(client._file.readline(), type=_Answer))
