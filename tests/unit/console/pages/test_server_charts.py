"""What a server's charts are made of."""

from __future__ import annotations

import time

from daemon.console.pages.server_charts import MEBIBYTE, STEP, server_charts
from daemon.counting.series import MinuteOfDaemon, MinuteOfServer
from daemon.history.event import Event, EventKind
from tests.unit.operators.stage import OperatorStage


async def test_states_follow_what_has_happened() -> None:
    context = OperatorStage().context()
    now = context.wall()
    context.history.note(Event(kind=EventKind.READY, server="alpha", at=now - 300))
    context.history.note(Event(kind=EventKind.READY, server="beta", at=now - 200))
    context.history.note(Event(kind=EventKind.ENDED, server="alpha", at=now - 100, text="killed"))
    charts = await server_charts(context, "alpha")
    assert [each.state for each in charts.states.spans] == ["ready", "down"]
    assert charts.until % STEP == 0
    assert [str(each).count("<svg") for each in charts.drawn()] == [1]


async def test_a_minute_that_was_not_measured_is_a_gap() -> None:
    context = OperatorStage().context()
    begin = int(time.time()) // STEP * STEP - 10 * STEP
    for at in (begin, begin + STEP, begin + 4 * STEP):
        row = MinuteOfServer(at, calls=1, p50_ms=2.0, p95_ms=4.0, rss_bytes=8 * MEBIBYTE)
        context.counters.series.note(MinuteOfDaemon(at), {"alpha": row})
    charts = await server_charts(context, "alpha")
    assert charts.latencies.series[0].values == (2.0, 2.0, None, 2.0)
    assert charts.memory.series[0].values == (8.0, 8.0, None, 8.0)
    assert len(charts.drawn()) == 2


async def test_what_nothing_is_known_of_is_not_drawn() -> None:
    charts = await server_charts(OperatorStage().context(), "alpha")
    assert charts.states.spans == ()
    assert charts.latencies.moments == ()
    assert charts.drawn() == []
