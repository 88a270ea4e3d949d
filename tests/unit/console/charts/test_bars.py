"""Bars: they stand on one another, and fit however many there are."""

from __future__ import annotations

from daemon.console.charts import Chart, Quantity, bars
from tests.unit.console.charts.drawn import described, paths, rows


def chart_of(calls: list[float | None], errors: list[float | None]) -> Chart:
    return Chart(
        id="calls",
        title="Calls",
        moments=[60.0 * at for at in range(len(calls))],
        step=60.0,
        series=(Quantity(name="answered", values=calls), Quantity(name="failed", values=errors)),
    )


def test_bars_stand_on_one_another() -> None:
    chart = bars(chart_of([5.0, 0.0], [5.0, 10.0]))
    assert paths(chart, "s1") == ["M0.0 200.0V100.0h425.0V200.0z"]
    assert paths(chart, "s2") == ["M0.0 100.0V0.0h425.0V100.0zM500.0 200.0V0.0h425.0V200.0z"]
    assert rows(chart)[0][1:] == ["0", "10"]
    assert "failed: last 10, between 5 and 10." in described(chart)


def test_what_is_not_known_has_no_bar() -> None:
    assert paths(bars(chart_of([None, 1.0], [None, None])), "bar") == ["M500.0 200.0V0.0h425.0V200.0z"]


def test_many_bars_stay_visible_and_apart() -> None:
    (path,) = paths(bars(chart_of([1.0] * 500, [None] * 500)), "s1")
    assert path.count("h1.7V") == 500


def test_one_bar_is_as_wide_as_its_time_and_none_is_none() -> None:
    assert paths(bars(chart_of([3.0], [0.0])), "bar") == ["M0.0 200.0V80.0h850.0V200.0z"]
    assert paths(bars(chart_of([], [])), "bar") == []
