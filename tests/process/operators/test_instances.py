"""Operators and the instances of servers, with real children behind the control socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from daemon.states import ServerState
from tests.e2e.harness import scripted
from tests.houses import House, house, is_alive
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes_upstream import Client

CONFIG: dict[str, Any] = {
    "mcpServers": {
        "s": {**scripted(tools=["pid"]), "share": "session", "start": "lazy"},
        "w": {**scripted(tools=["pid"]), "share": "workspace", "start": "lazy"},
    },
    "metrics": {"enabled": True},
}


async def told(operator: Client, method: str, **params: Any) -> dict[str, Any]:
    """The answer to a command."""
    with trio.fail_after(PATIENCE):
        answer = await operator.request(method, params)
    result: dict[str, Any] = answer["result"]
    return result


async def pid_of(operator: Client, server: str, **place: str) -> int:
    """The pid of what an operator's call goes to."""
    result = await told(operator, "call", server=server, tool="pid", arguments={}, **place)
    assert not result.get("isError"), result
    return int(result["content"][0]["text"])


async def of_client(client: Client, server: str) -> int:
    await client.call(server, "pid", {})
    return int((await client.get())["result"]["content"][0]["text"])


async def rows(operator: Client, server: str) -> dict[str, dict[str, Any]]:
    """What the status says of each instance, by name."""
    status = await told(operator, "status")
    return {row["name"]: row for row in status["servers"][server]["instances"]}


async def known(home: House, operator: Client) -> None:
    """What the servers offer is known before a client asks, as it is after the first run of a daemon."""
    for server in ("s", "w"):
        await pid_of(operator, server)
    await until(lambda: "s#0" not in home.tree.servers.actors, lambda: "s#0 is left", seconds=PATIENCE)


async def test_an_operators_instance_is_its_own_and_ends_with_the_command(
    nursery: trio.Nursery, sockets: Path
) -> None:
    async with house(sockets, CONFIG) as home:
        operator = await home.connect(nursery, "control")
        pid = await pid_of(operator, "s")
        await until(lambda: not is_alive(pid), lambda: f"{pid} is alive", seconds=PATIENCE)
        await home.wait_state("s", ServerState.DORMANT)
        assert await rows(operator, "s") == {}
        first = await pid_of(operator, "w", directory=str(sockets))
        assert await pid_of(operator, "w", workspace=str(sockets)) == first
        assert await pid_of(operator, f"w@{sockets}") == first
        row = (await rows(operator, "w"))[f"w@{sockets}"]
        assert (row["pid"], row["workspace"], row["calls"]) == (first, str(sockets), 3)


async def test_an_operator_looks_at_a_clients_instance_and_restarts_it_alone(
    nursery: trio.Nursery, sockets: Path
) -> None:
    async with house(sockets, CONFIG) as home:
        operator = await home.connect(nursery, "control")
        await known(home, operator)
        one, other = await home.connect(nursery), await home.connect(nursery)
        first, second = await of_client(one, "s"), await of_client(other, "s")
        assert [await pid_of(operator, name) for name in ("s#1", "s#2")] == [first, second]
        status = await told(operator, "status")
        server = status["servers"]["s"]
        assert (server["share"], server["state"], server["pid"]) == ("session", "ready", None)
        assert server["calls"] == 5
        assert server["rssBytes"] == sum(row["rssBytes"] for row in server["instances"])
        assert [session["instances"] for session in status["sessions"]] == [["s#1"], ["s#2"]]
        assert (await told(operator, "restart", server="s#1"))["state"] == "ready"
        assert await of_client(one, "s") != first
        assert await of_client(other, "s") == second
        text = (await told(operator, "metrics"))["text"]
        assert 'mcpd_server_instances{server="s"} 2.0' in text
        assert 'mcpd_server_instances_begun_total{server="s"} 3.0' in text
        assert 'mcpd_server_instances_ended_total{server="s"} 1.0' in text
        assert 'mcpd_instance_memory_bytes{instance="s#1",server="s"}' in text
