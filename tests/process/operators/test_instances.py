"""Operators and the instances of servers, with real children behind the control socket."""

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from daemon.authorization.login_runs import LoginRuns
from daemon.authorization.logins import FileLogins, Login, ServerLogins
from daemon.operators import server_changes
from daemon.processes.children import Children
from daemon.states import ServerState
from tests.e2e.harness import scripted
from tests.fakes_upstream import MODERN, Client, Stage, error_of
from tests.houses import House, house, is_alive
from tests.process.authorization.test_running import PROGRAM, SECONDS
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import OperatorStage
from tests.waiting import PATIENCE, beside, in_time, until

CONFIG: dict[str, Any] = {
    "mcpServers": {
        "s": {**scripted(tools=["pid"]), "share": "session", "start": "lazy"},
        "w": {**scripted(tools=["pid"]), "share": "workspace", "start": "lazy"},
    },
    "metrics": {"enabled": True},
}


async def told(operator: Client, method: str, **params: Any) -> dict[str, Any]:
    """The answer to a command."""
    answer = await in_time(operator.request(method, params))
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


async def test_an_operators_instance_ends_with_the_command(nursery: trio.Nursery, sockets: Path) -> None:
    async with house(sockets, CONFIG) as home:
        operator = await home.connect(nursery, "control")
        await told(operator, "restart", server="s")
        assert list(home.tree.registry.catalog.value.servers["s"].tools or ()) == ["pid"]
        pid = await pid_of(operator, "s")
        await until(lambda: not is_alive(pid), lambda: f"{pid} is alive", seconds=PATIENCE)
        await home.wait_state("s", ServerState.DORMANT)
        assert await rows(operator, "s") == {}
        first = await pid_of(operator, "w", directory=str(sockets))
        assert await pid_of(operator, "w", workspace=str(sockets)) == first
        assert await pid_of(operator, f"w@{sockets}") == first
        row = (await rows(operator, "w"))[f"w@{sockets}"]
        assert (row["pid"], row["workspace"], row["calls"]) == (first, str(sockets), 3)


async def test_a_clients_instance_is_shown_and_restarted_alone(
    nursery: trio.Nursery, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_changes, "OUTCOME_SECONDS", math.inf)
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
        # No instance ends with a tool, and none is waited for.
        assert not (await told(operator, "switch", name="s/pid", off=True))["already"]


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
        assert "the call has ended" in refused["error"]["message"]
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


# --- `mcpd login`, as the control socket has it, with a scripted login process -------------------------------


SERVERS: dict[str, Any] = {
    "alpha": {"url": "https://alpha.example/mcp"},
    "beta": {"url": "https://beta.example/mcp", "enabled": False},
    "gamma": {"url": "https://gamma.example/mcp", "oauth": False},
    "delta": {"url": "https://delta.example/mcp", "headers": {"Authorization": "Bearer x"}},
    "stdio": {"command": "x"},
    "unix": {"url": "unix:///run/x.sock"},
}


@asynccontextmanager
async def operating(state: Path) -> AsyncIterator[tuple[Client, OperatorStage, LoginRuns]]:
    """An operator of a daemon whose logins are scripted."""
    stage = OperatorStage(Stage(config_of({"mcpServers": SERVERS})))
    logins = LoginRuns(ServerLogins(FileLogins(state)), state, Children(), PROGRAM)
    with trio.fail_after(SECONDS):
        async with beside(stage.supervisor.run) as nursery:
            nursery.start_soon(logins.run, lambda name: stage.supervisor.children[name].restart())
            await trio.testing.wait_all_tasks_blocked()
            yield await stage.connect(nursery, logins=logins), stage, logins


async def test_where_nobody_can_log_in_is_said_before_anything_is_started(tmp_path: Path) -> None:
    said = {
        "alhpa": "no server is named 'alhpa'. Did you mean alpha?",
        "beta": "switched off in the configuration",
        "gamma": '"oauth": false',
        "delta": "has an Authorization header in its configuration",
        "stdio": "not reached over HTTP (its type is stdio)",
        "unix": "not reached over HTTP (its type is unix)",
    }
    async with operating(tmp_path) as (operator, _, _):
        for server, words in said.items():
            for command in ("login", "logout"):
                answer = await operator.request(command, {"server": server})
                assert words in answer["error"]["message"], answer
    assert not (tmp_path / "told").exists()


# --- `mcpd logout`, as the control socket has it -------------------------------------------------------------


async def test_a_login_is_forgotten_and_the_server_started_again_without_it(tmp_path: Path) -> None:
    async with operating(tmp_path) as (operator, stage, logins):
        before, url = stage.runs, SERVERS["alpha"]["url"]
        kept = logins.logins.kept
        kept.write(
            "alpha", Login(url=url, issuer="i", token_endpoint="t", client_id="c", access_token="access-1")
        )
        answer = (await operator.request("logout", {"server": "alpha"}))["result"]
        assert (answer["existed"], answer["revoked"], answer["state"]) == (True, False, "ready")
        assert "cannot end logins" in answer["problem"]
        assert kept.read("alpha", url) is None
        assert stage.runs == before + 1
        answer = (await operator.request("logout", {"server": "alpha"}))["result"]
        assert (answer["existed"], answer["problem"]) == (False, "")
        assert stage.runs == before + 1


async def test_a_login_under_way_ends(tmp_path: Path) -> None:
    async with operating(tmp_path) as (operator, _, _):
        await operator.ask("login", {"server": "alpha", "scope": "hangs"})
        await operator.get()
        await operator.ask("logout", {"server": "alpha"}, request_id=2)
        answers = [await operator.get(), await operator.get()]
        assert [each["error"]["message"] for each in answers if "error" in each] == [
            "not logged in to alpha: somebody has logged out meanwhile"
        ]


async def test_the_login_at_a_server_that_is_not_configured_any_more_is_forgotten(tmp_path: Path) -> None:
    async with operating(tmp_path) as (operator, stage, logins):
        before, kept = stage.runs, logins.logins.kept
        kept.write(
            "gone",
            Login(url="http://gone/", issuer="i", token_endpoint="t", client_id="c", access_token="access-1"),
        )
        answer = (await operator.request("logout", {"server": "gone"}))["result"]
        assert (answer["existed"], answer["state"]) == (True, "")
        assert kept.read("gone", None) is None
        for name in ("gone", "../logins/gone", "x" * 300, "a\0b"):
            refused = await operator.request("logout", {"server": name})
            assert "no server is named" in refused["error"]["message"]
        assert stage.runs == before
