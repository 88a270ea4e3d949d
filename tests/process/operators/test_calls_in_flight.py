"""Calls that hang at real servers: seen with their age, ended, and the server is told; in both eras."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.e2e.harness import scripted
from tests.fakes_upstream import MODERN, error_of
from tests.houses import house
from tests.process.operators.test_instances import told
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes_upstream import Client


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
