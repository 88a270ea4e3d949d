"""What sessions cost: 10,000 of them over 5,000 tools, through the daemon's own objects.

    python bench/sessions.py [--sessions N] [--tools N] [--loose FACTOR]

Requests go over a socket to a real session on the surface `load`, whose key is one of many in use, and through
the recorder to a store on disk. Every line says what was measured, beside the bound that it must keep; the exit
status is 1 if one was not kept. FACTOR widens the bounds, for a machine that has other work.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio
import trio.testing
from loguru import logger

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.sessions_stage import LOADED, PER_SERVER, World, catalogue, chosen, key_of, listing
from daemon.catalog.loaded import Loaded, Source
from daemon.catalog.remembered import SessionRecord
from daemon.catalog.snapshot import fold
from daemon.catalog.validity import judge, standing
from daemon.config.state_url import parse
from daemon.session_report import MAX_LISTED, sessions_report
from daemon.state.store import Store
from daemon.state.values import Batch
from daemon.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.catalog.loaded import Verdict
    from daemon.catalog.snapshot import Catalog

SESSIONS, TOOLS = 10_000, 5_000
"""How many there are unless the command line says otherwise."""

CONNECTED = 50
"""Of the sessions in use so many are connected over a socket, and asked in turn."""

ROUNDS = 4
"""Requests of each kind over each of these connections."""

BATCH = 500
"""Sessions that are kept together where the store is measured by itself."""

PATIENCE = 120.0
"""Seconds after which nothing is waited for any longer."""

KIB = 1024

BOUNDS = {
    "load: one tool, acknowledged once it is on disk, p95": (50.0, "ms"),
    "list: tools/list with what is loaded, p95": (20.0, "ms"),
    "call: a loaded tool, its server answers at once, p95": (5.0, "ms"),
    "gate: one session is judged for a request": (1.0, "ms"),
    "gate: all sessions, when a server's epoch rises": (2000.0, "ms"),
    "gate: longest that others wait for a turn meanwhile": (250.0, "ms"),
    "store: keep one session, p95": (50.0, "ms"),
    "store: keep all sessions, each": (5.0, "ms"),
    "store: sessions come into use and are kept, each": (50.0, "ms"),
    "store: recall one session, p95": (50.0, "ms"),
    "store: mark one server's tools in all sessions": (1500.0, "ms"),
    "mcpd sessions: those that a list shows": (500.0, "ms"),
    "memory: one session in use": (32.0, "KiB"),
}
"""What each may cost, and in what: several times what a machine with two cores and other work takes. Nobody
notices 50 ms, every request is gated, and the recorder gives one operation of the store 1.5 s."""


class Results:
    """What was measured, beside what it may cost."""

    def __init__(self, loose: float) -> None:
        """Begin; `loose` widens the bounds."""
        self._loose = loose
        self.failed: list[str] = []
        print(f"{'':58}{'measured':>12}{'bound':>12}")

    def add(self, what: str, value: float) -> None:
        """Print one line."""
        bound, unit = BOUNDS[what]
        bound *= self._loose
        broken = value > bound
        if broken:
            self.failed.append(what)
        mark = "  EXCEEDED" if broken else ""
        print(f"{what:58}{value:>9.2f} {unit:3}{bound:>8,.0f} {unit:3}{mark}", flush=True)

    def times(self, what: str, seconds: list[float]) -> None:
        """Print one line of many measurements: their 95th percentile."""
        self.add(what, statistics.quantiles(seconds, n=20)[-1] * 1000)


async def fill(world: World, results: Results, count: int) -> None:
    """Bring so many sessions into use, each with its tools, and wait until all are on disk."""
    gc.collect()
    before, begun = resident(), time.perf_counter()
    for number in range(count):
        conversation = await world.sessions.recall(key_of(number))
        world.sessions.join(conversation, "bench")
        world.sessions.load(conversation, chosen(world.catalog.value, number), Source.MANUAL)
    with trio.fail_after(PATIENCE):
        for number in range(count):
            # `kept` gives up after a bound of its own.
            while not await world.recorder.kept(key_of(number)):  # noqa: ASYNC110 - there is no event to wait for
                await trio.sleep(0.01)
    gc.collect()
    results.add(
        "store: sessions come into use and are kept, each", (time.perf_counter() - begun) / count * 1000
    )
    results.add("memory: one session in use", max(0, resident() - before) / count / KIB)


def resident() -> int:
    """Bytes of memory that this process uses."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def ask(world: World, results: Results, nursery: trio.Nursery, count: int) -> None:
    """What clients of some of the sessions wait for."""
    clients = [world.connect(nursery, key_of(number)) for number in range(min(CONNECTED, count))]
    loads, lists, calls = [], [], []
    for number, client in enumerate(clients):
        await client.greet()
        for turn in range(ROUNDS):
            # The last tool of each server is in nobody's selection.
            name = f"s{(number + turn) % len(world.catalog.value.servers)}_tool_{PER_SERVER - 1}"
            loads.append(await client.call("load_mcp_tool", names=[name]))
            seconds, listed = await client.ask("tools/list", {})
            lists.append(seconds)
            if len(listed["tools"]) < LOADED:
                raise SystemExit(f"only {len(listed['tools'])} tools are listed")
            calls.append(await client.call(name, path="/etc/motd"))
    results.times("load: one tool, acknowledged once it is on disk, p95", loads)
    results.times("list: tools/list with what is loaded, p95", lists)
    results.times("call: a loaded tool, its server answers at once, p95", calls)


async def gate(world: World, results: Results, nursery: trio.Nursery, count: int) -> None:
    """A server changes some tools: what judging costs, one session by itself, then all the others."""
    nursery.start_soon(world.sessions.run)
    await trio.testing.wait_all_tasks_blocked()
    holders = [number for number in range(count) if holds(world.catalog.value, number, "s0")]
    first, last = (world.sessions.find(key_of(number)) for number in (holders[0], holders[-1]))
    assert first is not None
    assert last is not None
    world.learn(listing("s0", changed=PER_SERVER // 2))
    begun = time.perf_counter()
    world.sessions.judge(first)
    results.add("gate: one session is judged for a request", (time.perf_counter() - begun) * 1000)
    longest, begun = 0.0, time.perf_counter()
    with trio.fail_after(PATIENCE):
        while not last.is_judged_by(world.catalog.value):
            before = time.perf_counter()
            await trio.lowlevel.checkpoint()
            longest = max(longest, time.perf_counter() - before)
    results.add("gate: all sessions, when a server's epoch rises", (time.perf_counter() - begun) * 1000)
    results.add("gate: longest that others wait for a turn meanwhile", longest * 1000)


def holds(catalog: Catalog, number: int, server: str) -> bool:
    """Whether a session has loaded a tool of a server."""
    return any(each.server == server for each, _epoch in chosen(catalog, number))


def store(results: Results, url: str, catalog: Catalog, count: int) -> None:
    """The store by itself, as its worker thread has it."""
    opened = Store.open(parse(url), writer="bench")
    try:
        records = [record_of(catalog, number) for number in range(count)]
        begun = time.perf_counter()
        for first in range(0, count, BATCH):
            opened.keep(Batch(at=time.time(), sessions=tuple(records[first : first + BATCH])))
        results.add("store: keep all sessions, each", (time.perf_counter() - begun) / count * 1000)
        some = records[:: max(1, count // 100)]
        kept = [timed(partial(opened.keep, Batch(at=time.time(), sessions=(each,)))) for each in some]
        results.times("store: keep one session, p95", kept)
        recalled = [timed(partial(opened.session, each.key)) for each in some]
        results.times("store: recall one session, p95", recalled)
        changed = fold(catalog, listing("s0", changed=PER_SERVER // 2))
        verdict = partial(verdict_in, changed)
        marking = Batch(at=time.time(), judge=verdict, judged=("s0",))
        results.add(
            "store: mark one server's tools in all sessions", timed(partial(opened.keep, marking)) * 1000
        )
        begun = time.perf_counter()
        listed = opened.sessions(MAX_LISTED)
        sessions_report(listed, (), changed, time.time())
        results.add("mcpd sessions: those that a list shows", (time.perf_counter() - begun) * 1000)
    finally:
        opened.close()


def record_of(catalog: Catalog, number: int) -> SessionRecord:
    """A session as it is kept."""
    loaded = Loaded().adding(chosen(catalog, number), Source.MANUAL, time.time())
    return SessionRecord(key=key_of(number), loaded=loaded, client="bench", created_at=1.0, seen_at=time.time())


def verdict_in(catalog: Catalog, server: str, name: str, digest: str) -> Verdict:
    """What became of a tool since it was loaded."""
    return judge(digest, server, name, standing(catalog, (server, name)))


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


async def live(results: Results, url: str, catalog: Watch[Catalog], count: int) -> None:
    """Sessions in use, through everything but the front."""
    world = World(catalog)
    await world.open(url)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.recorder.run, world.sessions.keys, world.sessions.adopt)
        await fill(world, results, count)
        await ask(world, results, nursery, count)
        await gate(world, results, nursery, count)
        nursery.cancel_scope.cancel()
    persistence = world.recorder.persistence.value
    if persistence.state != "ok":
        results.failed.append("persistence")
        print(f"persistence: {persistence.state}: {persistence.reason}")


def main(argv: list[str]) -> int:
    """Measure. Returns 1 if a bound was not kept."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--sessions", type=int, default=SESSIONS)
    made.add_argument("--tools", type=int, default=TOOLS)
    made.add_argument("--loose", type=float, default=1.0, metavar="FACTOR")
    options = made.parse_args(argv)
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    catalog = catalogue(options.tools)
    tools = sum(len(entry.tools or ()) for entry in catalog.servers.values())
    print(f"{options.sessions:,} sessions of {LOADED} tools each, {tools:,} tools, {CONNECTED} connections")
    results = Results(options.loose)
    with tempfile.TemporaryDirectory(prefix="mcpd-bench-") as directory:
        # First, while nothing has been freed yet that new sessions could use: their memory is what is measured.
        trio.run(live, results, f"sqlite:///{directory}/state.db", Watch(catalog), options.sessions)
        store(results, f"sqlite:///{directory}/alone.db", catalog, options.sessions)
    if results.failed:
        print(f"\nnot kept: {', '.join(results.failed)}", file=sys.stderr)
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
