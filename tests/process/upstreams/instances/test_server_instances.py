"""Instances of servers: whose calls go to which child, how long it lasts, and what a change makes of it."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.errors import Overloaded, UpstreamUnavailable
from daemon.facts import Switched
from daemon.ports import Holder
from daemon.states import ServerState
from daemon.upstreams.server_instances import GRACE_SECONDS, UNUSED_LEAST
from daemon.upstreams.servers import InstancedServer
from daemon.upstreams.upstream_access import UpstreamAccess
from tests.e2e.harness import scripted
from tests.fakes_upstream import Client, error_of
from tests.houses import ECHO, House, house, is_alive
from tests.waiting import PATIENCE, until

OWN: dict[str, Any] = {**scripted(tools=["pid", "echo", "sleep", "act"]), "share": "session", "start": "lazy"}
"""Not listed before its clients (`test_first_lists`): the instances here are theirs."""
SHARED: dict[str, Any] = {**OWN, "share": "all", "start": "eager"}
BY_DIRECTORY: dict[str, Any] = {**OWN, "share": "workspace"}


def of(**servers: Any) -> dict[str, Any]:
    return {"mcpServers": servers}


def instanced(home: House, server: str = "s") -> InstancedServer:
    found = home.tree.upstreams[server]
    assert isinstance(found, InstancedServer)
    return found


def made(home: House, server: str = "s", **holder: Any) -> UpstreamAccess:
    return instanced(home, server).instances.of(Holder(**{"session": "key", "number": 1, **holder}))


def names(home: House) -> list[str]:
    return list(home.tree.servers.actors)


async def up(home: House, server: str = "s", **holder: Any) -> UpstreamAccess:
    """An instance that is up."""
    actor = made(home, server, **holder)
    with trio.fail_after(PATIENCE):
        assert await actor.wake()
    return actor


async def known(home: House, server: str = "s") -> None:
    """What a server offers is known before a client asks, as it is after the first run of a daemon."""
    await up(home, server, session="first", number=0)


async def text_of(client: Client, server: str = "s", tool: str = "pid", **arguments: Any) -> str:
    await client.call(server, tool, arguments)
    answer = await client.get()
    assert "error" not in answer, answer
    assert not answer["result"].get("isError"), answer
    text: str = answer["result"]["content"][0]["text"]
    return text


async def contents_of(client: Client) -> list[str]:
    """The texts in the answer to a call."""
    await client.call("s", "pid", {})
    return [each["text"] for each in (await client.get())["result"]["content"]]


async def gone(home: House, *actors: str) -> None:
    await until(
        lambda: not set(actors) & home.tree.servers.actors.keys(), lambda: str(names(home)), seconds=PATIENCE
    )


# --- whose is it --------------------------------------------------------------------------------------------


# --- how long it lasts --------------------------------------------------------------------------------------


async def test_an_instance_that_nobody_uses_is_ended_and_the_next_call_has_another(
    sockets: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1
    async with house(sockets, of(s={**OWN, "idle": 300})) as home:
        actor = await up(home)
        pid = actor.pid
        assert pid is not None
        mock_clock.jump(200)
        await trio.testing.wait_all_tasks_blocked()
        assert names(home) == ["s#1"]
        mock_clock.jump(101)
        await gone(home, "s#1")
        assert actor.is_gone
        await home.wait_state("s", ServerState.DORMANT)
        await until(lambda: not is_alive(pid), lambda: str(pid), seconds=PATIENCE)
        assert home.tree.registry.catalog.value.servers["s"].tools
        assert (await up(home)).pid != pid


async def test_servers_that_nobody_uses_end_each_after_its_own_time(
    sockets: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1
    async with house(sockets, of(s={**SHARED, "idle": 300}, t={**SHARED, "idle": 600})) as home:
        for state_of_s, state_of_t in [("READY", "READY"), ("DORMANT", "READY"), ("DORMANT", "DORMANT")]:
            await home.wait_state("s", ServerState[state_of_s])
            await home.wait_state("t", ServerState[state_of_t])
            mock_clock.jump(301)


@pytest.mark.parametrize(
    ("share", "why"), [("workspace", "after 300 s without use"), ("session", "to make room")]
)
async def test_the_first_answer_of_an_instance_says_what_its_session_has_lost(
    nursery: trio.Nursery, sockets: Path, mock_clock: MockClock, share: str, why: str
) -> None:
    mock_clock.rate = 1
    entry = {**OWN, "share": share, "idle": 300, "limits": {"instances": 1}}
    async with house(sockets, of(s=entry)) as home:
        client = await home.connect(nursery)
        assert len(await contents_of(client)) == 1
        (actor,) = instanced(home).instances.running.values()
        mock_clock.jump(UNUSED_LEAST if why == "to make room" else 301)
        if why == "to make room":
            await up(home, session="another", number=9)
            mock_clock.jump(UNUSED_LEAST)
        await until(lambda: actor.actor.is_gone, lambda: "", seconds=PATIENCE)
        _, told = await contents_of(client)
        assert told == (
            f"mcpd: s was started afresh for this session (it had been ended {why}); what it held (pages,"
            " files open, memory) is gone."
        )
        assert len(await contents_of(client)) == 1
        # Who has not used it before has lost nothing.
        mock_clock.jump(301)
        assert len(await contents_of(await home.connect(nursery))) == 1


async def test_an_instance_with_a_call_in_flight_is_not_ended(
    nursery: trio.Nursery, sockets: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1
    timeouts = {"call": 100_000, "callMax": 100_000}
    async with house(sockets, of(s={**OWN, "idle": 300, "timeouts": timeouts})) as home:
        await known(home)
        client = await home.connect(nursery)
        await client.call("s", "sleep", {"seconds": 1000}, request_id="long")
        await until(lambda: instanced(home).in_flight == 1, lambda: "", seconds=PATIENCE)
        for _ in range(4):
            mock_clock.jump(200)
            await trio.testing.wait_all_tasks_blocked()
        assert names(home) == ["s#1"]


async def test_the_instances_of_a_session_end_a_minute_after_it_and_stay_if_it_comes_back(
    sockets: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1
    async with house(sockets, of(s=OWN)) as home:
        await up(home, session="a", number=1)
        await up(home, session="b", number=2)
        await up(home, session="c", number=3)
        for session in ("a", "b", "c"):
            home.tree.servers.session_ended(session)
        mock_clock.jump(GRACE_SECONDS - 1)
        home.tree.servers.session_returned("b")
        made(home, session="c", number=3)
        mock_clock.jump(2)
        await gone(home, "s#1")
        assert names(home) == ["s#2", "s#3"]


async def test_a_connection_that_ends_takes_its_instance_with_it(
    nursery: trio.Nursery, sockets: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1
    async with house(sockets, of(s=OWN)) as home:
        await known(home)
        client = await home.connect(nursery)
        await text_of(client)
        client.close()
        await until(lambda: not home.tree.front.sessions, lambda: "", seconds=PATIENCE)
        mock_clock.jump(GRACE_SECONDS + 1)
        await gone(home, "s#1")
        assert names(home) == ["s#0"]


async def test_above_the_limit_the_one_unused_longest_ends_or_the_call_is_refused(
    sockets: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1
    async with house(sockets, of(s={**OWN, "limits": {"instances": 2}})) as home:
        made(home, session="a", number=1)
        made(home, session="b", number=2)
        with pytest.raises(Overloaded, match=r"limits\.instances"):
            made(home, session="c", number=3)
        mock_clock.jump(UNUSED_LEAST)
        made(home, session="a", number=1)
        made(home, session="c", number=3)
        assert names(home) == ["s#1", "s#3"]


async def test_an_owner_s_instances_push_out_his_own(sockets: Path, mock_clock: MockClock) -> None:
    mock_clock.rate = 1
    async with house(sockets, of(s={**OWN, "limits": {"instances": 4}})) as home:
        made(home, session="a", number=1)
        for number in (2, 3, 4):
            made(home, session=f"b{number}", number=number, owner="token b: ")
        with pytest.raises(Overloaded):
            made(home, session="b5", number=5, owner="token b: ")
        mock_clock.jump(UNUSED_LEAST)
        made(home, session="b5", number=5, owner="token b: ")
        assert names(home) == ["s#1", "s#3", "s#4", "s#5"]
        mock_clock.jump(UNUSED_LEAST)
        # Who has none may take a place from who has more.
        made(home, session="c", number=6, owner="token c: ")
        assert len(names(home)) == 4


async def test_a_server_that_all_share_rests_when_unused_and_is_woken_by_the_next_call(
    nursery: trio.Nursery, sockets: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1
    async with house(sockets, of(s={**SHARED, "idle": 300})) as home:
        client = await home.connect(nursery)
        await home.wait_ready("s")
        first = await text_of(client)
        mock_clock.jump(301)
        await home.wait_state("s", ServerState.DORMANT)
        await until(lambda: not is_alive(int(first)), lambda: first, seconds=PATIENCE)
        second = await text_of(client)
        assert second != first
        assert (await text_of(client)) == second
        assert home.tree.registry.catalog.value.servers["s"].status.attempt == 0


async def test_a_server_whose_resource_a_client_follows_does_not_rest(
    nursery: trio.Nursery, sockets: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mock_clock.rate = 1
    async with house(sockets, of(s={**SHARED, "idle": 300})) as home:
        client = await home.connect(nursery)
        await home.wait_ready("s")
        first = await text_of(client)
        monkeypatch.setattr(home.tree.servers.actors["s"].subscribers, "uses", lambda name: name == "s")
        mock_clock.jump(301)
        await trio.testing.wait_all_tasks_blocked()
        assert await text_of(client) == first


# --- changes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"), [(SHARED, OWN), (BY_DIRECTORY, SHARED), (OWN, {**OWN, "env": {"A": "1"}})]
)
async def test_a_change_moves_clients_over_and_loses_no_call(
    nursery: trio.Nursery, sockets: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    async with house(sockets, of(s=before)) as home:
        if before is not SHARED:
            await known(home)
        client = await home.connect(nursery)
        first = await text_of(client)
        await client.call("s", "sleep", {"seconds": 0.5}, request_id="long")
        await until(lambda: home.tree.upstreams["s"].in_flight == 1, lambda: "", seconds=PATIENCE)
        await home.reload(of(s=after))
        await client.call("s", "pid", request_id="next")
        answers = [await client.get(), await client.get()]
        told = {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers}
        assert told.keys() == {"long", "next"}
        assert told["next"] != first
        await until(lambda: not is_alive(int(first)), lambda: str(names(home)), seconds=PATIENCE)
        assert [each for each in names(home) if "ending" in each] == []


async def test_a_removed_server_finishes_the_calls_of_its_instances(
    nursery: trio.Nursery, sockets: Path
) -> None:
    async with house(sockets, of(s=OWN, b=ECHO)) as home:
        await known(home)
        client = await home.connect(nursery)
        pid = await text_of(client)
        await client.call("s", "sleep", {"seconds": 0.5}, request_id="long")
        await until(lambda: instanced(home).in_flight == 1, lambda: "", seconds=PATIENCE)
        await home.reload(of(b=ECHO))
        assert list(home.tree.upstreams) == ["b"]
        assert "content" in (await client.get())["result"]
        await client.call("s", "pid")
        assert error_of(await client.get())["code"] == "UnknownCategory"
        await until(lambda: not is_alive(int(pid)), lambda: str(names(home)), seconds=PATIENCE)


async def test_what_an_operator_switches_off_has_no_instances(sockets: Path) -> None:
    async with house(sockets, of(s=OWN)) as home:
        actor = await up(home)
        home.tree.registry.tell(Switched(off=frozenset({("s", "")})))
        await home.wait_state("s", ServerState.DISABLED)
        assert actor.is_gone
        with pytest.raises(UpstreamUnavailable, match="mcpd enable s"):
            made(home)
        home.tree.registry.tell(Switched(off=frozenset()))
        await home.wait_state("s", ServerState.DORMANT)
        await up(home)


# --- faults --------------------------------------------------------------------------------------------------


async def test_killing_one_of_five_instances_concerns_no_other(nursery: trio.Nursery, sockets: Path) -> None:
    async with house(sockets, of(s=OWN)) as home:
        await known(home)
        clients = [await home.connect(nursery) for _ in range(5)]
        pids = [await text_of(client) for client in clients]
        assert len(set(pids)) == 5
        for client in clients:
            await client.call("s", "sleep", {"seconds": 0.5}, request_id="long")
        await until(lambda: instanced(home).in_flight == 5, lambda: "", seconds=PATIENCE)
        os.kill(int(pids[2]), signal.SIGKILL)
        assert error_of(await clients[2].get())["code"] == "UpstreamLost"
        others = [client for client in clients if client is not clients[2]]
        for client in others:
            assert "content" in (await client.get())["result"]
        assert [await text_of(client) for client in others] == [pid for pid in pids if pid != pids[2]]
        assert await text_of(clients[2]) not in pids
        assert home.tree.registry.catalog.value.servers["s"].status.state is ServerState.READY
