"""Measures the cost of one server or client for the others: R3, R23."""

from __future__ import annotations

import time
from itertools import count, cycle
from typing import TYPE_CHECKING, Any, Self

from bench.reliability.promise import Finding, mebibytes, milliseconds, percentile, sliding
from bench.reliability.stage import at_work, code_of, memory_of, server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.reliability.promise import Scale
    from bench.reliability.stage import Line, Watched

CALLS = 100_000
"""Calls to the others while one server dies, in the full measurement; half as many in calm times."""

OTHERS = 19

ROUNDS = 10
"""Rounds: calm and bad times take turns, so that other work of the machine affects both."""

FAULT_SECONDS = 1.0
"""Seconds between two faults: more often than mcpd restarts such a server by default; pauses here are short."""

RESTART = {"base": 0.25, "cap": 0.25, "floor": 0.125, "intensity": 1_000_000}

MIB = 2**20

WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("act", {"exit": 0}),
    ("act", {"exit": 1}),
    ("act", {"signal": "SIGKILL"}),
    ("act", {"signal": "SIGSEGV"}),
    ("act", {"close_stdout": True, "never": True}),
    ("act", {"garbage": 1_000_000}),
    ("act", {"write": "not JSON\n" * 1000, "exit": 3}),
    ("act", {"write": '{"jsonrpc":"2.0","id":', "exit": 3}),
    ("line", {"bytes": 17 * MIB}),
    ("noise", {"count": 60_000}),
    ("announce", {"count": 5_000}),
    ("act", {"signal": "SIGSTOP"}),
    ("act", {"deaf": True}),
    ("act", {"close_stdin": True}),
)
"""The ways in which a server fails: exit, signal, flood, not reading, silence, SIGSTOP."""

HASTE = {
    "timeouts": {"pingInterval": 0.5, "ping": 0.5, "missedPings": 2, "call": 2, "stopEof": 0.1, "stopTerm": 0.1}
}
"""Short timeouts for the failing server, so that it can soon fail again."""


def nemesis(scale: Scale) -> Iterator[Finding]:
    """R3: calls to 19 servers while the 20th fails in every way."""
    calls = scale.of(CALLS, least=ROUNDS * OTHERS)
    servers = {f"s{number}": server(tools=["echo"]) for number in range(OTHERS)}
    servers["nemesis"] = {**server(RESTART), **HASTE}
    quiet: list[float] = []
    bad: list[float] = []
    lost = 0
    with at_work(servers) as daemon, daemon.client() as line:
        ways = Ways(daemon)
        for number in sliding(calls, ROUNDS):
            daemon.ask("switch", name="nemesis", off=True)
            seconds, failed = ask(line, max(number // 2, OTHERS), lambda: None)
            quiet += seconds
            lost += failed
            daemon.ask("switch", name="nemesis", off=False)
            seconds, failed = ask(line, number, ways.next)
            bad += seconds
            lost += failed
        restarts = daemon.server("nemesis")["restarts"]
        ways.close()
    before, during = percentile(quiet, 0.99), percentile(bad, 0.99)
    yield Finding(
        name="R3",
        measured=f"{lost} of {calls:,} calls lost over {ways.tried} faults and {restarts} restarts of the 20th;"
        f" p99 {milliseconds(during)}, in quiet times {milliseconds(before)}: {during / before:.2f} times",
        kept=lost == 0 and during <= 1.5 * before,
    )


class Ways:
    """Makes a server fail in each way in turn; the call finds it up, or wakes it."""

    def __init__(self, daemon: Watched) -> None:
        """Begin with the first way."""
        self.tried = 0
        self._ways = cycle(WAYS)
        self._line = daemon.client()
        self._due = 0.0

    def next(self) -> None:
        """Cause the next failure if it is time; the call's answer is ignored."""
        if time.perf_counter() < self._due:
            return
        self._due = time.perf_counter() + FAULT_SECONDS
        tool, arguments = next(self._ways)
        self._line.begin("nemesis", tool, **arguments)
        self.tried += 1

    def close(self) -> None:
        """Disconnect."""
        self._line.close()


def ask(
    line: Line, calls: int, meanwhile: Callable[[], None], servers: int = OTHERS
) -> tuple[list[float], int]:
    """Call one server after the other. Returns the seconds of each call, and the count of failures."""
    seconds, failed = [], 0
    for number in range(calls):
        meanwhile()
        took, message = line.took(f"s{number % servers}", "echo", nonce=number)
        seconds.append(took)
        failed += (
            code_of(message) != "" or f'"nonce": {number}}}' not in message["result"]["content"][0]["text"]
        )
    return seconds, failed


READERS_CALLS = 20_000
"""Calls of the other client in the full measurement of R23, with and without the client that never reads."""

ANSWER = 64 * 1024
"""Bytes of each unread answer."""


def deaf_client(scale: Scale) -> Iterator[Finding]:
    """R23: a client calls and never reads; its cost in memory, and in delay of others."""
    calls = scale.of(READERS_CALLS, least=ROUNDS)
    quiet: list[float] = []
    bad: list[float] = []
    cut = 0
    with (
        at_work({"s0": server(tools=["echo"]), "big": server(tools=["bytes"])}) as daemon,
        daemon.client() as line,
    ):
        ask(line, min(calls, 500), lambda: None, servers=1)
        before = most = memory_of(daemon.pid)
        for number in sliding(calls, ROUNDS):
            quiet += ask(line, number, lambda: None, servers=1)[0]
            with Deaf(daemon) as deaf:
                bad += ask(line, number, deaf.ask, servers=1)[0]
                most = max(most, deaf.most)
                cut += deaf.is_cut
        most = max(most, memory_of(daemon.pid))
    alone, beside = percentile(quiet, 0.99), percentile(bad, 0.99)
    yield Finding(
        name="R23",
        measured=f"memory {mebibytes(most - before)} at most, {cut} of {ROUNDS} clients cut off; p99 of"
        f" the other {milliseconds(beside)}, in quiet times {milliseconds(alone)}: {beside / alone:.2f} times",
        kept=most - before <= 16 * MIB and beside <= 2 * alone,
    )


class Deaf:
    """A client that requests large answers and never reads one."""

    MOST = 400
    """Most calls: 25 MiB of answers, three times the buffer that mcpd keeps for a client."""

    EVERY = 5
    """Calls of the other client between two calls of this one."""

    def __init__(self, daemon: Watched) -> None:
        """Connect."""
        self.most = 0
        self.is_cut = False
        self._daemon = daemon
        self._line = daemon.client(timeout=0.05)
        self._is_stuck = False
        self._turns = count()
        self._asked = 0

    def ask(self) -> None:
        """Make one more call, unless mcpd has disconnected the client, or it has made enough."""
        if self.is_cut or self._is_stuck or self._asked >= self.MOST or next(self._turns) % self.EVERY:
            return
        self._asked += 1
        try:
            self._line.begin("big", "bytes", count=ANSWER)
        except TimeoutError:
            # The daemon reads no more of what it asks before it has read what was answered.
            self._is_stuck = True
        except OSError:
            self.is_cut = True
        self.most = max(self.most, memory_of(self._daemon.pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()
