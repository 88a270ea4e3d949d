"""Instances of servers: whose calls go to which child, how long it lasts, and what a change makes of it."""

import json
import os
import shlex
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.config.labels import LISTING
from daemon.errors import Overloaded, UpstreamUnavailable
from daemon.facts import Switched
from daemon.ports import Holder
from daemon.states import SERVING, ServerState
from daemon.upstreams.server_instances import GRACE_SECONDS, UNUSED_LEAST
from daemon.upstreams.servers import InstancedServer
from daemon.upstreams.upstream_access import UpstreamAccess
from tests.e2e.harness import scripted
from tests.fakes_upstream import Client, error_of
from tests.houses import ECHO, House, house, is_alive
from tests.waiting import PATIENCE, beside, in_time, until

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
    assert await in_time(actor.wake())
    return actor


@pytest.fixture
def mock_clock() -> MockClock:
    """Time that passes as it does for the processes, and can be jumped."""
    return MockClock(rate=1)


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
            f"mcpd: s was started again for this session (it had ended {why}); its state (pages,"
            " open files, memory) is lost."
        )
        assert len(await contents_of(client)) == 1
        # Who has not used it before has lost nothing.
        mock_clock.jump(301)
        assert len(await contents_of(await home.connect(nursery))) == 1


async def test_an_instance_with_a_call_in_flight_is_not_ended(
    nursery: trio.Nursery, sockets: Path, mock_clock: MockClock
) -> None:
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


@pytest.mark.parametrize("entry", [OWN, SHARED], ids=["divided", "shared"])
async def test_a_removed_server_finishes_its_calls(
    nursery: trio.Nursery, sockets: Path, entry: dict[str, Any]
) -> None:
    async with house(sockets, of(s=entry, b=ECHO)) as home:
        if entry is not SHARED:
            await known(home)
        client = await home.connect(nursery)
        pid = await text_of(client)
        await client.call("s", "sleep", {"seconds": 0.5}, request_id="long")
        await until(lambda: home.tree.upstreams["s"].in_flight == 1, lambda: "", seconds=PATIENCE)
        await home.reload(of(b=ECHO))
        assert list(home.tree.upstreams) == ["b"]
        assert not (await client.get())["result"].get("isError")
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


# --- what goes wrong with one instance, and what it costs ----------------------------------------------------


MIB = 1024 * 1024
MOST = 16
"""Instances of one server, as many as it may have."""
SOON = {"base": 0.01, "floor": 0, "cap": 60, "intensity": 3}


@pytest.fixture
def directories(sockets: Path) -> tuple[str, str]:
    """Two workspaces: the servers here look for a file in theirs, and do what it says."""
    found = sockets / "sound", sockets / "faulty"
    for each in found:
        each.mkdir()
    return str(found[0]), str(found[1])


def first_doing(what: str) -> dict[str, object]:
    """A server that first does this (shell) in its directory."""
    command, arguments = str(ECHO["command"]), list(ECHO["args"])
    script = ["-c", f'{what}\nexec "$@"', "sh", command, *arguments]
    return {"command": "/bin/sh", "args": script, "share": "workspace", "start": "lazy", "restart": SOON}


def state_of(home: House) -> ServerState:
    return home.tree.registry.catalog.value.servers["s"].status.state


async def test_a_crash_loop_of_one_instance_concerns_no_other(
    nursery: trio.Nursery, sockets: Path, directories: tuple[str, str]
) -> None:
    sound, faulty = directories
    (Path(faulty) / "stop").touch()
    async with house(sockets, of(s=first_doing("test -e stop && exit 3"))) as home:
        works = await up(home, workspace=sound)
        pid = works.pid
        loops = instanced(home).instances.of(Holder(session="other", number=2, workspace=faulty))
        nursery.start_soon(loops.wake)
        with trio.fail_after(PATIENCE):
            status = await loops.child.status.wait_until(lambda it: it.state is ServerState.CRASHLOOP)
        assert status.attempt >= SOON["intensity"]
        assert (works.child.status.value.state in SERVING, works.pid) == (True, pid)
        assert state_of(home) is ServerState.READY


async def test_an_instance_whose_directory_is_gone_is_ended_so_that_the_next_one_starts_at_once(
    sockets: Path, directories: tuple[str, str]
) -> None:
    place = directories[0]
    async with house(sockets, of(s={**OWN, "share": "workspace"})) as home:
        await trio.Path(place).rmdir()
        lost = instanced(home).instances.of(Holder(session="one", number=1, workspace=place))
        assert not await lost.wake()
        await until(lambda: lost.is_gone, lambda: str(names(home)), seconds=PATIENCE)
        await trio.Path(place).mkdir()
        assert (await up(home, workspace=place)) is not lost


GREEDY = "import os\nif os.path.exists('greedy'): kept = b'x' * (200 << 20)\n"
"""Takes memory where it is told to."""


async def test_an_instance_above_its_memory_ceiling_is_ended_and_no_other(
    nursery: trio.Nursery, sockets: Path, directories: tuple[str, str]
) -> None:
    sound, greedy = directories
    (Path(greedy) / "greedy").touch()
    args = list(ECHO["args"])
    entry = {
        **ECHO,
        "args": [*args[:-1], GREEDY + args[-1]],
        "share": "workspace",
        "limits": {"memoryBytes": 100 * MIB},
        "restart": SOON,
    }
    async with house(sockets, of(s=entry)) as home:
        works = await up(home, workspace=sound)
        pid = works.pid
        grows = await up(home, session="other", number=2, workspace=greedy)
        with trio.fail_after(PATIENCE):
            await grows.child.status.wait_until(lambda it: "memory" in it.reason)
        assert (works.child.status.value.state in SERVING, works.pid) == (True, pid)
        nursery.cancel_scope.cancel()


async def test_sixteen_instances_that_end_only_of_a_kill_stop_within_the_seconds_of_all_stops(
    sockets: Path,
) -> None:
    # Each alone may take longer than anybody waits here: the limit of the daemon's end is what ends them.
    patient = {"stopEof": 2 * PATIENCE, "stopTerm": 2 * PATIENCE}
    deaf = {**OWN, "args": [*OWN["args"][:-1], '{"ignore": ["eof", "term"]}'], "timeouts": patient}
    async with house(sockets, of(s=deaf)) as home:
        async with trio.open_nursery() as starting:
            for number in range(MOST):
                actor = instanced(home).instances.of(Holder(session=number, number=number))
                starting.start_soon(actor.wake)
        actors = list(home.tree.servers.actors.values())
        await until(
            lambda: all(each.admission is not None for each in actors),
            lambda: str(names(home)),
            seconds=PATIENCE,
        )
        pids = [each.pid for each in actors if each.pid is not None]
        assert len(pids) == MOST
        home.stop.set()
        await until(lambda: not any(map(is_alive, pids)), lambda: str(pids), seconds=PATIENCE)


# --- servers with instances are listed once before any client, each by an instance that leaves  --------------


@pytest.fixture
def tmp_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Short, as sockets are in it; directories for lists are made there, too."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


SHORT = '{"cwd": ""}'
"""What a server writes down that ends at once."""


def divided(path: Path, **more: Any) -> dict[str, Any]:
    """A server that writes down where it is started."""
    return {**scripted(tools=["pid"], record=str(path / "record")), "share": "workspace", **more}


def runs(path: Path) -> list[dict[str, Any]]:
    record = path / "record"
    lines = record.read_text().splitlines() if record.exists() else []
    return [each for each in map(json.loads, lines) if "cwd" in each]


def left(path: Path) -> list[str]:
    return [each.name for each in path.glob(f"{LISTING}*")]


async def over(home: House, begun: int = 1, server: str = "s") -> None:
    """Until that many instances have been and nothing of them is left."""
    instances: Any = home.tree.upstreams[server].instances
    await until(
        lambda: instances.ended == begun and not instances.running and not left(home.directory),
        lambda: f"{instances.begun} {instances.ended} {names(home)} {left(home.directory)}",
        seconds=PATIENCE,
    )


def tools(home: House, server: str = "s") -> list[str] | None:
    listed = home.tree.registry.catalog.value.servers[server].tools
    return None if listed is None else list(listed)


@pytest.mark.parametrize("share", ["workspace", "session"])
async def test_a_divided_server_is_listed_once_in_an_empty_directory_that_is_removed(
    tmp_path: Path, share: str
) -> None:
    entry = divided(tmp_path, share=share, env={"WHERE": "${workspace}/x"}, limits={"instances": 1})
    async with house(tmp_path, of(s=entry)) as home:
        await over(home)
        assert tools(home) == ["pid"]
        (start,) = runs(tmp_path)
        assert Path(start["cwd"]).name.startswith(LISTING)
        assert (Path(start["cwd"]).parent, start["env"]["WHERE"]) == (tmp_path, f"{start['cwd']}/x")
        project = tmp_path / "project"
        project.mkdir()
        actor = await up(home, workspace=str(project))
        assert actor.name in {f"s@{project}", "s#1"}
        assert [each["cwd"] for each in runs(tmp_path)] == [start["cwd"], str(project)]
        # Known by now, also after a reload that changes no more than a bound.
        await home.reload(of(s={**entry, "limits": {"instances": 2}}))
        assert len(runs(tmp_path)) == 2
    for door in ("front", "control"):
        (tmp_path / door).unlink()
    async with house(tmp_path, of(s=entry)) as home:
        # The next daemon knows the tools from the store, and starts nothing.
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (tools(home), names(home), left(tmp_path), len(runs(tmp_path))) == (["pid"], [], [], 2)


async def test_a_server_that_a_reload_adds_is_listed_and_a_lazy_one_is_not(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    async with house(tmp_path, of()) as home:
        await home.reload(of(lazy=divided(tmp_path, start="lazy"), s=divided(tmp_path)))
        await over(home)
        assert (tools(home), tools(home, "lazy")) == (["pid"], None)
        pid = await text_of(await home.connect(nursery))
        assert [str(run["pid"]) == pid for run in runs(tmp_path)] == [False, True]


async def test_one_that_does_not_come_up_is_tried_once_and_again_for_a_client(tmp_path: Path) -> None:
    entry = {
        **divided(tmp_path),
        "command": "/bin/sh",
        "args": ["-c", f"echo '{SHORT}' >> {tmp_path}/record; echo \"No module named 'x'\" >&2; exit 3"],
    }
    async with house(tmp_path, of(s=entry)) as home:
        await over(home)
        assert (len(runs(tmp_path)), tools(home)) == (1, None)
        status: Any = home.tree.registry.catalog.value.servers["s"].status
        assert (status.state, status.reason) == ("dormant", "exited with status 3")
        assert "`mcpd restart s`" in status.why.remedy.helps
        await home.reload(of(s={**entry, "limits": {"instances": 2}}))
        home.tree.registry.tell(Switched(off=frozenset({("other", "")})))
        await home.tree.registry.settle()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (len(runs(tmp_path)), names(home)) == (1, [])
        assert not await made(home, workspace=str(tmp_path)).wake()
        assert len(runs(tmp_path)) > 1


async def test_a_failed_first_list_is_no_cause_of_a_server_that_is_switched_off(tmp_path: Path) -> None:
    async with house(tmp_path, of(s={"command": "/absent", "share": "session"})) as home:
        await over(home)
        for off, cause in ((True, None), (False, "command-not-found")):
            home.tree.registry.tell(Switched(off=frozenset({("s", "")} if off else ())))
            await home.wait_state("s", ServerState.DISABLED if off else ServerState.DORMANT)
            assert home.tree.registry.catalog.value.servers["s"].status.why.cause == cause


async def test_the_instance_that_lists_makes_room_for_a_client_s(tmp_path: Path) -> None:
    silent = scripted(on={"initialize": {"never": True}, "server/discover": {"never": True}})
    deaf = {**silent, "share": "workspace", "limits": {"instances": 1}}
    async with house(tmp_path, of(s=deaf)) as home:
        await until(lambda: bool(names(home)), lambda: "", seconds=PATIENCE)
        actor = made(home, workspace=str(tmp_path))
        assert actor.name in names(home)
        await until(lambda: not left(tmp_path), lambda: str(left(tmp_path)), seconds=PATIENCE)
        assert list(home.tree.servers.actors.values()) == [actor]


async def test_a_first_list_goes_on_after_a_restart_that_does_not_wait_for_it(tmp_path: Path) -> None:
    entry = divided(tmp_path, start="lazy")
    os.mkfifo(gate := tmp_path / "gate")
    run = f"read go < {gate}; exec {shlex.join([entry['command'], *entry['args']])}"
    async with house(tmp_path, of(s={**entry, "command": "/bin/sh", "args": ["-c", run]})) as home:
        with trio.fail_after(PATIENCE):
            async with beside(instanced(home).list_again):
                await until(lambda: bool(names(home)), lambda: "", seconds=PATIENCE)
        assert len(left(tmp_path)) == 1
        await trio.to_thread.run_sync(gate.write_text, "go\n")
        await over(home)
        assert tools(home) == ["pid"]
