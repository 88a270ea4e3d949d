"""Measures servers that are killed: R1, R2, R8, R22, R24."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from bench.calls.targets import over_stdio
from bench.reliability.promise import Finding, mebibytes, milliseconds, percentile
from bench.reliability.stage import FREE, at_work, code_of, server, text_of, when
from tests.faults.stage import is_alive
from tests.scripted_server import command
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.reliability.promise import Scale
    from bench.reliability.stage import Line, Watched

CYCLES = 1000
"""Kills or crashes in the full measurements."""

HELD = 4
"""Calls in flight at each kill."""

BARE_EVERY = 5
"""Kills between two starts of the server without a daemon."""

WARM_UP = 0.1
"""The share of kills before growth counts: caches fill, and the allocator grows."""

TOOLS = ["echo", "pid", "sleep"]

MIB = 2**20


def kills(scale: Scale) -> Iterator[Finding]:
    """R1, R2 and R8: one server is killed repeatedly while it has calls."""
    cycles = scale.of(CYCLES, least=3)
    answered: list[float] = []
    recovered: list[float] = []
    starts: list[float] = []
    with at_work({"s": server(FREE, tools=TOOLS)}) as daemon, daemon.client() as line:
        for _ in range(max(2, round(cycles * WARM_UP))):
            kill_once(line)
        before = daemon.holdings()
        for cycle in range(cycles):
            delays, recovery = kill_once(line)
            answered += delays
            recovered.append(recovery)
            # In between: what else the machine does, slows both down.
            starts += [bare_start()] if cycle % BARE_EVERY == 0 else []
        growth = daemon.settled(before).growth(before)
    bare = statistics.median(starts)
    yield r1(answered, cycles)
    yield r2([each - bare for each in recovered], bare)
    yield r8(growth, cycles)


def kill_once(line: Line) -> tuple[list[float], float]:
    """Kill the server during calls: seconds until each was answered, and until the next call succeeds."""
    held = [line.begin("s", "sleep") for _ in range(HELD)]
    # It reads in order: once this is answered, it has the others.
    pid = int(text_of(line.succeeds("s", "pid")))
    killed = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    delays = []
    for number in held:
        at, message = line.end(number)
        assert code_of(message) == "UpstreamLost", message
        delays.append(at - killed)
    line.succeeds("s")
    return delays, time.perf_counter() - killed


def bare_start() -> float:
    """Seconds from the start of the server, without a daemon, to its first answer to a call."""
    begun = time.perf_counter()
    with closing(over_stdio(command(tools=TOOLS), {})) as wire:
        wire.ask("tools/call", {"name": "echo", "arguments": {}})
        return time.perf_counter() - begun


def r1(delays: list[float], cycles: int) -> Finding:
    """The finding about calls in flight: how long they waited until they failed."""
    middle, late, longest = percentile(delays, 0.5), percentile(delays, 0.99), max(delays)
    return Finding(
        name="R1",
        measured=f"p50 {milliseconds(middle)}, p99 {milliseconds(late)}, longest {milliseconds(longest)}"
        f" ({len(delays):,} calls, {cycles:,} kills)",
        kept=late <= 0.050 and longest <= 0.250,
    )


def r2(beyond: list[float], bare: float) -> Finding:
    """The finding about recovery: the time until calls succeed, without the server's start-up time."""
    middle, late = percentile(beyond, 0.5), percentile(beyond, 0.99)
    return Finding(
        name="R2",
        measured=f"p50 {milliseconds(middle)}, p99 {milliseconds(late)} beyond the {milliseconds(bare)} of the"
        f" server by itself ({len(beyond):,} kills)",
        kept=late <= 0.250,
    )


def r8(growth: dict[str, float], cycles: int) -> Finding:
    """The finding about leftovers of the kills."""
    counted = ", ".join(f"{name} {growth[name]:+.0f}" for name in ("fds", "zombies", "threads", "tasks"))
    return Finding(
        name="R8",
        measured=f"{counted}, memory {mebibytes(growth['memory'])} ({cycles:,} kills)",
        kept=all(value <= 0 for name, value in growth.items() if name != "memory") and growth["memory"] <= MIB,
    )


def effects(scale: Scale) -> Iterator[Finding]:
    """R22: a server executes a call and dies before it answers."""
    cycles = scale.of(CYCLES, least=3)

    def servers(directory: Path) -> dict[str, Any]:
        return {"s": server(FREE, tools=["effect"], effects=str(directory / "effects"))}

    with at_work(servers) as place, place.client() as line:
        counts = [effect_once(line, place.directory / "effects") for _ in range(cycles)]
    more, none = sum(count > 1 for count in counts), sum(count == 0 for count in counts)
    yield Finding(
        name="R22",
        measured=f"{more} of {cycles:,} calls ran more than once; {cycles - more - none:,} once, {none:,} not",
        kept=more == 0,
    )


def effect_once(line: Line, note: Path) -> int:
    """The count of executions of one call whose server died, once no further one can come."""

    def size() -> int:
        return note.read_text(encoding="ascii").count("\n") if note.exists() else 0

    before = size()
    while True:
        _took, message = line.took("s", "effect", then={"exit": 1})
        if (code := code_of(message)) == "UpstreamLost":
            break
        # Whoever is told that it was not sent may send it again.
        assert code == "UpstreamUnavailable", message
        assert size() == before, "a call ran that was said not to have been sent"
    ran = size() - before
    # Served again: whatever a new process was to be sent, it has been.
    until = time.monotonic() + WAIT
    while code_of(line.took("s", "effect", then={"never": True, "error": {"code": 1, "message": "no"}})[1]) == (
        "UpstreamUnavailable"
    ):
        assert time.monotonic() < until
    return max(ran, size() - before - 1)


SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"kind": "plain"},
    "setsid": {"kind": "setsid"},
    "daemon": {"kind": "daemon", "keep_stdout": True},
    "stubborn": {"kind": "setsid", "ignore_term": True},
}
"""Children that servers leave behind: in their group, in a separate session, reparented, deaf to SIGTERM."""

TREES = 100
"""Trees of each shape in the full measurement."""


def trees(scale: Scale) -> Iterator[Finding]:
    """R24: servers with grandchildren are restarted; no process of theirs remains."""
    rounds = scale.of(TREES, least=2)

    def shapes(directory: Path) -> dict[str, Any]:
        more = {"record": str(directory / "record"), "timeouts": {"stopEof": 0.1, "stopTerm": 0.1}}
        return {name: server(FREE, tools=["echo"], spawn=[shape], **more) for name, shape in SHAPES.items()}

    with at_work(shapes) as daemon:
        for number in range(rounds):
            for name in SHAPES:
                end_tree(daemon, name, by_kill=number % 2 == 1)
        daemon.stop()
        spawned = [json.loads(line) for line in (daemon.directory / "record").read_text().splitlines()]
        pids = [event["pid"] for event in spawned if event["event"] == "spawned"]
        survivors = [pid for pid in pids if is_alive(pid)]
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)
    yield Finding(
        name="R24",
        measured=f"{len(survivors)} of {len(pids):,} grandchildren survived their server",
        kept=not survivors and len(pids) >= rounds * len(SHAPES),
    )


def end_tree(daemon: Watched, name: str, *, by_kill: bool) -> None:
    """Let one server end, by an operator's command or by a signal to it alone, and come up again."""
    before = daemon.server(name)
    if by_kill:
        os.kill(before["pid"], signal.SIGKILL)
    else:
        daemon.ask("restart", server=name)
    when(lambda: (now := daemon.server(name))["state"] == "ready" and now["pid"] != before["pid"])
