"""Counts over time as bars that stand on one another: calls and the errors among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.console.charts.figure import WIDTH, figure, styled, top, y

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

    from daemon.console.charts.figure import Chart

FILLED = 0.85
"""The share of its time that a bar takes, so that bars of neighbours can be told apart."""


def bars(chart: Chart) -> Markup:
    """The series as bars, the first at the bottom, each as wide as the time that it is of."""
    most = top(chart, sums(chart))
    return figure(chart, "".join(_bars(chart, most)), most=most, kind="bars")


def sums(chart: Chart) -> list[float]:
    """The sum of all series at each moment."""
    drawn = [series.values for series, _style in styled(chart.series)]
    return [sum(values[at] or 0.0 for values in drawn) for at in range(len(chart.moments))]


def _bars(chart: Chart, most: float) -> Iterator[str]:
    width = _width(chart)
    base = [0.0] * len(chart.moments)
    for series, style in styled(chart.series):
        path = []
        for at, value in enumerate(series.values):
            if not value or value < 0:
                continue
            low, base[at] = base[at], base[at] + value
            top, bottom = y(base[at], most), y(low, most)
            left = chart.x(chart.moments[at])
            path.append(f"M{left:.1f} {bottom:.1f}V{top:.1f}h{width:.1f}V{bottom:.1f}z")
        if path:
            yield f'<path class="bar {style}" d="{"".join(path)}"/>'


def _width(chart: Chart) -> float:
    return max(chart.step / (chart.end - chart.begin) * WIDTH * FILLED, 1.0)
