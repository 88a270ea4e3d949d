"""Counts ended calls, and exports calls and events in a separate thread, for which the loop never waits."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import trio
from loguru import logger

from daemon.config.redaction import Redactors
from daemon.config.tuning import Telemetry
from daemon.history.event import Event, EventKind
from daemon.kit.later import later
from daemon.tracing.call_trace import BOUNDS, CallTrace, missing, sampling, signals

OtlpExport = later("daemon.tracing.otlp", "OtlpExport")  # OpenTelemetry: half a second, 20 MB

QUEUED = 4096
"""Most calls, and most events, waiting for export: some seconds, 6 MB. The oldest are dropped and counted."""

GATHER_SECONDS = 1.0
"""Seconds between checks of the queues."""

BATCH = 16
"""Calls or events in one request: encoded in some 3 ms, for which the loop may have to wait."""

REST = 9.0
"""Seconds of rest after each second of processor time: enough for some 500 calls a second."""

STOP_SECONDS = 1.0
"""Seconds that a stopping daemon waits for the last export."""

SAY_SECONDS = 60.0
"""Seconds between log lines about a collector that accepts nothing."""

SERIES = 2000
"""Most time series of durations, OpenTelemetry's default; others are counted together."""

_AS_SERVER, _AS_CLIENT = "mcp.server.operation.duration", "mcp.client.operation.duration"

# Durations by the event of a session's end.
_SESSIONS = {
    EventKind.SESSION_ENDED: "mcp.server.session.duration",
    EventKind.ENDED: "mcp.client.session.duration",
}

_ERRORS = {"ok": "", "isError": "tool_error"}
"""Outcomes that OpenTelemetry names differently."""


class Tracer:
    """The ended calls and events that wait for export."""

    def __init__(
        self, open_export: Callable[[], Any], sampling: tuple[float, bool], *, arguments: bool
    ) -> None:
        self.sampling, self.arguments, self._open = sampling, arguments, open_export
        self.durations: dict[tuple[str, ...], list[float]] = {}
        """For each series, the sum of durations, then the counts between two of `BOUNDS`."""
        self.dropped = Counter(traces=0, logs=0)
        """Calls and events that were not exported, by signal."""
        self.queues: dict[str, deque[Any]] = {signal: deque(maxlen=QUEUED) for signal in self.dropped}
        self._stopping = threading.Event()

    def ended(self, trace: CallTrace, asked: tuple[str, ...], sent: tuple[str, ...], outcome: str) -> None:
        """Note an ended call: method, name and server as the client asked, and as mcpd sent them."""
        error = _ERRORS.get(outcome, outcome)
        trace.series = (_AS_SERVER, *asked, error), (_AS_CLIENT, *sent, error)
        for series, began in zip(trace.series, (trace.began, trace.sent), strict=True):
            if began:
                self._count(series, trace.ended - began)
        if trace.kept:
            self.take("traces", trace)

    def take(self, signal: str, what: object) -> None:
        """Queue a call (`traces`) or an event of the daemon (`logs`)."""
        queue = self.queues[signal]
        self.dropped[signal] += len(queue) == QUEUED
        queue.append(what)

    def heard(self, event: Event) -> None:
        """Queue an event of the daemon, and count the session that it ends."""
        self.take("logs", event)
        name, seconds = _SESSIONS.get(event.kind, ""), event.details.get("seconds")
        if name and isinstance(seconds, int | float):
            error = str(event.cause or "")
            self._count((name, "", "", event.server, error), seconds)

    def _count(self, series: tuple[str, ...], seconds: float) -> None:
        found = self.durations.get(series)
        if found is None:
            key = series if len(self.durations) < SERIES else (series[0], "_OTHER", "", "", "")
            found = self.durations.setdefault(key, [0.0] * (len(BOUNDS) + 2))
        found[0] += seconds
        found[1 + bisect_left(BOUNDS, seconds)] += 1

    async def run(self) -> None:
        """Export until cancelled, then once more, for at most `STOP_SECONDS`."""
        # A daemon thread: the end of the process waits for no collector.
        thread = threading.Thread(target=self._work, name="telemetry", daemon=True)
        thread.start()
        try:
            await trio.sleep_forever()
        finally:
            self._stopping.set()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(thread.join, STOP_SECONDS)

    @logger.catch(message="telemetry is off")
    def _work(self) -> None:
        export = self._open()
        due, said, last = time.monotonic() + export.interval, 0.0, False
        while not last:
            busy = any(len(queue) >= BATCH for queue in self.queues.values())
            stopping = self._stopping.wait(0 if busy else GATHER_SECONDS)
            began, sound = time.thread_time(), True
            for signal, queue in self.queues.items():
                batch = [queue.popleft() for _ in range(min(len(queue), BATCH))]
                if not export.send(signal, batch):
                    self.dropped[signal] += len(batch)
                    sound = False
            last = stopping and not (sound and any(self.queues.values()))
            if last or time.monotonic() >= due:
                due = time.monotonic() + export.interval
                sound = export.send("metrics", list(self.durations.items())) and sound
            if not sound and time.monotonic() >= said:
                said, lost = time.monotonic() + SAY_SECONDS, self.dropped.total()
                logger.warning("telemetry: {} (calls and events lost: {})", export.complaint.text, lost)
            self._stopping.wait(REST * (time.thread_time() - began))


def tracer_for(keys: Telemetry, environ: Mapping[str, str], version: str, redact: Redactors) -> Tracer | None:
    """The tracer; None if telemetry is off or its packages are missing, which is logged."""
    if missing(keys, environ):
        logger.warning("telemetry is off: its packages are missing. pip install 'mcpd-supervisor[otel]'")
    elif on := signals(keys, environ):
        sampler = sampling(keys, environ) if "traces" in on else (0.0, False)
        return Tracer(partial(OtlpExport, keys, environ, version, redact), sampler, arguments=keys.arguments)
    return None
