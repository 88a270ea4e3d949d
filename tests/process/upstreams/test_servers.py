"""Servers follow the configuration and the operators' words: real children, real sockets."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from msgspec import Raw

from daemon.catalog.listing import read_definitions
from daemon.clients.client_tasks import Task
from daemon.config.config_model import EraWish, Server
from daemon.config.parse import Plan
from daemon.errors import UpstreamLost, UpstreamUnavailable
from daemon.facts import DefinitionsListed, Switched
from daemon.model import Era, Kind
from daemon.safety.redact import Redactor
from daemon.states import ServerState
from daemon.upstreams.events import ServerEvents
from daemon.upstreams.second import SecondConnection
from daemon.upstreams.transports.server_connection import OpenContext
from tests.e2e.harness import scripted as entry_of
from tests.fakes_upstream import error_of, tool_call
from tests.faults.stage import Answer, Stage, recording, scripted, stage
from tests.houses import ECHO, STUBBORN, House, house, registry_and_servers
from tests.unit.clients.members import TestMember
from tests.unit.config.reading import config_of
from tests.waiting import PATIENCE, beside, in_time, until

DISABLED, DORMANT, FAILED, READY, STARTING, STOPPING = (
    ServerState.DISABLED,
    ServerState.DORMANT,
    ServerState.FAILED,
    ServerState.READY,
    ServerState.STARTING,
    ServerState.STOPPING,
)
NOWHERE: dict[str, Any] = {"command": "/nowhere/no-such-server"}


def of(**servers: Any) -> dict[str, Any]:
    return {"mcpServers": servers}


def state_of(home: House, server: str) -> ServerState:
    return home.tree.registry.catalog.value.servers[server].status.state


# --- the configuration -------------------------------------------------------------------------------------


async def test_a_new_server_whose_command_does_not_exist_is_failed_until_its_entry_is_mended(
    sockets: Path,
) -> None:
    async with house(sockets, of(a=ECHO)) as home:
        await home.wait_ready("a")
        before = home.pids()
        assert (await home.reload(of(a=ECHO, bad=NOWHERE, b=ECHO))).added == ("bad", "b")
        await home.wait_ready("b")
        await home.wait_state("bad", FAILED)
        assert list(home.tree.upstreams) == ["a", "bad", "b"]
        await home.reload(of(a=ECHO, bad=ECHO, b=ECHO))
        await home.wait_ready("bad")
        assert home.pids()["a"] == before["a"]


async def test_what_concerns_no_process_is_reloaded_without_touching_one(sockets: Path) -> None:
    async with house(sockets, of(a=ECHO, b=ECHO)) as home:
        await home.wait_ready("a", "b")
        catalog, before, pids = home.tree.registry.catalog, home.tree.registry.catalog.value.config, home.pids()
        assert (await home.reload(of(a=ECHO, b=ECHO))).kept == ("a", "b")
        assert (await home.reload({**of(a=ECHO, b=ECHO), "limits": {"starts": 1}})).needs_restart_of_daemon
        assert catalog.value.config is before
        plan = await home.reload({**of(a=ECHO, b=ECHO), "limits": {"starts": 1}, "lazy": False})
        assert (plan.needs_restart_of_daemon, plan.sections) == (("limits",), ("lazy",))
        assert (catalog.value.config.limits.starts, catalog.value.config.lazy) == (4, False)
        both = {"a": {**ECHO, "description": "echoes"}, "b": ECHO}
        assert (await home.reload({**of(**both), "lazy": False})).changed == ("a",)
        entry = catalog.value.servers["a"]
        assert (entry.description, entry.tools is not None) == ("echoes", True)
        assert await home.reload({**of(b=ECHO, a=both["a"]), "lazy": False}) == Plan(kept=("b", "a"))
        assert list(catalog.value.servers) == list(home.tree.upstreams) == ["b", "a"]
        assert home.pids() == pids


async def test_a_task_ends_when_another_server_gets_the_name_of_its_server(sockets: Path) -> None:
    entry = {"url": "http://127.0.0.1:9/mcp"}
    async with house(sockets, of(a=entry)) as home:
        access: Any = home.tree.upstreams["a"]
        tasks = access.subscribers.tasks
        about = {"taskId": Raw(b'"1"'), "status": Raw(b'"working"')}
        task = tasks.add(partial(Task, outlives=True), "a", "owner", about)
        await home.reload(of(a={**entry, "timeouts": {"call": 5}}))
        assert not task.has_ended
        await home.reload(of(a={"url": "http://127.0.0.1:10/mcp"}))
        assert task.has_ended


async def test_a_server_that_becomes_lazy_sleeps_and_its_next_call_wakes_it(
    nursery: trio.Nursery, sockets: Path
) -> None:
    async with house(sockets, of(a=ECHO)) as home:
        client = await home.connect(nursery)
        await home.wait_ready("a")
        await home.reload(of(a={**ECHO, "start": "lazy"}))
        await home.wait_state("a", DORMANT)
        assert home.pids() == {}
        await client.call("a", "echo", {"n": 1})
        assert "content" in (await client.get())["result"]


async def test_a_call_waits_while_the_process_before_its_entry_changed_is_slow_to_end(
    nursery: trio.Nursery, sockets: Path
) -> None:
    slow = {**STUBBORN, "timeouts": {"stopEof": 0.3, "stopTerm": 0.3}}
    profiles = {"profiles": {"default": {"surface": "full"}}}
    async with house(sockets, of(a=slow) | profiles) as home:
        client = await home.connect(nursery)
        await home.wait_ready("a")
        await home.reload(of(a={**slow, "env": {"A": "1"}}) | profiles)
        assert state_of(home, "a") is ServerState.BACKOFF
        await client.ask("tools/call", {"name": "echo", "arguments": {"n": 1}})
        assert not (await client.get())["result"].get("isError")


@pytest.mark.parametrize("era", ["handshake", "both"])
async def test_a_changed_entry_costs_no_call_in_flight_and_none_that_comes_meanwhile(
    nursery: trio.Nursery, sockets: Path, era: str
) -> None:
    profiles = {"profiles": {"default": {"surface": "full"}}}
    entry = entry_of(era=era)
    async with house(sockets, of(a=entry) | profiles) as home:
        client = await home.connect(nursery)
        await home.wait_ready("a")
        await client.ask("tools/call", {"name": "pid", "arguments": {}}, request_id="old")
        old = (await client.get())["result"]["content"]
        await client.ask("tools/call", {"name": "sleep", "arguments": {"seconds": 0.5}}, request_id="in flight")
        with trio.fail_after(PATIENCE):
            while not getattr(home.tree.upstreams["a"], "in_flight", 0):
                await trio.lowlevel.checkpoint()
        await home.reload(of(a={**entry, "env": {"A": "1"}}) | profiles)
        await client.ask("tools/call", {"name": "pid", "arguments": {}}, request_id="meanwhile")
        first, second = await client.get(), await client.get()
        assert (first["id"], bool(first["result"].get("isError"))) == ("in flight", False)
        assert (second["id"], bool(second["result"].get("isError"))) == ("meanwhile", False)
        assert second["result"]["content"] != old


@pytest.mark.parametrize("entries", [{"a": {**ECHO, "env": {"A": "1"}}}, {}], ids=["changed", "removed"])
async def test_a_call_that_outlasts_the_drain_is_lost_and_the_new_entry_runs(
    entries: dict[str, Any], nursery: trio.Nursery, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.upstreams.server_actors.DRAIN_SECONDS", 0.2)
    async with house(sockets, of(a=ECHO)) as home:
        client = await home.connect(nursery)
        await home.wait_ready("a")
        await client.call("a", "hang", request_id="hangs")
        with trio.fail_after(PATIENCE):
            while home.tree.upstreams["a"].in_flight < 1:
                await trio.lowlevel.checkpoint()
        await home.reload(of(**entries))
        assert error_of(await client.get())["code"] == "UpstreamLost"
        await home.wait_ready(*entries)


async def test_any_number_of_reloads_ends_in_the_last_configuration(sockets: Path) -> None:
    variants = [
        of(a=ECHO, b=ECHO),
        of(b={**ECHO, "env": {"A": "1"}}),
        of(),
        of(a={**ECHO, "start": "lazy"}, c=ECHO),
    ]
    async with house(sockets, of(a=ECHO)) as home:
        for variant in [*variants, *reversed(variants), of(x=ECHO, b=ECHO)]:
            await home.reload(variant)
        await home.wait_ready("x", "b")
        assert home.pids().keys() == home.tree.upstreams.keys() == {"x", "b"}
        assert home.tree.supervisor.children.keys() == {"x", "b"}


async def test_a_last_list_of_the_old_server_is_not_taken_for_the_new_ones(sockets: Path) -> None:
    """A thread that reads a list may finish after the configuration has given the name to another."""
    registry, servers = registry_and_servers(config_of(of(a=ECHO)))
    told: list[object] = []
    old = servers.actors["a"]
    tools, _ = read_definitions(Kind.TOOL, "a", [Raw(b'{"name":"t","inputSchema":{"type":"object"}}')])
    async with beside(registry.run):
        await in_time(servers.apply(config_of(of(a={**ECHO, "env": {"A": "1"}}))))
        fact = DefinitionsListed(kind=Kind.TOOL, server="a", incarnation=9, definitions=tools)
        for upstream in (old, servers.actors["a"]):
            upstream.listing.tools._tell(fact)
            await registry.settle()
            told.append(registry.catalog.value.servers["a"].tools)
    assert told[0] is None
    assert told[1] is not None


# --- operators' words --------------------------------------------------------------------------------------


async def test_a_server_that_was_switched_off_before_the_start_is_not_started(sockets: Path) -> None:
    home = House(sockets, config_of(of(a=ECHO, b=ECHO)))
    starts: list[ServerState] = []
    home.tree.supervisor.children["a"].status._on_change = lambda status: starts.append(status.state)
    try:
        async with beside(home.tree.registry.run) as nursery:
            with trio.fail_after(PATIENCE):
                home.tree.registry.tell(Switched(off=frozenset({("a", "")})))
                await home.tree.registry.settle()
                nursery.start_soon(home.tree.servers.run)
                assert await home.tree.supervisor.children["b"].status.wait_settled()
    finally:
        home.close()
    assert starts[0] is DISABLED
    assert ServerState.STARTING not in starts


BUSY = "import time\nwhile time.process_time() < 0.8: pass\n"
"""As long as several looks at what starting servers do."""


async def test_a_start_that_works_is_not_joined_by_another_and_one_that_hangs_is(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.supervision.starts.LOOK_SECONDS", 0.15)
    busy = {**ECHO, "args": [*ECHO["args"][:-1], BUSY + ECHO["args"][-1]]}
    hangs = {"command": "sleep", "args": ["600"]}
    told: list[tuple[str, ServerState]] = []

    async def follow(home: House, name: str) -> None:
        status = home.tree.supervisor.children[name].status
        seen = status.value
        while True:
            seen = await status.wait_changed(seen)
            told.append((name, seen.state))

    home = House(sockets, config_of({**of(a=busy, b=busy, c=hangs), "limits": {"starts": 1}}))
    try:
        async with beside(home.tree.registry.run) as nursery:
            for name in "abc":
                nursery.start_soon(follow, home, name)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(home.tree.servers.run)
            with trio.fail_after(3 * PATIENCE):
                for name in "ab":
                    assert await home.tree.supervisor.children[name].status.wait_settled()
            assert home.tree.supervisor.children["c"].status.value.state not in {READY, FAILED}
    finally:
        home.close()
    started = [(name, state) for name, state in told if name in "ab" and state in {STARTING, READY}]
    first, second = dict.fromkeys(name for name, _state in started)
    assert started == [(first, STARTING), (first, READY), (second, STARTING), (second, READY)]


async def test_a_word_holds_for_a_server_that_comes_later_and_for_one_that_changes(sockets: Path) -> None:
    async with house(sockets, of(a=ECHO)) as home:
        await home.wait_ready("a")
        home.tree.registry.tell(Switched(off=frozenset({("a", ""), ("late", "")})))
        await home.wait_state("a", DISABLED)
        await home.reload(of(a={**ECHO, "env": {"A": "1"}}, late=ECHO))
        await home.wait_state("late", DISABLED)
        await home.wait_state("a", DISABLED)
        assert home.pids() == {}
        home.tree.registry.tell(Switched(off=frozenset()))
        await home.wait_ready("a", "late")


# --- A server that speaks both eras, called by clients of either, with real scripted children b --------------


TIMEOUTS = {"probe": PATIENCE}


def both(era: EraWish = EraWish.AUTO, **script: Any) -> Server:
    return attrs.evolve(scripted(era="both", timeouts=TIMEOUTS, **script), era=era)


def second_of(it: Stage) -> SecondConnection:
    assert isinstance(it.one.second, SecondConnection)
    return it.one.second


async def call(it: Stage, second: SecondConnection, tool: str) -> Any:
    answer = Answer()
    second.send(tool_call(tool, b"{}"), answer)
    it.outbox.flush()
    return json.loads(await answer.text())


async def test_a_handshake_client_is_served_by_a_child_of_its_era_and_the_others_by_the_first() -> None:
    async with stage(both(limits={"in_flight": 1})) as it:
        await it.ready()
        second = second_of(it)
        with pytest.raises(UpstreamUnavailable):
            second.send(tool_call("pid", b"{}"), Answer())
        assert second.can_wake
        assert await second.wake()
        theirs = await call(it, second, "pid")
        assert theirs != json.loads(await it.call("pid").text())
        assert it.one.pid != theirs
        # Both processes are the server's.
        assert list(it.one.children) == [it.one.pid, theirs]
        keys = [second.send(tool_call("sleep", b'{"seconds": 600}'), Answer()) for _ in range(2)]
        assert (it.one.in_flight, it.one.queued) == (2, 1)
        for key in keys:
            it.one.cancel(key, "the client has left")
        assert (it.one.in_flight, it.one.queued) == (0, 0)
        second.close()
        assert list(it.one.children) == [it.one.pid]


async def test_a_client_of_each_era_hears_the_log_of_the_child_that_speaks_its_era() -> None:
    async with stage(both(logs=True)) as it:
        await it.ready()
        second = second_of(it)
        assert await second.wake()
        member = TestMember(0, ["s"])
        it.subscribers.levels.join(member)
        for number, send in enumerate((it.one.send, second.send)):
            line = {"method": "notifications/message", "params": {"level": "info", "data": number}}
            written = json.dumps({"write": json.dumps({"jsonrpc": "2.0", **line}) + "\n"}).encode()
            answer = Answer()
            send(tool_call("act", written), answer)
            it.outbox.flush()
            await answer.wait()
        assert [params["data"] for _, params, _ in member.told] == [1]


async def test_where_a_second_child_does_not_start_its_calls_go_over_the_first(tmp_path: Path) -> None:
    runs = [{}, {"on": {"initialize": {"exit": 3}}}]
    async with stage(both(runs=runs, count=str(tmp_path / "runs"))) as it:
        await it.ready()
        second = second_of(it)
        assert await second.wake()
        assert await call(it, second, "pid") == it.one.pid


async def test_a_second_child_that_dies_costs_its_calls_and_is_started_again() -> None:
    async with stage(both()) as it:
        await it.ready()
        second = second_of(it)
        assert await second.wake()
        first = await call(it, second, "pid")
        answer = Answer()
        second.send(tool_call("act", b'{"exit": 1}'), answer)
        it.outbox.flush()
        with pytest.raises(Exception, match="whether the call ran is unknown"):
            await answer.wait()
        assert it.one.admission is not None
        assert await second.wake()
        assert await call(it, second, "pid") not in (first, it.one.pid)


async def test_it_is_closed_when_nobody_calls(nursery: trio.Nursery) -> None:
    async with stage(both()) as it:
        await it.ready()
        events = ServerEvents(it.one, Redactor(()))
        context = OpenContext(server=it.one.server, events=events, outbox=it.outbox, children=it.children)
        brief = SecondConnection(it.one, events, context, lambda: PATIENCE, idle=0.05)
        nursery.start_soon(brief.keep)
        assert await brief.wake()
        await until(lambda: "down" in repr(brief))
        assert await brief.wake()
        nursery.cancel_scope.cancel()


async def take(it: Stage, era: str) -> None:
    """Have a call wait for a server that is down."""
    waiting = second_of(it)
    with pytest.raises(UpstreamUnavailable):
        waiting.send(tool_call("pid", b"{}"), Answer())
    await until(lambda: waiting.can_wake)
    assert await waiting.wake()
    theirs = await call(it, waiting, "pid")
    assert (theirs != it.one.pid) == (era == "both")


@pytest.mark.parametrize("era", ["both", "modern", "handshake"])
async def test_a_call_that_waits_for_a_start_is_taken_by_the_connection_that_it_may_have(era: str) -> None:
    async with stage(scripted(era=era, timeouts=TIMEOUTS, lazy=True)) as it:
        await take(it, era)
        assert (it.one.second is None) == (era == "handshake")
        if era != "handshake":
            with pytest.raises(UpstreamLost):
                await it.call("act", exit=1).wait()
            await take(it, era)


async def test_it_goes_with_the_first_connection() -> None:
    async with stage(both()) as it:
        await it.ready()
        second = second_of(it)
        assert await second.wake()
        answer = Answer()
        second.send(tool_call("sleep", b'{"seconds": 1000}'), answer)
        it.outbox.flush()
        with pytest.raises(Exception):  # noqa: B017,PT011 - whatever its kill looks like
            await it.call("act", exit=1).wait()
        with pytest.raises(Exception, match="unknown"):
            await answer.wait()


@pytest.mark.parametrize(("wish", "spoken"), [(EraWish.MODERN, Era.MODERN), (EraWish.HANDSHAKE, Era.HANDSHAKE)])
async def test_the_configuration_may_name_one_era(wish: EraWish, spoken: Era) -> None:
    async with stage(both(wish)) as it:
        await it.ready()
        assert it.one.greeting is not None
        assert it.one.greeting.era is spoken
        assert it.one.second is None


async def test_a_server_that_speaks_only_the_modern_era_is_asked_once(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(era="modern", timeouts=TIMEOUTS, record=record.path)) as it,
    ):
        await it.ready()
        second = second_of(it)
        for _ in range(2):
            assert await second.wake()
            assert await call(it, second, "pid") == it.one.pid
        assert len(record.messages("initialize")) == 1
