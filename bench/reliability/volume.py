"""Measures many calls: memory (R9), ids (R20), cancellation and progress (R21)."""

from __future__ import annotations

import json
import os
import selectors
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Self

import attrs

from bench.calls.daemons import over_socket
from bench.reliability.promise import Finding, mebibytes, milliseconds, percentile
from bench.reliability.stage import at_work, memory_of, server
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.calls.wires import Wire
    from bench.reliability.promise import Scale
    from bench.reliability.stage import Watched

CALLS = 1_000_000
"""Calls of the full measurement."""

CLIENTS = 32

SERVERS = 4

SAMPLES = 40
"""Measurements of the daemon's memory during the calls."""

WARM_UP = 0.1
"""The share of calls before memory counts."""

SLOPE_CALLS = 250_000
"""The number of calls for which the slope is reported."""

MIB = 2**20


@attrs.define
class Caller:
    """A client with one call in flight at a time, always with id 1, each with a different number."""

    wire: Wire
    number: int
    nonce: bytes = b""
    rest: bytes = b""
    wrong: int = 0

    def call(self, nonce: int) -> None:
        """Send the next call."""
        self.nonce = b"n%d." % nonce
        category = b"s%d" % (nonce % SERVERS)
        self.wire.send(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"call-category-tool","arguments":'
            b'{"category":"%b","name":"echo","args":{"nonce":"%b"}}}}\n' % (category, self.nonce)
        )

    def came(self) -> bool:
        """Read; True if the answer is complete. Counts answers to other calls."""
        chunk = os.read(self.wire.read_fd, 65536)
        assert chunk, "the daemon closed the connection"
        self.rest += chunk
        line, end, rest = self.rest.partition(b"\n")
        if not end:
            return False
        self.rest = rest
        message = json.loads(line)
        # Nothing else is to come on this line: a second answer would stand in `rest`.
        self.wrong += message.get("id") != 1 or self.nonce not in line or b'isError":true' in line or bool(rest)
        return True


def flood(scale: Scale) -> Iterator[Finding]:
    """R9 and R20: 32 clients call as fast as they can, all with id 1."""
    calls = scale.of(CALLS, least=200)
    servers = {f"s{number}": server(tools=["echo"]) for number in range(SERVERS)}
    with at_work(servers) as daemon, ExitStack() as stack:
        wires = [stack.enter_context(closing(over_socket(daemon.socket))) for _ in range(CLIENTS)]
        callers = [Caller(wire, number) for number, wire in enumerate(wires)]
        begun = time.perf_counter()
        samples = run(callers, calls, lambda: memory_of(daemon.pid))
        rate = calls / (time.perf_counter() - begun)
        before, after = samples[0][1], memory_of(daemon.pid)
    wrong = sum(caller.wrong for caller in callers)
    # Of few calls a slope says nothing: one page more is a steep one.
    slope = slope_of(samples) * SLOPE_CALLS if calls >= SLOPE_CALLS else 0.0
    yield Finding(
        name="R9",
        measured=f"{mebibytes(slope)} per {SLOPE_CALLS:,}, in the end {mebibytes(after - before)},"
        f" {wrong} wrong ({calls:,} calls, {rate:,.0f} a second)",
        kept=slope <= MIB and after - before <= 8 * MIB and wrong == 0,
    )
    yield Finding(
        name="R20",
        measured=f"{wrong} of {calls:,} answers misrouted ({CLIENTS} clients, {SERVERS} servers)",
        kept=wrong == 0,
    )


def run(callers: list[Caller], calls: int, look: Callable[[], int]) -> list[tuple[int, int]]:
    """Make calls from all clients, `calls` in all. Returns (calls, bytes) after the warm-up."""
    samples: list[tuple[int, int]] = []
    warm, step = round(calls * WARM_UP), max(1, calls // SAMPLES)
    begun, done = 0, 0
    with selectors.DefaultSelector() as selector:
        for caller in callers:
            selector.register(caller.wire.read_fd, selectors.EVENT_READ, caller)
            caller.call(begun)
            begun += 1
        while done < calls:
            events = selector.select(WAIT)
            assert events, "no answer"
            for key, _ in events:
                caller = key.data
                if not caller.came():
                    continue
                done += 1
                if done >= warm and (done == warm or done % step == 0):
                    samples.append((done, look()))
                if begun < calls:
                    caller.call(begun)
                    begun += 1
    return samples


def slope_of(points: list[tuple[int, int]]) -> float:
    """Bytes per call, by least squares."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


CANCELS = 500
"""Cancelled calls, and calls with progress, in the full measurement of R21."""

STEPS = 20
"""Reports of progress within one call."""


def control(scale: Scale) -> Iterator[Finding]:
    """R21: the time until the server learns of a cancellation, and the absence of progress after an answer."""
    times = scale.of(CANCELS, least=5)

    def servers(directory: Path) -> dict[str, Any]:
        os.mkfifo(directory / "record")
        return {"s": server(record=str(directory / "record"))}

    with at_work(servers, ready=False) as daemon, Record(daemon.directory / "record") as record:
        daemon.ready()
        delays = [cancel_once(daemon, record) for _ in range(times)]
        late, reports = progress(daemon, times)
    worst = percentile(delays, 0.99)
    yield Finding(
        name="R21",
        measured=f"cancel: p99 {milliseconds(worst)}, longest {milliseconds(max(delays))} ({times:,} calls);"
        f" progress after the answer: {late} of {reports:,} reports",
        kept=max(delays) <= 0.050 and late == 0,
    )


class Record:
    """The events that a scripted server reports while it runs."""

    def __init__(self, path: Path) -> None:
        """Open both ends of the pipe, so that it never ends."""
        self._fd = os.open(path, os.O_RDWR)
        self._rest = b""
        self._events: list[dict[str, Any]] = []

    def wait(self, event: str, method: str = "") -> None:
        """Read until the server reports this event."""
        while True:
            while self._events:
                found = self._events.pop(0)
                if found["event"] == event and (not method or found["message"].get("method") == method):
                    return
            *lines, self._rest = (self._rest + os.read(self._fd, 65536)).split(b"\n")
            self._events += map(json.loads, lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def cancel_once(daemon: Watched, record: Record) -> float:
    """Call and cancel: seconds until the server knows."""
    with daemon.client() as line:
        number = line.begin("s", "sleep")
        record.wait("message", "tools/call")
        params = {"requestId": number}
        cancelled = time.perf_counter()
        line.send(
            json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).encode()
        )
        record.wait("cancelled")
        return time.perf_counter() - cancelled


def progress(daemon: Watched, times: int) -> tuple[int, int]:
    """Calls that report progress: reports that came after their call's answer, and all reports."""
    answered: set[int] = set()
    late = reports = 0
    with daemon.client() as line:
        numbers = [
            line.begin("s", "progress", _meta={"progressToken": token}, count=STEPS)
            for token in range(1, times + 1)
        ]
        while len(answered) < len(numbers):
            message = line.receive()
            if "method" not in message:
                answered.add(message["id"])
            elif message["method"] == "notifications/progress":
                reports += 1
                late += numbers[message["params"]["progressToken"] - 1] in answered
        # What is late would come before the answer to this.
        line.send(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')
        while (message := line.receive()).get("id") != "last":
            late += message.get("method") == "notifications/progress"
    return late, reports
