"""Signals and the watched file: what ends the daemon, and what makes it read its configuration anew."""

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from daemon.actors.registry import Registry
from daemon.clients.doors.http.binding import bind_http
from daemon.config.config_model import Config
from daemon.host.notify import Signals
from daemon.main import lifetime
from daemon.main.run import ConfigFile
from tests.houses import ECHO, House
from tests.unit.config.reading import config_of
from tests.waiting import PATIENCE, background, beside


@asynccontextmanager
async def daemon(
    directory: Path, config: object, *early: int, http: socket.socket | None = None
) -> AsyncIterator[House]:
    """A daemon that obeys this process's signals, also those that come before it is there; SIGTERM ends it."""
    (directory / "mcpd.json").write_text(json.dumps(config))
    file = ConfigFile(directory / "mcpd.json")
    built = file.read()
    signals = Signals()
    # Only its sockets and what it is told are used: the tree that runs is `lifetime`'s own.
    home = House(directory, built, redact=file.redact, file=file, http=http)
    for number in early:
        os.kill(os.getpid(), number)
    try:
        with trio.fail_after(2 * PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lifetime.run, built, home.around, signals.listen)
                await home.wait_notified("READY=1")
                yield home
                os.kill(os.getpid(), signal.SIGTERM)
        assert home.notified[-1].startswith("STOPPING=1")
    finally:
        signals.restore()
        home.close()


async def status_of(home: House) -> dict[str, Any]:
    async with background() as nursery:
        operator = await home.connect(nursery, "control")
        answer: dict[str, Any] = (await operator.request("status"))["result"]
    return answer


async def test_garbage_is_looked_for_from_ready_on_and_not_among_what_was_there_before(sockets: Path) -> None:
    before = gc.get_threshold()
    gc.disable()
    try:
        async with daemon(sockets, {}):
            with trio.fail_after(30):
                while not gc.isenabled():  # noqa: ASYNC110 - the collector sets no event
                    await trio.sleep(0.01)
            assert gc.get_freeze_count() > 0
            assert gc.get_threshold()[0] == lifetime.YOUNG_OBJECTS
            assert {"rapidfuzz.process", "jsonschema_rs"} <= sys.modules.keys()
    finally:
        gc.set_threshold(*before)
        gc.enable()
        gc.unfreeze()


async def test_a_variable_that_a_server_waits_for_is_looked_for_though_nothing_else_is_watched(
    sockets: Path,
) -> None:
    config = {"mcpServers": {"a": {**ECHO, "env": {"KEY": "${SET_NOWHERE_YET}"}}}}
    async with daemon(sockets, config) as home:
        assert (await status_of(home))["servers"]["a"]["tools"] == 0
        (sockets / "env").write_text("SET_NOWHERE_YET=abc\n")
        await home.wait_notified("READY=1", 2)
        assert (await status_of(home))["servers"]["a"]["cause"] is None


@pytest.mark.parametrize(("early", "told"), [(signal.SIGHUP, "RELOADING=1"), (signal.SIGTERM, "STOPPING=1")])
async def test_a_signal_that_came_before_anybody_listened_is_obeyed(
    sockets: Path, early: int, told: str
) -> None:
    async with daemon(sockets, {}, early) as home:
        await home.wait_notified(told)


FULL = RuntimeError("can't start new thread")


class FakeFile:
    """A file that is what the test says at each look; it counts how often it was read."""

    def __init__(self, looks: list[object]) -> None:
        self.seen: Any = looks[0]
        self.looks = iter(looks)
        self.reads: list[object] = []
        self.now: Any = None
        self.over = trio.Event()

    def look(self) -> Any:
        found = next(self.looks, None)
        if found is None:
            trio.from_thread.run_sync(self.over.set)
            return self.now
        if isinstance(found, Exception):
            raise found
        self.now = found
        return found

    def read(self) -> Config:
        raise AssertionError("reading is the tree's")


class FakeTree:
    """As much of a tree as is watched for."""

    def __init__(self, file: FakeFile, *, watch: bool) -> None:
        self.registry = Registry(config_of({"watch": watch}), wall=lambda: 0.0)
        self.reloader = self
        self._file = file

    async def reload(self) -> None:
        await trio.lowlevel.checkpoint()
        self._file.seen = self._file.now
        self._file.reads.append(self._file.now)


@pytest.mark.parametrize(
    ("looks", "reads"),
    [
        ([1, 1, 1, 1], []),
        ([1, 2, 2, 2], [2]),
        ([1, 2, 3, 4, 4, 4], [4]),
        ([1, 2, 1, 1], []),
        ([1, 2, 2, 3, 3, 3], [2, 3]),
        ([2, 2, 1, 1, 2, 2], [1, 2]),
        # A look that fails is none, and the next one sees what has changed.
        ([1, FULL, FULL, 2, 2, FULL, 2, 3, 3], [2, 3]),
    ],
)
async def test_a_file_is_read_once_it_has_been_another_for_one_look(
    looks: list[object], reads: list[object], autojump_clock: trio.testing.MockClock
) -> None:
    file = FakeFile(looks)
    life = lifetime._Life(FakeTree(file, watch=True))  # type: ignore[arg-type]
    async with beside(life.watch, file):
        await file.over.wait()
    assert file.reads == reads


async def test_the_switches_are_told_at_the_start_and_when_they_change(
    nursery: trio.Nursery, logged: list[str]
) -> None:
    tree = FakeTree(FakeFile([1]), watch=True)
    nursery.start_soon(lifetime._Life(tree).tell_switches)  # type: ignore[arg-type]
    for config in ({"idle": 60}, {"lazy": False}, {"lazy": False, "idle": 60}, {}):
        await trio.testing.wait_all_tasks_blocked()
        tree.registry.config.set(config_of(config))
    await trio.testing.wait_all_tasks_blocked()
    assert [line.split()[3] for line in logged] == ["on;", "off:", "on;"]


async def test_a_connection_between_two_looks_is_use(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    tree: Any = SimpleNamespace(
        serving=trio.Event(),
        front=SimpleNamespace(sessions={}, count=0),
        servers=SimpleNamespace(actors={}),
        registry=Registry(config_of({"idle": 60}), wall=lambda: 0.0),
    )
    tree.serving.set()
    life, began = lifetime._Life(tree), trio.current_time()
    nursery.start_soon(life.end_when_idle)
    await trio.sleep(58)
    tree.front.count += 1
    await life.stop.wait()
    assert trio.current_time() - began == pytest.approx(120)


async def test_a_second_signal_waits_for_no_balancer(sockets: Path) -> None:
    http = {"tokens": "0123456789abcdef", "drain": 3600}
    with closing(bind_http("127.0.0.1:0")) as listener:
        async with daemon(sockets, {"listen": {"http": http}}, http=listener) as home:
            os.kill(os.getpid(), signal.SIGTERM)
            await home.wait_notified("STOPPING=1")
