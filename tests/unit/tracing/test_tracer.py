"""The tracer: what it counts, what it queues, and what becomes of that in its thread."""

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from daemon.causes import Cause
from daemon.config.redaction import Redactors
from daemon.config.tuning import Telemetry
from daemon.history.event import Event, EventKind
from daemon.tracing import tracer as module
from daemon.tracing.call_trace import BOUNDS, begun
from daemon.tracing.tracer import BATCH, QUEUED, SERIES, Tracer, tracer_for
from tests.waiting import until

ON = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}
CALL = "tools/call"


@attrs.define
class FakeExport:
    """Remembers what it was to send; fails as told."""

    sound: bool = True
    interval: float = 3600.0
    complaint: Any = attrs.field(factory=lambda: SimpleNamespace(text="no"))
    sent: dict[str, list[Sequence[Any]]] = attrs.field(
        factory=lambda: {"traces": [], "logs": [], "metrics": []}
    )
    gate: threading.Event = attrs.field(factory=threading.Event)

    def __attrs_post_init__(self) -> None:
        self.gate.set()

    def send(self, signal: str, what: Sequence[Any]) -> bool:
        if not what:
            return True
        self.gate.wait()
        self.sent[signal].append(list(what))
        return self.sound


def made(export: Callable[[], Any] = FakeExport, ratio: float = 1.0) -> Tracer:
    return Tracer(export, (ratio, True), arguments=False)


def end(
    tracer: Tracer, *, tool: str = "echo", outcome: str = "ok", seconds: float = 0.03, sent: float = 0.0
) -> None:
    trace = begun({}, 100.0, *tracer.sampling)
    trace.sent, trace.ended = sent, 100.0 + seconds
    tracer.ended(trace, (CALL, tool, ""), (CALL, tool, "git"), outcome)


def test_durations_are_counted_by_what_they_are_of() -> None:
    tracer = made(ratio=0.0)
    for outcome in ("ok", "ok", "isError", "UpstreamTimeout"):
        end(tracer, outcome=outcome, sent=100.01)
    end(tracer, tool="", outcome="UnknownTool")
    counts = {series: int(sum(found[1:])) for series, found in tracer.durations.items()}
    assert counts == {
        ("mcp.server.operation.duration", CALL, "echo", "", ""): 2,
        ("mcp.client.operation.duration", CALL, "echo", "git", ""): 2,
        ("mcp.server.operation.duration", CALL, "echo", "", "tool_error"): 1,
        ("mcp.client.operation.duration", CALL, "echo", "git", "tool_error"): 1,
        ("mcp.server.operation.duration", CALL, "echo", "", "UpstreamTimeout"): 1,
        ("mcp.client.operation.duration", CALL, "echo", "git", "UpstreamTimeout"): 1,
        ("mcp.server.operation.duration", CALL, "", "", "UnknownTool"): 1,
    }
    total, *buckets = tracer.durations["mcp.server.operation.duration", CALL, "echo", "", ""]
    assert total == pytest.approx(0.06)
    assert buckets.index(2) == [bound >= 0.03 for bound in BOUNDS].index(True)


def test_what_is_not_kept_is_counted_and_not_queued() -> None:
    tracer = made(ratio=0.0)
    end(tracer)
    assert (len(tracer.durations), len(tracer.queues["traces"])) == (1, 0)
    kept = made()
    end(kept)
    assert (len(kept.durations), len(kept.queues["traces"])) == (1, 1)


def test_sessions_are_counted_by_the_events_of_their_ends() -> None:
    tracer = made()
    tracer.heard(Event(kind=EventKind.SESSION_ENDED, session="#1", details={"seconds": 2.0}))
    for cause in (Cause.EXITED, None):
        tracer.heard(Event(kind=EventKind.ENDED, server="git", cause=cause, details={"seconds": 3.0}))
    tracer.heard(Event(kind=EventKind.ENDED, server="git", details={}))
    assert {series: found[0] for series, found in tracer.durations.items()} == {
        ("mcp.server.session.duration", "", "", "", ""): 2.0,
        ("mcp.client.session.duration", "", "", "git", "exited"): 3.0,
        ("mcp.client.session.duration", "", "", "git", ""): 3.0,
    }
    assert len(tracer.queues["logs"]) == 4


def test_there_are_only_so_many_series() -> None:
    tracer = made(ratio=0.0)
    for number in range(SERIES + 5):
        end(tracer, tool=f"t{number}")
    assert len(tracer.durations) == SERIES + 1
    other = tracer.durations["mcp.server.operation.duration", "_OTHER", "", "", ""]
    assert sum(other[1:]) == 5


def test_the_oldest_of_too_many_are_dropped_and_counted() -> None:
    tracer = made()
    for number in range(QUEUED + 7):
        end(tracer, tool=f"t{number % 9}")
        tracer.take("logs", number)
    assert tracer.dropped == {"traces": 7, "logs": 7}
    assert (len(tracer.queues["traces"]), len(tracer.queues["logs"])) == (QUEUED, QUEUED)
    assert tracer.queues["logs"][0] == 7


async def test_all_is_sent_in_batches_at_the_latest_at_the_end() -> None:
    export = FakeExport()
    tracer = made(lambda: export)
    for number in range(BATCH + 3):
        end(tracer)
        tracer.take("logs", number)
    await run_until(tracer, lambda: len(export.sent["logs"]) >= 1)
    assert [len(batch) for batch in export.sent["traces"]] == [BATCH, 3]
    assert [each for batch in export.sent["logs"] for each in batch] == list(range(BATCH + 3))
    assert [len(batch) for batch in export.sent["metrics"]] == [1]
    assert tracer.dropped.total() == 0


async def test_batches_that_wait_at_the_end_are_sent_too(nursery: trio.Nursery) -> None:
    export = FakeExport()
    export.gate.clear()
    tracer = made(lambda: export)
    for number in range(4 * BATCH):
        tracer.take("logs", number)

    async def ends_during_the_first(scope: trio.CancelScope) -> None:
        await until(lambda: len(tracer.queues["logs"]) == 3 * BATCH)
        scope.cancel()
        await wait_all_tasks_blocked()
        export.gate.set()

    with trio.CancelScope() as scope:
        nursery.start_soon(ends_during_the_first, scope)
        await tracer.run()
    assert [len(batch) for batch in export.sent["logs"]] == [BATCH] * 4


async def run_until(tracer: Tracer, holds: Callable[[], object]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tracer.run)
        await until(holds)
        nursery.cancel_scope.cancel()


async def test_what_a_collector_does_not_take_is_lost_counted_and_told_once(logged: list[str]) -> None:
    export = FakeExport(sound=False)
    tracer = made(lambda: export)
    for number in range(2 * BATCH):
        tracer.take("logs", number)
    await run_until(tracer, lambda: len(export.sent["logs"]) == 2)
    assert tracer.dropped == {"traces": 0, "logs": 2 * BATCH}
    assert logged == [f"telemetry: no (calls and events lost: {BATCH})"]


async def test_the_end_waits_for_no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.01)
    export = FakeExport()
    export.gate.clear()
    tracer = made(lambda: export)
    for number in range(BATCH):
        tracer.take("logs", number)
    await run_until(tracer, lambda: not tracer.queues["logs"])
    assert not export.sent["logs"]
    export.gate.set()
    await until(lambda: export.sent["logs"])


async def test_a_fault_of_the_packages_costs_only_telemetry(logged: list[str]) -> None:

    def fails() -> Any:
        raise ImportError("opentelemetry is broken")

    tracer = made(fails)
    await run_until(tracer, lambda: logged)
    assert logged == ["telemetry is off"]


def test_there_is_a_tracer_where_telemetry_is_on(monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    assert tracer_for(Telemetry(), {}, "1", Redactors()) is None
    found = tracer_for(Telemetry(sample_ratio=0.5, arguments=True), ON, "1", Redactors())
    assert found is not None
    assert (found.sampling, found.arguments) == ((0.5, True), True)
    metrics = tracer_for(Telemetry(), {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, "1", Redactors())
    assert metrics is not None
    assert metrics.sampling == (0.0, False), "no server gets a span as parent that nobody sees"
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert tracer_for(Telemetry(), ON, "1", Redactors()) is None
    assert "mcpd-supervisor[otel]" in logged[0]
