"""Quantities over time as lines: latencies, memory, rates. Where nothing is known, the line has a gap.

A line is level for as long as its value is of, so that what lies between two values is never made up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from daemon.console.charts.figure import Chart, Quantity, figure, known, styled, top, y

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup


def lines(chart: Chart) -> Markup:
    """The series as lines, told apart by their dashes, too."""
    most = top(chart, (value for series in chart.series for value in known(series)))
    drawn = "".join(
        f'<path class="line {style}" d="{path}"/>'
        for series, style in styled(chart.series)
        if (path := "".join(_levels(chart, series, most)))
    )
    return figure(chart, drawn, most=most, kind="lines")


def _levels(chart: Chart, series: Quantity, most: float) -> Iterator[str]:
    """A piece of the path for each value, joined to the one before if that is of the time right before."""
    end = None
    for moment, value in zip(chart.moments, series.values, strict=True):
        if value is None or not math.isfinite(value):
            continue
        height = f"{y(value, most):.1f}"
        yield f"V{height}" if moment == end else f"M{chart.x(moment):.1f} {height}"
        end = moment + chart.step
        yield f"H{chart.x(end):.1f}"
