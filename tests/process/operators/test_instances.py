"""Operators and the instances of servers, with real children behind the control socket."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from daemon.states import ServerState
from tests.e2e.harness import scripted
from tests.fakes_upstream import MODERN, Client, error_of
from tests.houses import House, house, is_alive
from tests.waiting import PATIENCE, until

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


# --- calls that hang at real servers -------------------------------------------------------------------------


async def waiting(operator: Client, **expected: str) -> list[dict[str, Any]]:
    """The calls in flight, once there are as many as these and each waits for what is said."""
    found: list[dict[str, Any]] = []
    with trio.fail_after(PATIENCE):
        while sorted(each["waitsFor"] for each in found) != sorted(expected.values()):
            found = (await told(operator, "calls"))["inFlight"]
    return found


async def warm(client: Client, **meta: Any) -> None:
    """Call the server until it answers: its connection for the other era is made for the first call."""
    with trio.fail_after(PATIENCE):
        answer: dict[str, Any] = {"isError": True}
        while answer.get("isError"):
            await client.call("slow", "echo", {}, **meta)
            answer = (await client.get())["result"]


@pytest.mark.parametrize(("server_era", "client_era"), [("handshake", "modern"), ("modern", "handshake")])
async def test_a_call_that_hangs_is_seen_and_ended_and_its_server_knows(
    server_era: str, client_era: str, nursery: trio.Nursery, sockets: Path
) -> None:
    record = sockets / "record"
    script = scripted(era=server_era, tools=["sleep", "echo"], record=str(record))
    async with house(sockets, {"mcpServers": {"slow": script}}) as home:
        operator, client = await home.connect(nursery, "control"), await home.connect(nursery)
        meta: dict[str, Any] = {"_meta": MODERN} if client_era == "modern" else {}
        await warm(client, **meta)
        await client.call("slow", "sleep", {"seconds": 1000}, **meta)
        (call,) = await waiting(operator, call="answer")
        assert (call["server"], call["tool"], call["session"], call["sent"]) == ("slow", "sleep", 1, True)
        again = (await told(operator, "calls"))["inFlight"][0]
        assert (again["id"], again["ageSeconds"] >= call["ageSeconds"]) == (call["id"], True)
        answer = await told(operator, "cancel", id=call["id"])
        assert answer["call"]["id"] == call["id"]
        error = error_of(await client.get())
        assert (error["code"], error["sent"]) == ("CallCancelled", True)
        await until(lambda: '"cancelled"' in record.read_text(), record.read_text, seconds=PATIENCE, every=0.01)
        assert (await told(operator, "calls"))["inFlight"] == []
        refused = await operator.request("cancel", {"id": call["id"]})
        assert "it has ended" in refused["error"]["message"]
        # It is at work for others, and what has ended is known.
        await client.call("slow", "echo", {"n": 1}, **meta)
        assert "error" not in await client.get()
        seen = await told(operator, "calls", after=0, wait=25)
        with trio.fail_after(PATIENCE):
            while [each["tool"] for each in seen["recent"][-2:]] != ["sleep", "echo"]:
                seen = await told(operator, "calls")
        assert [(each["tool"], each["outcome"]) for each in seen["recent"][-2:]] == [
            ("sleep", "CallCancelled"),
            ("echo", "ok"),
        ]
        # It was sent once, whatever became of it.
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        calls = [each for each in lines if each.get("message", {}).get("method") == "tools/call"]
        assert [each["message"]["params"]["name"] for each in calls][-2:] == ["sleep", "echo"]
        assert len([each for each in calls if each["message"]["params"]["name"] == "sleep"]) == 1


async def test_a_call_waits_for_its_turn_or_for_a_server_that_starts(
    nursery: trio.Nursery, sockets: Path
) -> None:
    servers = {
        "busy": {**scripted(tools=["sleep"]), "limits": {"inFlight": 1}},
        "late": scripted(tools=["sleep"], on={"initialize": {"delay": 1000}}),
    }
    async with house(sockets, {"mcpServers": servers}) as home:
        operator, client = await home.connect(nursery, "control"), await home.connect(nursery)
        await client.call("busy", "sleep", {"seconds": 1000}, request_id=1)
        await waiting(operator, one="answer")
        await client.call("busy", "sleep", {"seconds": 1000}, request_id=2)
        await client.call("late", "sleep", {"seconds": 1000}, request_id=3)
        found = await waiting(operator, one="answer", two="turn", three="server")
        unsent = [each["id"] for each in found if each["waitsFor"] != "answer"]
        for number in unsent:
            assert not (await told(operator, "cancel", id=number))["call"]["sent"]
            error = error_of(await client.get())
            assert (error["code"], error["sent"]) == ("CallCancelled", False)
        await waiting(operator, one="answer")
