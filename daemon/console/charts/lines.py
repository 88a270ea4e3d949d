"""Quantities over time as lines: latencies, memory. Where nothing is known, the line has a gap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from daemon.console.charts.figure import Chart, Quantity, figure, known, styled, top, y

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup


def lines(chart: Chart) -> Markup:
    """The series as lines, told apart by their dashes, too; a value with gaps around it is a dot."""
    most = top(chart, (value for series in chart.series for value in known(series)))
    drawn = "".join(
        f'<path class="line {style}" d="{path}"/>'
        for series, style in styled(chart.series)
        if (path := "".join(_stretches(chart, series, most)))
    )
    return figure(chart, drawn, most=most, kind="lines")


def _stretches(chart: Chart, series: Quantity, most: float) -> Iterator[str]:
    """A path for each stretch without a gap."""
    stretch: list[str] = []
    for moment, value in zip(chart.moments, series.values, strict=True):
        if value is None or not math.isfinite(value):
            yield _joined(stretch)
            stretch = []
        else:
            stretch.append(f"{chart.x(moment):.1f} {y(value, most):.1f}")
    yield _joined(stretch)


def _joined(points: list[str]) -> str:
    if len(points) == 1:
        # With round caps a line without length is a dot.
        return f"M{points[0]}h.1"
    return f"M{'L'.join(points)}" if points else ""
