"""Measures starts, stops and reloads of the daemon: R12, R17, R18, R19."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from bench.reliability.promise import Finding, milliseconds, percentile
from bench.reliability.stage import at_work, server, when
from bench.running import prepared
from daemon.cli import control
from tests.e2e.forking import FORKS
from tests.e2e.harness import RawClient, scripted
from tests.e2e.test_kills import TOOLS, Lives, loading, sound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.reliability.promise import Scale
    from bench.reliability.stage import Watched
    from bench.running import Daemon

KILLS = 1000
"""Daemons killed in the full measurement of R12."""

LIVES_BETWEEN_CHECKS = 25


def state(scale: Scale) -> Iterator[Finding]:
    """R12: daemons are killed at random moments while sessions load tools."""
    kills = scale.of(KILLS, least=3)
    chance = random.Random(12)
    spoilt = checks = 0
    config: dict[str, Any] = {"profiles": {"default": {"surface": "load"}}}
    with at_work({"s": scripted(tools=TOOLS)}, **config) as daemon:
        daemon.stop()
        with forking(), Lives(daemon) as lives, loading(daemon, seed=12) as crowd:
            longest = 2 * beginning(daemon, lives)
            for kill in range(kills):
                lives.begin()
                time.sleep(chance.uniform(0, longest))
                lives.kill()
                if kill % LIVES_BETWEEN_CHECKS == 0:
                    checks += 1
                    spoilt += not sound(daemon)
        daemon.start()
        lost = sum(len(each.missing()) for each in crowd)
        assert not [each.fault for each in crowd if each.fault], crowd
        spoilt += not sound(daemon) or bool(list(daemon.state.parent.glob("*corrupt*")))
    writes = sum(len(each.acknowledged) for each in crowd)
    yield Finding(
        name="R12",
        measured=f"{lost} of {writes:,} acknowledged loads lost, {spoilt} of {checks + 1} looks at the file"
        f" found it spoilt ({kills:,} kills)",
        kept=lost == 0 and spoilt == 0 and writes > 0,
    )


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Allow forking of daemons during the block."""
    FORKS.start()
    try:
        yield
    finally:
        FORKS.stop()


def beginning(daemon: Watched, lives: Lives) -> float:
    """Seconds until a daemon answers its first client; of the second daemon, as the first has cold caches."""
    took = 0.0
    for _ in range(2):
        lives.begin()
        began = time.perf_counter()
        took = when(lambda: answers(daemon)) - began
        lives.kill()
    return took


def answers(daemon: Watched) -> bool:
    """Whether a daemon answers on the socket."""
    try:
        with RawClient(daemon.socket) as client:
            return "result" in client.ask("ping")
    except (OSError, AssertionError):
        return False


STOPS = 200
"""Stops of an idle daemon in the full measurement of R17."""

STUBBORN = 50
"""Children that ignore SIGTERM and the end of stdin."""


def ends(scale: Scale) -> Iterator[Finding]:
    """R17: the daemon is told to stop, while idle and with children that refuse to end."""
    idle, left = [], 0
    for _ in range(scale.of(STOPS, least=2)):
        with at_work({"s": server(tools=["echo"])}) as daemon:
            seconds, rest = end(daemon)
        idle.append(seconds)
        left += rest
    stubborn = {
        f"s{n}": server(tools=["echo"], ignore=["term", "eof"]) for n in range(scale.of(STUBBORN, least=3))
    }
    with at_work(stubborn) as daemon:
        slow, rest = end(daemon)
    left += rest
    yield Finding(
        name="R17",
        measured=f"idle: p50 {milliseconds(percentile(idle, 0.5))}, longest {milliseconds(max(idle))}"
        f" ({len(idle)} times); {len(stubborn)} children that ignore TERM: {slow:.2f} s; {left} files left",
        kept=max(idle) <= 1.0 and slow <= 5.0 and left == 0,
    )


def end(daemon: Watched) -> tuple[float, int]:
    """Stop the daemon: the seconds that it took, and what it left; `at_work` looks for processes."""
    begun = time.perf_counter()
    status = daemon.stop()
    took = time.perf_counter() - begun
    assert status == 0, daemon.said()
    sockets = list(daemon.socket.parent.glob("*.sock"))
    # A WAL that was not taken into the file is one that nobody closed.
    return took, len([*sockets, *daemon.state.parent.glob("*-wal"), *daemon.state.parent.glob("*-shm")])


STARTS = 20
"""Starts of the daemon in the full measurement of R18."""

SILENT = 50
"""Servers that never answer."""


def ready(scale: Scale) -> Iterator[Finding]:
    """R18: from the start of the process to READY=1, with servers that accept connections but stay silent."""
    with ExitStack() as stack:
        port = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4 * SILENT)).getsockname()[1]
        kinds: list[dict[str, Any]] = [
            {"url": f"http://127.0.0.1:{port}/mcp"},
            {"url": f"ws://127.0.0.1:{port}/mcp"},
            {"url": f"http://127.0.0.1:{port}/sse", "type": "sse"},
            {"command": "sleep", "args": ["600"], "timeouts": {"stopEof": 0, "stopTerm": 0.5}},
        ]
        config = {"mcpServers": {f"s{number}": kinds[number % len(kinds)] for number in range(SILENT)}}
        daemon = stack.enter_context(prepared({}))
        empty = [started(daemon, {"mcpServers": {}}) for _ in range(scale.of(STARTS, least=3))]
        full = [started(daemon, config) for _ in range(scale.of(STARTS, least=3))]
    middle, longest = percentile(full, 0.5), max(full)
    yield Finding(
        name="R18",
        measured=f"p50 {milliseconds(middle)}, longest {milliseconds(longest)}; without any server p50"
        f" {milliseconds(percentile(empty, 0.5))} ({len(full)} starts)",
        kept=longest <= 0.500,
    )


def started(daemon: Daemon, config: dict[str, Any]) -> float:
    """Seconds from the start of the daemon's process to READY=1, without instrumentation."""
    daemon.configured = config
    daemon.write()
    begun = time.perf_counter()
    daemon.start()
    took = time.perf_counter() - begun
    daemon.stop()
    return took


RELOADS = 20
"""Reloads of each kind in the full measurement of R19."""

CONFIGURED = 20


def reloads(scale: Scale) -> Iterator[Finding]:
    """R19: a reload of a faulty file, then one with one changed server."""
    times = scale.of(RELOADS, least=2)
    servers = {f"s{number}": server(tools=["echo"], version="0") for number in range(CONFIGURED)}
    strayed, seconds = 0, []
    with at_work(servers) as daemon:
        before = pids(daemon)
        for _ in range(times):
            reload(daemon, '{"mcpServers": {"s0": {"comand": "x"}}', faulty=True)
        strayed += sum(pids(daemon)[name] != pid for name, pid in before.items())
        for number in range(times):
            before, name = pids(daemon), f"s{number % CONFIGURED}"
            servers[name] = server(tools=["echo", "pid"], version=str(number + 1))
            begun = time.perf_counter()
            reload(daemon, json.dumps({"mcpServers": servers}), faulty=False)
            seconds.append(when(applied(daemon, name, before[name])) - begun)
            now = pids(daemon)
            strayed += sum(now[other] != pid for other, pid in before.items() if other != name)
    yield Finding(
        name="R19",
        measured=f"{strayed} servers restarted that should not have been; applied within"
        f" {milliseconds(max(seconds))} ({times} faulty and {times} good files)",
        kept=strayed == 0 and max(seconds) <= 1.0,
    )


def pids(daemon: Watched) -> dict[str, int]:
    """The pid of each server."""
    return {name: found["pid"] for name, found in daemon.ask("status")["servers"].items()}


def applied(daemon: Watched, name: str, before: int) -> Callable[[], bool]:
    """A check whether a server runs with its current entry in the file."""

    def look() -> bool:
        now = daemon.server(name)
        return bool(now["state"] == "ready" and now["pid"] != before)

    return look


def reload(daemon: Watched, text: str, *, faulty: bool) -> None:
    """Write another configuration and reload."""
    daemon.config.write_text(text)
    try:
        daemon.ask("reload")
    except control.RemoteFault:
        assert faulty, text
    else:
        assert not faulty, text
