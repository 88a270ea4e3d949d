"""Numbers, scales and the figure around a drawing."""

from __future__ import annotations

import math
import re

import pytest

from daemon.console.charts import HEIGHT, ROWS, WIDTH, Chart, Quantity, ceiling, clock, lines, number, y
from tests.unit.console.charts.drawn import drawn, rows


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "\N{EN DASH}"),
        (math.nan, "\N{EN DASH}"),
        (0.0, "0 ms"),
        (0.1234, "0.123 ms"),
        (12.345, "12.3 ms"),
        (1204.4, "1204 ms"),
        (9999.0, "9999 ms"),
        (10_000.0, "10 k ms"),
        (71_859.0, "71.9 k ms"),
        (-200_000.0, "-200 k ms"),
        (12_400_000.0, "12.4 M ms"),
        (1e18, "1e+03 P ms"),
    ],
)
def test_numbers_have_three_digits_that_count(value: float | None, told: str) -> None:
    assert number(value, "ms") == told


@pytest.mark.parametrize(
    ("most", "top"), [(0, 1), (0.3, 0.5), (1, 1), (1.01, 2), (4, 5), (51, 100), (1e300, 1e300), (math.inf, 1)]
)
def test_an_axis_ends_at_a_round_number(most: float, top: float) -> None:
    assert ceiling(most) == pytest.approx(top)


def test_what_is_beyond_the_axis_stays_within_the_drawing() -> None:
    assert (y(-1, 10), y(0, 10), y(10, 10), y(99, 10)) == (HEIGHT, HEIGHT, 0, 0)
    chart = Chart(id="c", title="", moments=(), step=60.0, series=(), since=10, until=20)
    assert (chart.x(0), chart.x(15), chart.x(99)) == (0, WIDTH / 2, WIDTH)


def test_times_name_the_day_where_they_cover_more_than_one() -> None:
    assert re.fullmatch(r"\d\d:\d\d", clock(0, 3600))
    assert re.fullmatch(r"\d\d \w{3} \d\d:\d\d", clock(0, 90_000))
    assert re.fullmatch(r"\d\d \w{3}", clock(0, 30 * 86_400))


def test_foreign_text_stays_text() -> None:
    hostile = '<script>alert("x")</script>\u202e'
    chart = lines(
        Chart(id="c", title=hostile, moments=(1.0,), step=60.0, series=(Quantity(name=hostile, values=(1.0,)),))
    )
    assert "<script>" not in chart
    assert "\u202e" not in chart
    drawn(chart)


def test_a_long_chart_has_a_short_table_with_the_newest_first() -> None:
    moments = [60.0 * at for at in range(1440)]
    chart = lines(
        Chart(id="c", title="t", moments=moments, step=60.0, series=(Quantity(name="p50", values=moments),))
    )
    told = rows(chart)
    assert len(told) <= ROWS + 1
    assert told[0][1] == number(moments[-1])
    assert len(chart) < 40_000


def test_nothing_at_all_is_said_in_words() -> None:
    chart = lines(Chart(id="c", title="t", moments=(), step=60.0, series=()))
    assert "Nothing was counted yet." in drawn(chart).itertext()
