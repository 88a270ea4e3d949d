"""The whole daemon in this process: real sockets, a real child, a real end."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from daemon import tree as daemon_tree
from daemon.config.parse import secrets
from daemon.redact import Redactor
from daemon.report import DaemonFacts
from daemon.states import ServerState
from daemon.tree import DRAIN_SECONDS, STOP_SECONDS, Surroundings, Tree
from tests.config.reading import config_of
from tests.fakes_upstream import ECHO_SERVER, Client, described, error_of, keep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from trio.testing import MockClock

    from daemon.config.model import Config

ECHO = {"command": sys.executable, "args": ["-S", "-E", "-c", ECHO_SERVER]}
STUBBORN = {
    "command": sys.executable,
    "args": [
        "-S",
        "-E",
        "-c",
        f"import signal; signal.signal(15, signal.SIG_IGN)\n{ECHO_SERVER}\nimport time; time.sleep(60)",
    ],
}
"""Ignores the end of its stdin and SIGTERM: only a kill ends it."""


class House:
    """A tree with everything that it is handed."""

    def __init__(self, directory: Path, config: Config, **more: Any) -> None:
        self.directory = directory
        self.notified: list[str] = []
        self.told = trio.Event()
        self.stop = trio.Event()
        self.around = Surroundings(
            front=self._listen("front"),
            control=self._listen("control"),
            facts=DaemonFacts(
                version="1",
                pid=os.getpid(),
                started_at=time.time(),
                socket=str(directory / "front"),
                control_socket=str(directory / "control"),
                config="c",
            ),
            redact=Redactor(secrets(config)),
            notify=self._notify,
            **more,
        )
        self.tree = Tree(config, self.around)

    def _listen(self, name: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.directory / name))
        listener.listen(10)
        listener.setblocking(False)
        return listener

    def _notify(self, state: str) -> None:
        self.notified.append(state)
        self.told.set()
        self.told = trio.Event()

    async def wait_notified(self, state: str, count: int = 1) -> None:
        with trio.fail_after(5):
            while sum(told.startswith(state) for told in self.notified) < count:
                await self.told.wait()

    async def connect(self, nursery: trio.Nursery, door: str = "front") -> Client:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.directory / door))
        client = Client(connection)
        nursery.start_soon(keep, client)
        await client.request("ping" if door == "front" else "tools", request_id="hello")
        return client

    async def wait_ready(self, *servers: str) -> None:
        with trio.fail_after(5):
            for server in servers:
                await self.tree.supervisor.children[server].status.wait_until(
                    lambda status: status.state is ServerState.READY
                )
                await self._wait_available(server)

    async def _wait_available(self, server: str) -> None:
        await self.tree.registry.catalog.wait_until(lambda catalog: catalog.servers[server].available)

    def close(self) -> None:
        self.around.front.close()
        self.around.control.close()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Short: the path of a unix socket has 107 bytes at most, pytest's own directories may be longer."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        yield Path(directory)


@asynccontextmanager
async def house(directory: Path, config: object, **more: Any) -> AsyncIterator[House]:
    """Serve, and stop at the end; that it ends in time is part of every test."""
    built = House(directory, config_of(config), **more)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(built.tree.serve, built.stop)
            await built.wait_notified("READY=1")
            yield built
            built.stop.set()
            nursery.cancel_scope.deadline = trio.current_time() + 8
    finally:
        built.close()


def pids_of(tree: Tree) -> list[int]:
    return [upstream.pid for upstream in tree.upstreams.values() if upstream.pid is not None]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_daemon_without_servers_is_ready_serves_and_ends(nursery: trio.Nursery, tmp_path: Path) -> None:
    async with house(tmp_path, {}) as home:
        assert home.notified == ["READY=1\nSTATUS=serving"]
        client = await home.connect(nursery)
        assert len((await client.request("tools/list"))["result"]["tools"]) == 2
        operator = await home.connect(nursery, "control")
        status = (await operator.request("status"))["result"]
        assert [session["number"] for session in status["sessions"]] == [1]
    assert home.notified[1:] == ["STOPPING=1\nSTATUS=stopping"]
    assert await client.is_closed()
    assert await operator.is_closed()


async def test_ready_is_told_before_any_server_is_up(tmp_path: Path) -> None:
    """R18: no server is waited for."""
    async with house(tmp_path, {"mcpServers": {"slow": {"command": "sleep", "args": ["60"]}}}) as home:
        assert home.tree.supervisor.children["slow"].status.value.state in {
            ServerState.STOPPED,
            ServerState.STARTING,
        }


async def test_a_call_goes_through_the_whole_house(nursery: trio.Nursery, tmp_path: Path) -> None:
    async with house(tmp_path, {"mcpServers": {"s": ECHO}}) as home:
        client = await home.connect(nursery)
        await client.describe("s")
        assert list(described(await client.get())["tools"]) == ["echo", "hang"]
        await client.call("s", "echo", {"n": 1}, request_id="x")
        answer = await client.get()
        assert (answer["id"], answer["result"]["content"][0]["text"]) == ("x", '{"n": 1}')
        operator = await home.connect(nursery, "control")
        server = (await operator.request("status"))["result"]["servers"]["s"]
        assert (server["state"], server["calls"], server["tools"]) == ("ready", 1, 2)
        assert [server["pid"]] == pids_of(home.tree)
        assert server["rssBytes"] > 1_000_000


async def test_the_end_answers_calls_in_flight_and_leaves_no_child(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    async with house(tmp_path, {"mcpServers": {"s": ECHO}}) as home:
        client = await home.connect(nursery)
        await home.wait_ready("s")
        pids = pids_of(home.tree)
        assert len(pids) == 1
        await client.call("s", "hang")
        with trio.fail_after(5):
            while not home.tree.upstreams["s"].in_flight:
                await trio.lowlevel.checkpoint()
        began = trio.current_time()
        home.stop.set()
        error = error_of(await client.get())
        assert error["code"] == "UpstreamLost"
        assert "shutting down" in error["message"]
        assert DRAIN_SECONDS <= trio.current_time() - began < DRAIN_SECONDS + 1
        assert await client.is_closed()
    assert not any(is_alive(pid) for pid in pids)
    assert {str(child.status.value.state) for child in home.tree.supervisor.children.values()} == {"stopped"}


async def test_the_end_waits_for_a_call_that_finishes_in_time(nursery: trio.Nursery, tmp_path: Path) -> None:
    async with house(tmp_path, {"mcpServers": {"s": ECHO}}) as home:
        client = await home.connect(nursery)
        await home.wait_ready("s")
        pid = home.tree.upstreams["s"].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await client.call("s", "echo")
        with trio.fail_after(5):
            while not home.tree.upstreams["s"].in_flight:
                await trio.lowlevel.checkpoint()
        home.stop.set()
        await home.wait_notified("STOPPING=1")
        os.kill(pid, signal.SIGCONT)
        assert "content" in (await client.get())["result"]


async def test_once_it_ends_nobody_new_is_let_in(nursery: trio.Nursery, tmp_path: Path) -> None:
    async with house(tmp_path, {"mcpServers": {"s": ECHO}}) as home:
        client = await home.connect(nursery)
        await home.wait_ready("s")
        await client.call("s", "hang")
        home.stop.set()
        await home.wait_notified("STOPPING=1")
        late = socket.socket(socket.AF_UNIX)
        with late:
            late.connect(str(tmp_path / "front"))
            assert error_of(await client.get())["code"] == "UpstreamLost"
            assert list(home.tree.front.guests) in ([], [1])


async def test_hurry_skips_every_grace_period(tmp_path: Path) -> None:
    async with house(tmp_path, {"mcpServers": {"a": STUBBORN, "b": STUBBORN}}) as home:
        await home.wait_ready("a", "b")
        pids = pids_of(home.tree)
        began = trio.current_time()
        home.stop.set()
        await home.wait_notified("STOPPING=1")
        home.tree.hurry()
    assert trio.current_time() - began < 2
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)


async def test_stubborn_servers_end_together_within_the_promised_time(tmp_path: Path) -> None:
    timeouts = {"stopEof": 0.2, "stopTerm": 0.2}
    servers = {name: {**STUBBORN, "timeouts": timeouts} for name in ("a", "b", "c")}
    async with house(tmp_path, {"mcpServers": servers}) as home:
        await home.wait_ready("a", "b", "c")
        pids = pids_of(home.tree)
        began = trio.current_time()
    assert 0.4 <= trio.current_time() - began < STOP_SECONDS
    assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)


async def test_a_disabled_server_is_not_run_and_a_lazy_one_not_yet(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    servers = {"off": {**ECHO, "enabled": False}, "lazy": {**ECHO, "start": "lazy"}}
    async with house(tmp_path, {"mcpServers": servers}) as home:
        assert list(home.tree.upstreams) == ["lazy"]
        await trio.testing.wait_all_tasks_blocked()
        assert pids_of(home.tree) == []
        client = await home.connect(nursery)
        await client.call("lazy", "echo")
        assert "content" in (await client.get())["result"]
        assert len(pids_of(home.tree)) == 1


async def test_no_secret_in_a_reason_is_shown_to_a_model(nursery: trio.Nursery, tmp_path: Path) -> None:
    """S4: what `mcpd status` redacts, an answer to a client must not show either."""
    environ = {"TOKEN": "canary-1234567"}
    config = config_of({"mcpServers": {"s": {"command": "/nowhere/${TOKEN}/server"}}}, environ)
    assert "canary-1234567" in secrets(config)
    home = House(tmp_path, config)
    try:
        async with trio.open_nursery() as serving:
            serving.start_soon(home.tree.serve, home.stop)
            client = await home.connect(nursery)
            with trio.fail_after(5):
                await home.tree.registry.catalog.wait_until(
                    lambda catalog: catalog.servers["s"].status.state is ServerState.FAILED
                )
            await client.describe("s")
            assert b"canary" not in await client.line()
            await client.call("s", "echo")
            assert b"canary" not in await client.line()
            home.stop.set()
    finally:
        home.close()


# --- the service manager's watchdog ------------------------------------------------------------------------


async def test_the_watchdog_is_fed_three_times_per_interval(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with house(tmp_path, {}, watchdog=30.0) as home:
        began = trio.current_time()
        # The first comes at once, or between two of the test's own looks; then one every ten seconds.
        with trio.fail_after(100):
            while home.notified.count("WATCHDOG=1") < 4:
                await home.told.wait()
        assert trio.current_time() - began == pytest.approx(30, abs=0.1)


async def test_without_a_watchdog_nobody_is_fed(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with house(tmp_path, {}) as home:
        await trio.sleep(1000)
        assert home.notified == ["READY=1\nSTATUS=serving"]


async def test_a_stuck_registry_starves_the_watchdog(
    nursery: trio.Nursery, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Here the registry does not run at all: nothing but its answer may count as a sign of life."""
    home = House(tmp_path, config_of({}), watchdog=30.0)
    try:
        nursery.start_soon(home.tree._feed_watchdog)
        await trio.sleep(1000)
        assert home.notified == []
        nursery.start_soon(home.tree.registry.run)
        await home.wait_notified("WATCHDOG=1")
    finally:
        home.close()


# --- signals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_daemon_and_sighup_does_not(tmp_path: Path, number: signal.Signals) -> None:
    home = House(tmp_path, config_of({}))
    try:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(daemon_tree.run, config_of({}), home.around)
                await home.wait_notified("READY=1")
                os.kill(os.getpid(), signal.SIGHUP)
                await trio.testing.wait_all_tasks_blocked()
                assert home.notified == ["READY=1\nSTATUS=serving"]
                os.kill(os.getpid(), number)
        assert home.notified[-1].startswith("STOPPING=1")
    finally:
        home.close()
