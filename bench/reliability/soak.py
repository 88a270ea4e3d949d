"""The soak test (R25): hours of calls to servers that fail every few seconds."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from bench.reliability.neighbours import WAYS
from bench.reliability.promise import Finding, mebibytes
from bench.reliability.stage import at_work, code_of, server, when

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.reliability.stage import Holdings, Line, Watched

SERVERS = 8

CLIENTS = 4

FAULT_SECONDS = 5.0
"""Seconds between two faults."""

FAULTS = 2 * len(WAYS)
"""Fewest faults, even in a short soak: each kind before growth counts, and as many after."""

RECOVERY_SECONDS = 30.0
"""Seconds for which calls may fail after a fault: mcpd notices a hang only after some seconds."""

PAUSE_SECONDS = 0.002
"""Seconds between two calls of the soak: like a busy day of agents, not like a benchmark."""

REPORT_SECONDS = 60.0

WARM_UP = 0.2
"""The share of the soak before growth counts."""

RESTART = {"base": 0.5, "cap": 2, "floor": 0.25, "intensity": 1_000_000}

WATCHED = {
    "timeouts": {"pingInterval": 2, "ping": 2, "missedPings": 3, "call": 5, "stopEof": 0.1, "stopTerm": 0.1}
}
"""Timeouts by which mcpd notices a hang within `RECOVERY_SECONDS`, but does not take slowness for one."""

MARKS = {
    "UpstreamUnavailable",
    "UpstreamLost",
    "UpstreamTimeout",
    "RequestTooLarge",
    "Overloaded",
    "ToolChanged",
}
"""Errors that calls may get soon after a server's fault."""

ALLOWED = 8 * 2**20
"""Bytes by which the daemon may grow: as for a million calls."""


@attrs.define
class Log:
    """The results of the calls."""

    calls: int = 0
    wrong: list[str] = attrs.field(factory=list)
    """Wrong answers."""
    ends: Counter[str] = attrs.field(factory=Counter)
    faults: int = 0


def soak(hours: float, seed: int) -> Iterator[Finding]:
    """R25: several clients call several servers, one of which fails every few seconds."""
    seconds = hours * 3600
    servers = {f"s{number}": {**server(RESTART), **WATCHED} for number in range(SERVERS)}
    log = Log()
    print(f"soak: {hours:g} hours, seed {seed}", file=sys.stderr, flush=True)
    with at_work(servers) as daemon:
        before = _soak(daemon, log, random.Random(seed), seconds)
        restarts = sum(each["restarts"] for each in daemon.ask("status")["servers"].values())
        when(lambda: all_serve(daemon), seconds=RECOVERY_SECONDS * 2)
        growth = daemon.settled(before).growth(before)
    yield r25(log, growth, hours, restarts, seed)


def all_serve(daemon: Watched) -> bool:
    """Whether all servers are up; after noise a server is degraded until its next list, but serves."""
    servers = daemon.ask("status")["servers"].values()
    return all(each["state"] in {"ready", "degraded"} for each in servers)


def _soak(daemon: Watched, log: Log, chance: random.Random, seconds: float) -> Holdings:
    """Call until the time is over. Returns the daemon's holdings after the warm-up."""
    begun = time.monotonic()
    marked: dict[str, float] = {}
    every = min(FAULT_SECONDS, seconds / FAULTS)
    next_fault, next_report = begun + every, begun + REPORT_SECONDS
    before: Holdings | None = None
    with ExitStack() as stack:
        operator, *lines = [stack.enter_context(daemon.client()) for _ in range(1 + CLIENTS)]
        while (now := time.monotonic()) < begun + seconds:
            if now >= next_fault:
                next_fault += every
                marked[_fault(operator, log, chance)] = now
            if before is None and log.faults >= len(WAYS) and now >= begun + WARM_UP * seconds:
                before = daemon.holdings()
            if now >= next_report:
                next_report += REPORT_SECONDS
                _tell(daemon, log, now - begun)
            _call(chance.choice(lines), log, chance, marked, now)
            time.sleep(PAUSE_SECONDS)
    return before or daemon.holdings()


def _fault(operator: Line, log: Log, chance: random.Random) -> str:
    """Make one server fail in one way, without waiting for the answer. Returns its name."""
    name = f"s{chance.randrange(SERVERS)}"
    # First each of them once: what the largest message leaves with the allocator is no growth.
    tool, arguments = WAYS[log.faults] if log.faults < len(WAYS) else chance.choice(WAYS)
    operator.begin(name, tool, **arguments)
    log.faults += 1
    return name


def _call(line: Line, log: Log, chance: random.Random, marked: dict[str, float], now: float) -> None:
    """Make one call, and check its result against the recent faults of its server."""
    name, nonce = f"s{chance.randrange(SERVERS)}", chance.randrange(2**48)
    _took, message = line.took(name, "echo", nonce=nonce)
    code = code_of(message)
    log.calls += 1
    log.ends[code or "result"] += 1
    recently = now - marked.get(name, -RECOVERY_SECONDS) < RECOVERY_SECONDS
    if code == "" and f'"nonce": {nonce}}}' not in message["result"]["content"][0]["text"]:
        log.wrong.append(f"another call's answer from {name}")
    elif code and not (recently and code in MARKS):
        log.wrong.append(f"{code} from {name}")


def _tell(daemon: Watched, log: Log, seconds: float) -> None:
    """Print a line each minute."""
    said = f"{log.calls:,} calls, {log.faults} faults, {len(log.wrong)} wrong; {daemon.holdings()}"
    print(f"{seconds / 60:6.0f} min  {said}", file=sys.stderr, flush=True)


def r25(log: Log, growth: dict[str, float], hours: float, restarts: int, seed: int) -> Finding:
    """The finding of the soak."""
    counted = ", ".join(f"{name} {growth[name]:+.0f}" for name in ("fds", "zombies", "threads", "tasks"))
    wrong = f"{len(log.wrong)} wrong" + (f" (the first: {log.wrong[0]}; seed {seed})" if log.wrong else "")
    grown = any(value > 0 for name, value in growth.items() if name != "memory") or growth["memory"] > ALLOWED
    return Finding(
        name="R25",
        measured=f"{hours:g} hours, {log.calls:,} calls, {log.faults} faults, {restarts} restarts: {wrong};"
        f" {counted}, memory {mebibytes(growth['memory'])}",
        kept=not log.wrong and not grown,
    )
