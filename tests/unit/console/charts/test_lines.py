"""Lines: level for as long as their values are of, gaps stay gaps."""

from __future__ import annotations

import math

from daemon.console.charts import Chart, Quantity, lines
from tests.unit.console.charts.drawn import described, paths, rows


def chart_of(*values: float | None) -> Chart:
    return Chart(
        id="latency",
        title="Time of calls",
        unit="ms",
        moments=[60.0 * at for at in range(len(values))],
        step=60.0,
        series=(Quantity(name="p95", values=values),),
    )


def test_a_line_is_level_for_as_long_as_its_value_is_of() -> None:
    chart = lines(chart_of(0.0, 5.0, 10.0, 10.0))
    assert paths(chart, "line") == ["M0.0 200.0H250.0V100.0H500.0V0.0H750.0V0.0H1000.0"]
    assert described(chart).endswith("p95: last 10 ms, between 0 ms and 10 ms.")
    assert [row[1] for row in rows(chart)] == ["10 ms", "10 ms", "5 ms", "0 ms"]


def test_gaps_stay_gaps() -> None:
    (path,) = paths(lines(chart_of(1.0, 1.0, None, 1.0, math.nan, 1.0, 1.0)), "line")
    assert path.count("M") == 3
    assert path.count("H") == 5


def test_times_that_are_missing_are_gaps_too() -> None:
    values = Quantity(name="p95", values=(1.0, 1.0))
    (path,) = paths(
        lines(Chart(id="c", title="t", moments=(0.0, 120.0), step=60.0, series=(values,), until=240.0)), "line"
    )
    assert path == "M0.0 0.0H250.0M500.0 0.0H750.0"


def test_a_single_value_is_seen_and_said() -> None:
    chart = lines(chart_of(4.0))
    assert paths(chart, "line") == ["M0.0 40.0H1000.0"]
    assert described(chart).endswith("p95: 4 ms, once.")
