"""What a server's charts are made of."""

from __future__ import annotations

import re
import time

import pytest

from daemon.console.pages.server_pages import MEBIBYTE, STEP, server_charts
from daemon.counting.series import MinuteOfDaemon, MinuteOfServer
from daemon.history.event import Event, EventKind
from tests.unit.console.charts.drawn import paths
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
    assert charts.latencies.series[0].values == (2.0, 2.0, 2.0)
    assert charts.memory.series[0].values == (8.0, 8.0, 8.0)
    latencies, memory = charts.drawn()
    assert [len(re.findall("M[0-9]", path)) for path in paths(str(latencies), "line")] == [2, 2]
    assert len(paths(str(memory), "line")) == 1


@pytest.mark.parametrize(
    ("ago", "title"), [(60, "hour"), (3500, "hour"), (3700, "6 hours"), (7 * 3600, "day"), (90 * 3600, "day")]
)
async def test_charts_cover_no_more_than_is_known(ago: int, title: str) -> None:
    context = OperatorStage().context()
    context.history.note(Event(kind=EventKind.READY, server="alpha", at=context.wall() - ago))
    charts = await server_charts(context, "alpha")
    assert charts.title == f"The last {title}"
    (span,) = charts.states.spans
    assert (span.state, span.until) == ("ready", charts.until)
    # Whoever became ready before is seen to have been ready all the time.
    assert ('x="0.0" y="0" width="1000.0"' in str(charts.drawn()[0])) is (ago > 24 * 3600)


async def test_what_nothing_is_known_of_is_not_drawn() -> None:
    charts = await server_charts(OperatorStage().context(), "alpha")
    assert charts.states.spans == ()
    assert charts.latencies.moments == ()
    assert charts.drawn() == []
