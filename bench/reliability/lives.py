"""Starts, ends and reloads of the daemon: R12, R17, R18, R19."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Self

from bench.reliability.promise import Finding, milliseconds, percentile
from bench.reliability.stage import at_work, server, when
from daemon.cli import control
from tests.e2e.harness import ROOT, WAIT, RawClient, scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.reliability.promise import Scale
    from bench.reliability.stage import Watched

KILLS = 1000
"""Lives that are cut off in the full measure of R12."""

CLIENTS = 3

TOOLS = 150
"""Tools that clients load, again and again."""

LIVES_BETWEEN_CHECKS = 25

AGAIN_SECONDS = 0.01
"""Until a client whose line broke connects again."""

FORKER = """
import os, sys
from daemon import lifetime, logs, tree
from daemon.cli import run
from daemon.state import store
for _ in sys.stdin:
    life = os.fork()
    if life == 0:
        status = 70
        try:
            os.close(1)
            status = run.main(sys.argv[1:])
        finally:
            os._exit(status)
    print(life, flush=True)
    os.waitpid(life, 0)
    print("ended", flush=True)
"""
"""Begins one life after the other, with everything imported: interpreters would take most of the time."""


class Lives:
    """Daemons on one configuration and one state, one after the other."""

    def __init__(self, daemon: Watched) -> None:
        """Prepare; no life has begun."""
        words = [sys.executable, "-c", FORKER, "--config", str(daemon.config)]
        with daemon.log.open("ab") as log:
            self._forker = subprocess.Popen(
                words,
                cwd=ROOT,
                env=daemon.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._pid = 0

    def begin(self) -> None:
        """Start one; it may not be listening yet."""
        assert self._forker.stdin is not None
        self._forker.stdin.write("\n")
        self._forker.stdin.flush()
        self._pid = int(self._said())

    def kill(self) -> None:
        """Cut it off, and wait until it is gone."""
        os.kill(self._pid, signal.SIGKILL)
        self._said()

    def _said(self) -> str:
        assert self._forker.stdout is not None
        said = self._forker.stdout.readline()
        assert said, "a life ended by itself"
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)
        self._forker.communicate(timeout=WAIT)


class Loader(threading.Thread):
    """Loads tools under a key through all lives, and looks in each whether what was acknowledged is there."""

    def __init__(self, daemon: Watched, key: str) -> None:
        """Not yet."""
        super().__init__(name=key)
        self.key = key
        self.acknowledged: list[str] = []
        self.lost: set[str] = set()
        self.fault: BaseException | None = None
        self._daemon = daemon
        self._chance = random.Random(key)
        self._over = threading.Event()

    def run(self) -> None:
        """Until it is stopped."""
        try:
            while not self._over.is_set():
                with contextlib.suppress(OSError, AssertionError, ValueError):
                    self._converse()
                self._over.wait(AGAIN_SECONDS)
        except BaseException as fault:  # noqa: BLE001 - told by whoever started it
            self.fault = fault

    def stop(self) -> None:
        """Stop after what is under way."""
        self._over.set()
        self.join(2 * WAIT)

    def _converse(self) -> None:
        with RawClient(self._daemon.socket) as client:
            client.hello(session=self.key)
            known = client.listed()
            self.lost |= set(self.acknowledged) - set(known)
            while not self._over.is_set():
                names = [f"echo{self._chance.randrange(TOOLS)}" for _ in range(self._chance.randint(1, 3))]
                client.load(*names)
                self.acknowledged += names


def state(scale: Scale) -> Iterator[Finding]:
    """R12: daemons are cut off at random moments while sessions load tools."""
    kills = scale.of(KILLS, least=3)
    chance = random.Random(12)
    spoilt = checks = 0
    config: dict[str, Any] = {"profiles": {"default": {"surface": "load"}}}
    with at_work({"s": scripted(tools=TOOLS)}, **config) as daemon:
        daemon.stop()
        with Lives(daemon) as lives, loading(daemon) as crowd:
            longest = 2 * beginning(daemon, lives)
            for kill in range(kills):
                lives.begin()
                time.sleep(chance.uniform(0, longest))
                lives.kill()
                if kill % LIVES_BETWEEN_CHECKS == 0:
                    checks += 1
                    spoilt += not sound(daemon)
        daemon.start()
        lost = sum(len(each.lost | missing(daemon, each)) for each in crowd)
        assert not [each.fault for each in crowd if each.fault], crowd
        spoilt += not sound(daemon) or bool(list(daemon.state.parent.glob("*corrupt*")))
    writes = sum(len(each.acknowledged) for each in crowd)
    yield Finding(
        name="R12",
        measured=f"{lost} of {writes:,} acknowledged loads lost, {spoilt} of {checks + 1} looks at the file"
        f" found it spoilt ({kills:,} kills)",
        kept=lost == 0 and spoilt == 0 and writes > 0,
        numbers={"lost": lost, "writes": writes, "kills": kills, "spoilt": spoilt},
    )


@contextlib.contextmanager
def loading(daemon: Watched) -> Iterator[list[Loader]]:
    """Clients that load while the block runs."""
    crowd = [Loader(daemon, f"session {number}") for number in range(CLIENTS)]
    for each in crowd:
        each.start()
    try:
        yield crowd
    finally:
        for each in crowd:
            each.stop()


def beginning(daemon: Watched, lives: Lives) -> float:
    """Seconds until a life answers its first client; the second life's, for the first one's caches are cold."""
    took = 0.0
    for _ in range(2):
        lives.begin()
        began = time.perf_counter()
        took = when(lambda: answers(daemon)) - began
        lives.kill()
    return took


def answers(daemon: Watched) -> bool:
    """Whether somebody answers there."""
    try:
        with RawClient(daemon.socket) as client:
            return "result" in client.ask("ping")
    except (OSError, AssertionError):
        return False


def missing(daemon: Watched, loader: Loader) -> set[str]:
    """What was acknowledged, and is not in the session that comes back."""
    with daemon.client().hello(session=loader.key) as client:
        return set(loader.acknowledged) - set(client.listed())


def sound(daemon: Watched) -> bool:
    """Whether SQLite finds nothing wrong; it looks, and writes nothing."""
    with closing(sqlite3.connect(f"file:{daemon.state}?mode=ro", uri=True, timeout=WAIT)) as connection:
        return connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]


STOPS = 200
"""Ends of an idle daemon in the full measure of R17."""

STUBBORN = 50
"""Children that ignore SIGTERM and the end of their stdin."""


def ends(scale: Scale) -> Iterator[Finding]:
    """R17: the daemon is told to end, idle, and with children that will not."""
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
        numbers={"idle_longest_ms": max(idle) * 1e3, "stubborn_ms": slow * 1e3, "left": left},
    )


def end(daemon: Watched) -> tuple[float, int]:
    """End it: the seconds until it is gone, and what it left; `at_work` looks for processes."""
    begun = time.perf_counter()
    status = daemon.stop()
    took = time.perf_counter() - begun
    assert status == 0, daemon.said()
    sockets = list(daemon.socket.parent.glob("*.sock"))
    # A WAL that was not taken into the file is one that nobody closed.
    return took, len([*sockets, *daemon.state.parent.glob("*-wal"), *daemon.state.parent.glob("*-shm")])


STARTS = 20
"""Starts of the daemon in the full measure of R18."""

SILENT = 50
"""Servers that never answer."""


def ready(scale: Scale) -> Iterator[Finding]:
    """R18: from the start of the process to READY=1, with servers that take connections and say nothing."""
    with ExitStack() as stack:
        port = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4 * SILENT)).getsockname()[1]
        kinds: list[dict[str, Any]] = [
            {"url": f"http://127.0.0.1:{port}/mcp"},
            {"url": f"ws://127.0.0.1:{port}/mcp"},
            {"url": f"http://127.0.0.1:{port}/sse", "type": "sse"},
            {"command": "sleep", "args": ["600"], "timeouts": {"stopEof": 0, "stopTerm": 0.5}},
        ]
        config = {"mcpServers": {f"s{number}": kinds[number % len(kinds)] for number in range(SILENT)}}
        daemon = stack.enter_context(at_work({}, ready=False))
        daemon.stop()
        empty = [started(daemon, {"mcpServers": {}}) for _ in range(scale.of(STARTS, least=3))]
        full = [started(daemon, config) for _ in range(scale.of(STARTS, least=3))]
    middle, longest = percentile(full, 0.5), max(full)
    yield Finding(
        name="R18",
        measured=f"p50 {milliseconds(middle)}, longest {milliseconds(longest)}; without any server p50"
        f" {milliseconds(percentile(empty, 0.5))} ({len(full)} starts)",
        kept=longest <= 0.500,
        numbers={
            "p50_ms": middle * 1e3,
            "longest_ms": longest * 1e3,
            "empty_p50_ms": percentile(empty, 0.5) * 1e3,
        },
    )


def started(daemon: Watched, config: dict[str, Any]) -> float:
    """Seconds from the start of the daemon's process to READY=1, as anybody runs it: without a window."""
    address = daemon.directory / "ready"
    address.unlink(missing_ok=True)
    daemon.config.write_text(json.dumps(config))
    words = [sys.executable, "-m", "daemon", "run", "--config", str(daemon.config)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, daemon.log.open("ab") as log:
        channel.bind(str(address))
        channel.settimeout(WAIT)
        environ = {**daemon.environ, "NOTIFY_SOCKET": str(address)}
        begun = time.perf_counter()
        with subprocess.Popen(words, cwd=ROOT, env=environ, stderr=log) as process:
            try:
                assert b"READY=1" in channel.recv(4096)
                took = time.perf_counter() - begun
            finally:
                process.terminate()
                process.wait(WAIT)
    return took


RELOADS = 20
"""Reloads of each kind in the full measure of R19."""

CONFIGURED = 20


def reloads(scale: Scale) -> Iterator[Finding]:
    """R19: a faulty file, then one with one server changed."""
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
        numbers={"strayed": strayed, "applied_longest_ms": max(seconds) * 1e3},
    )


def pids(daemon: Watched) -> dict[str, int]:
    """Each server's process."""
    return {name: found["pid"] for name, found in daemon.ask("status")["servers"].items()}


def applied(daemon: Watched, name: str, before: int) -> Callable[[], bool]:
    """A look whether a server runs as it now stands in the file."""

    def look() -> bool:
        now = daemon.server(name)
        return bool(now["state"] == "ready" and now["pid"] != before)

    return look


def reload(daemon: Watched, text: str, *, faulty: bool) -> None:
    """Write another file, and have it read."""
    daemon.config.write_text(text)
    try:
        daemon.ask("reload")
    except control.RemoteFault:
        assert faulty, text
    else:
        assert not faulty, text
