"""Lines: gaps stay gaps, a single point is seen."""

from __future__ import annotations

import math

from daemon.console.charts.figure import Chart, Quantity
from daemon.console.charts.lines import lines
from tests.unit.console.charts.drawn import described, paths, rows


def chart_of(*values: float | None) -> Chart:
    return Chart(
        id="latency",
        title="Time of calls",
        unit="ms",
        moments=[60.0 * at for at in range(len(values))],
        series=(Quantity(name="p95", values=values),),
    )


def test_a_line_goes_through_its_points() -> None:
    chart = lines(chart_of(0.0, 5.0, 10.0))
    assert paths(chart, "line") == ["M0.0 200.0L500.0 100.0L1000.0 0.0"]
    assert described(chart).endswith("p95: last 10 ms, between 0 ms and 10 ms.")
    assert [row[1] for row in rows(chart)] == ["10 ms", "5 ms", "0 ms"]


def test_gaps_stay_gaps() -> None:
    (path,) = paths(lines(chart_of(1.0, 1.0, None, 1.0, math.nan, 1.0, 1.0)), "line")
    assert path.count("M") == 3
    assert path.count("h.1") == 1


def test_a_single_point_is_seen_and_said() -> None:
    chart = lines(chart_of(4.0))
    assert paths(chart, "line") == ["M0.0 40.0h.1"]
    assert described(chart).endswith("p95: 4 ms, once.")


def test_huge_values_stay_within_the_drawing() -> None:
    chart = lines(chart_of(0.0, 1e18))
    assert paths(chart, "line") == ["M0.0 200.0L1000.0 0.0"]


def test_nothing_but_gaps_draws_nothing() -> None:
    assert paths(lines(chart_of(None, None)), "line") == []
