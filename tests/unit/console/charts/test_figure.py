"""Numbers, scales and the figure around a drawing."""

import math
from typing import Any

import pytest

from daemon.console import charts
from daemon.history.event import Event, EventKind
from tests.unit.cases import cases
from tests.unit.console.charts.drawn import SVG, described, drawn, paths, rows


@cases("value", "told")
def test_numbers_have_three_digits_that_count(value: float | None, told: str) -> None:
    assert charts.number(value, "ms") == told


@pytest.mark.parametrize(
    ("most", "top"), [(0, 1), (0.3, 0.5), (1, 1), (1.01, 2), (4, 5), (51, 100), (1e300, 1e300), (math.inf, 1)]
)
def test_an_axis_ends_at_a_round_number(most: float, top: float) -> None:
    assert charts.ceiling(most) == pytest.approx(top)


def chart_of(title: str, *series: charts.Quantity, unit: str = "") -> charts.Chart:
    """A chart of values a minute."""
    moments = [60.0 * at for at in range(len(series[0].values))]
    times: dict[str, Any] = {"moments": moments, "step": 60.0, "begin": 0.0, "end": 60.0 * len(moments)}
    return charts.Chart(id="c", title=title, unit=unit, series=series, **times)


def test_foreign_text_stays_text() -> None:
    hostile = '<script>alert("x")</script>\u202e'
    chart = charts.lines(chart_of(hostile, charts.Quantity(name=hostile, values=(1.0,))))
    band = charts.band("states", "<b>", '"><script>', (), since=0, until=1)
    for each in (chart, band):
        assert [word for word in ("<script>", "\u202e", "<b>") if word in each] == []
        drawn(each)


def test_a_long_chart_has_a_short_table_with_the_newest_first() -> None:
    values = [60.0 * at for at in range(1440)]
    chart = charts.lines(chart_of("t", charts.Quantity(name="p50", values=values)))
    told = rows(chart)
    assert len(told) <= charts.ROWS + 1
    assert told[0][1] == charts.number(values[-1])
    assert len(chart) < 40_000


# --- bands of states -----------------------------------------------------------------------------------------


def happened(kind: EventKind, at: float, text: str = "", **details: str) -> Event:
    return Event(kind=kind, at=at, server="git", text=text, details=details)


def test_the_states_of_a_server_follow_from_what_happened_to_it() -> None:
    events = [
        happened(EventKind.DAEMON_STARTED, 0.0), happened(EventKind.STARTED, 1.0), happened(EventKind.READY,
        2.0), happened(EventKind.DEGRADED, 10.0, "pings go unanswered"), happened(EventKind.ENDED, 20.0,
        "killed by SIGKILL"), happened(EventKind.STATE, 20.0, state="backoff"), happened(EventKind.READY,
        25.0), happened(EventKind.STATE, 40.0, state="dormant"), happened(EventKind.DAEMON_STOPPED, 50.0),
        happened(EventKind.READY, 60.0),
    ]  # fmt: skip
    assert [(span.state, span.since, span.until) for span in charts.spans_of(events, until=70.0)] == [
        ("ready", 2.0, 10.0),
        ("degraded", 10.0, 20.0),
        ("down", 20.0, 25.0),
        ("ready", 25.0, 40.0),
        ("off", 40.0, 50.0),
        ("ready", 60.0, 70.0),
    ]
    assert [span.why for span in charts.spans_of(events, until=70.0)][1:3] == [
        "pings go unanswered",
        "killed by SIGKILL",
    ]


def test_a_server_that_flaps_has_a_bounded_band_that_ends_with_the_newest() -> None:
    spans = [charts.Span(state="ready" if at % 2 else "down", since=at, until=at + 1) for at in range(5000)]
    chart = charts.band("states", "States", "git", spans, since=0, until=5000)
    found = [*drawn(chart).iter(f"{SVG}rect")]
    assert len(found) == charts.MAX_SPANS
    assert found[-1].attrib["x"] == "999.0"
    assert [chart.count(f"<td>{charts.moment(at)}</td>") for at in (4999, 5000)] == [2, 1]


# --- bars: they stand on one another, and fit however many there are -----------------------------------------


def bars_of(calls: list[float | None], errors: list[float | None]) -> str:
    series = charts.Quantity(name="answered", values=calls), charts.Quantity(name="failed", values=errors)
    return charts.bars(chart_of("Calls", *series))


def test_bars_stand_on_one_another() -> None:
    chart = bars_of([5.0, 0.0], [5.0, 10.0])
    assert paths(chart, "s1") == ["M0.0 200.0V100.0h425.0V200.0z"]
    assert paths(chart, "s2") == ["M0.0 100.0V0.0h425.0V100.0zM500.0 200.0V0.0h425.0V200.0z"]
    assert rows(chart)[0][1:] == ["0", "10"]
    assert "failed: last 10, between 5 and 10." in described(chart)


def test_many_bars_stay_visible_and_apart() -> None:
    (path,) = paths(bars_of([1.0] * 500, [None] * 500), "s1")
    assert path.count("h1.7V") == 500


# --- lines: level for as long as their values are of, gaps stay gaps -----------------------------------------


def lines_of(*values: float | None) -> str:
    return charts.lines(chart_of("Time of calls", charts.Quantity(name="p95", values=values), unit="ms"))


def test_a_line_is_level_for_as_long_as_its_value_is_of() -> None:
    chart = lines_of(0.0, 5.0, 10.0, 10.0)
    assert paths(chart, "line") == ["M0.0 200.0H250.0V100.0H500.0V0.0H750.0V0.0H1000.0"]
    assert described(chart).endswith("p95: last 10 ms, between 0 ms and 10 ms.")
    assert [row[1] for row in rows(chart)] == ["10 ms", "10 ms", "5 ms", "0 ms"]


def test_gaps_stay_gaps() -> None:
    (path,) = paths(lines_of(1.0, 1.0, None, 1.0, math.nan, 1.0, 1.0), "line")
    assert path.count("M") == 3
    assert path.count("H") == 5


def test_a_line_in_a_cell_leaves_out_what_is_not_known_and_ends_at_its_newest_value() -> None:
    assert charts.spark([None, 3.0, None]) == ""
    line = str(charts.spark([None, 0.0, 5.0, 10.0]))
    assert 'viewBox="0 0 3 20"' in line
    assert 'd="M1 20l1 -10 1 -10"' in line
    assert 'd="M1 20l1 -10 1 -10V20H1"' in line, "what lies below the line"
    assert charts.spark([0.0, 0.0]) == charts.spark([5.0]) == ""
