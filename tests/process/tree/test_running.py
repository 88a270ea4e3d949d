"""The whole daemon in this process: real sockets, a real child, a real end."""

import math
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.causes import Cause
from daemon.config.parse import Plan
from daemon.host.notify import feed_watchdog
from daemon.operators.base import Refused
from daemon.states import ServerState
from daemon.tree.running import drain
from tests.fakes_upstream import error_of
from tests.fuzz import saying_server
from tests.fuzz.listening import listen
from tests.fuzz.mutation import FROM_CLIENTS, FROM_SERVERS, malformed
from tests.fuzz.talking import Results, talk
from tests.houses import ECHO, STUBBORN, House, house, is_alive
from tests.unit.config.reading import config_of
from tests.waiting import PATIENCE


async def test_a_daemon_without_servers_is_ready_serves_and_ends(nursery: trio.Nursery, sockets: Path) -> None:
    async with house(sockets, {}) as home:
        assert home.notified == ["READY=1\nSTATUS=serving"]
        client = await home.connect(nursery)
        assert len((await client.request("tools/list"))["result"]["tools"]) == 3
        operator = await home.connect(nursery, "control")
        status = (await operator.request("status"))["result"]
        assert [session["number"] for session in status["sessions"]] == [1]
    assert home.notified[1:] == ["STOPPING=1\nSTATUS=stopping"]
    assert await client.is_closed()
    assert await operator.is_closed()


async def test_a_fault_of_one_entry_fails_its_server_alone_at_the_start_and_at_a_reload(sockets: Path) -> None:
    faulty = {**ECHO, "enabled": "yes"}
    async with house(sockets, {"mcpServers": {"a": ECHO, "b": faulty, "c": ECHO}}) as home:
        await home.wait_ready("a", "c")
        await home.wait_state("b", ServerState.FAILED)
        pid = home.pids()["c"]
        waiting = {**ECHO, "env": {"KEY": "${SET_NOWHERE}"}}
        await home.reload({"mcpServers": {"a": waiting, "b": ECHO, "c": ECHO}})
        await home.wait_ready("b", "c")
        await home.wait_state("a", ServerState.FAILED)
        failed = home.tree.registry.catalog.value.servers["a"]
        assert failed.status.cause is Cause.CONFIGURATION
        assert failed.status.why.data["variable"] == "SET_NOWHERE"
        # What it listed before is known, and cannot be called.
        assert failed.tools
        assert home.pids()["c"] == pid


async def test_the_end_waits_for_a_call_that_finishes_in_time(nursery: trio.Nursery, sockets: Path) -> None:
    async with house(sockets, {"mcpServers": {"s": ECHO}}) as home:
        client = await home.connect(nursery)
        await home.wait_ready("s")
        pid = home.tree.upstreams["s"].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await client.call("s", "echo")
        with trio.fail_after(PATIENCE):
            while not home.tree.upstreams["s"].in_flight:
                await trio.lowlevel.checkpoint()
        home.stop.set()
        await home.wait_notified("STOPPING=1")
        os.kill(pid, signal.SIGCONT)
        assert "content" in (await client.get())["result"]


async def test_what_was_not_sent_is_given_back_before_and_after_the_calls_in_flight(
    autojump_clock: MockClock,
) -> None:
    told = list[str]()
    session: Any = SimpleNamespace(
        is_awaited=True,
        give_back=lambda: told.append("given back"),
        lose_calls=lambda _error: told.append("lost"),
    )
    await drain([session], {})
    assert told == ["given back", "given back", "lost"]


async def test_once_it_ends_nobody_new_is_let_in(nursery: trio.Nursery, sockets: Path) -> None:
    async with house(sockets, {"mcpServers": {"s": ECHO}}) as home:
        client = await home.connect(nursery)
        await home.wait_ready("s")
        await client.call("s", "hang")
        home.stop.set()
        await home.wait_notified("STOPPING=1")
        late = socket.socket(socket.AF_UNIX)
        with late:
            late.connect(str(sockets / "front"))
            assert error_of(await client.get())["code"] == "UpstreamLost"
            assert list(home.tree.front.sessions) in ([], [1])


async def test_stubborn_servers_end_after_their_grace_periods(sockets: Path) -> None:
    timeouts = {"stopEof": 0.2, "stopTerm": 0.2}
    servers = {name: {**STUBBORN, "timeouts": timeouts} for name in ("a", "b", "c")}
    async with house(sockets, {"mcpServers": servers}) as home:
        await home.wait_ready("a", "b", "c")
        pids = list(home.pids().values())
        began = trio.current_time()
    assert trio.current_time() - began >= 0.4
    assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)


# --- the service manager's watchdog ------------------------------------------------------------------------


@contextmanager
def leaping(clock: MockClock) -> Iterator[None]:
    """Leap from deadline to deadline: only once everything is up, for threads take their time."""
    clock.rate, clock.autojump_threshold = 0, 0
    try:
        yield
    finally:
        clock.rate, clock.autojump_threshold = 1, math.inf


async def feedings(home: House, count: int) -> None:
    """Wait for so many further signs of life."""
    wanted = home.notified.count("WATCHDOG=1") + count
    while home.notified.count("WATCHDOG=1") < wanted:
        await home.told.wait()


async def test_the_watchdog_is_fed_three_times_per_interval(sockets: Path, mock_clock: MockClock) -> None:
    mock_clock.rate = 1
    async with house(sockets, {}, watchdog=30.0) as home:
        with leaping(mock_clock), trio.fail_after(100):
            await feedings(home, 1)
            began = trio.current_time()
            await feedings(home, 3)
            assert trio.current_time() - began == pytest.approx(30, abs=0.1)


async def test_a_stuck_registry_starves_the_watchdog(
    nursery: trio.Nursery, sockets: Path, autojump_clock: MockClock
) -> None:
    """Here the registry does not run at all: nothing but its answer may count as a sign of life."""
    home = House(sockets, config_of({}), watchdog=30.0)
    try:
        nursery.start_soon(feed_watchdog, home._notify, 30.0, home.tree.registry.settle)
        await trio.sleep(1000)
        assert home.notified == []
        nursery.start_soon(home.tree.registry.run)
        await home.wait_notified("WATCHDOG=1")
    finally:
        home.close()


# --- a configuration that becomes another ------------------------------------------------------------------


async def test_an_operator_who_goes_away_leaves_no_reload_half_done(
    nursery: trio.Nursery, sockets: Path
) -> None:
    timeouts = {"stopEof": 0.3, "stopTerm": 0.3}
    async with house(sockets, {"mcpServers": {"old": {**STUBBORN, "timeouts": timeouts}}}) as home:
        await home.wait_ready("old")
        pid = home.pids()["old"]
        operator = await home.connect(nursery, "control")
        home.write({"mcpServers": {"new": ECHO}})
        await operator.ask("reload", {})
        with trio.fail_after(PATIENCE):
            await home.tree.registry.catalog.wait_until(lambda catalog: "new" in catalog.servers)
        operator.close()
        await home.wait_ready("new")
        # The next one waits for it.
        plan = await home.reload({"mcpServers": {"new": ECHO}})
        assert plan == Plan(kept=("new",))
        assert not is_alive(pid)


async def test_a_reload_ends_what_was_allowed_only_where_the_entry_means_another_program(sockets: Path) -> None:
    async with house(sockets, {"mcpServers": {"a": ECHO, "b": ECHO}}) as home:
        await home.wait_ready("a", "b")
        grants = home.tree.sessions.unnamed().grants
        for server in ("a", "b"):
            grants.allow(home.tree.registry.catalog.value.servers[server].all_tools["echo"], "its user")
        other = {**ECHO, "args": [*ECHO["args"], "--other"]}
        await home.reload({"mcpServers": {"a": {**ECHO, "timeouts": {"call": 5}}, "b": other}})
        assert [server for server, _tool in grants.current(trio.current_time())] == ["a"]


async def test_the_end_does_not_wait_for_a_reload(sockets: Path) -> None:
    timeouts = {"stopEof": 60, "stopTerm": 60}
    async with house(sockets, {"mcpServers": {"old": {**STUBBORN, "timeouts": timeouts}}}) as home:
        await home.wait_ready("old")
        pid = home.pids()["old"]
        home.write({})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_refused, home)
            with trio.fail_after(PATIENCE):
                await home.tree.registry.catalog.wait_until(lambda catalog: not catalog.servers)
            home.stop.set()
        await _refused(home)
        await home.wait_notified("STOPPING=1")
        home.around.children.hurry()
    assert not is_alive(pid)
    assert not any(state.startswith("READY") for state in home.notified[-1:])


async def _refused(home: House) -> None:
    with trio.fail_after(PATIENCE), pytest.raises(Refused, match="shutting down"):
        await home.tree.reloader.reload()


# --- malformed input on the real socket and from a real child, to a whole daemon -----------------------------


INPUTS = 300
SEED = 7
SAYS = {"command": sys.executable, "args": ["-S", "-E", str(Path(saying_server.__file__))]}
CALL = (
    b'{"jsonrpc":"2.0","id":"valid","method":"tools/call","params":{"name":"call-category-tool",'
    b'"arguments":{"category":"says","name":"echo","args":{"nonce":"still here"}}}}'
)


async def test_a_real_daemon_keeps_its_promises_to_clients_and_calls_whatever_either_side_says(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, {"mcpServers": {"says": SAYS}}) as at:
        await at.wait_ready("says")

        async def connect() -> trio.abc.Stream:
            return await trio.open_unix_socket(tmp_path / "front")

        of_clients, of_servers = Results("clients", SEED), Results("servers", SEED)
        await talk(connect, malformed(SEED, FROM_CLIENTS, INPUTS), of_clients, call=CALL, sign=b"still here")
        await listen(await connect(), malformed(SEED, FROM_SERVERS, INPUTS), of_servers)
        assert not of_clients.faults + of_servers.faults
        assert of_clients.inputs == of_servers.inputs == INPUTS
