"""Sums over time as areas that lie on one another: tokens that were shown, and those that were not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.console.charts.bars import sums
from daemon.console.charts.figure import figure, styled, top, y

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markupsafe import Markup

    from daemon.console.charts.figure import Chart


def areas(chart: Chart) -> Markup:
    """The series as areas, the first at the bottom. Where none of them is known there is a gap."""
    most = top(chart, sums(chart))
    return figure(chart, "".join(_areas(chart, most)), most=most, kind="areas")


def _areas(chart: Chart, most: float) -> Iterator[str]:
    base = [0.0] * len(chart.moments)
    stretches = [*_stretches(chart)]
    for series, style in styled(chart.series):
        top = [low + max(value or 0.0, 0.0) for low, value in zip(base, series.values, strict=True)]
        path = "".join(_area(chart, base, top, most, stretch) for stretch in stretches)
        base = top
        if path:
            yield f'<path class="area {style}" d="{path}"/>'


def _stretches(chart: Chart) -> Iterator[range]:
    """The moments without a gap between them."""
    begin = 0
    for at in range(len(chart.moments) + 1):
        if at == len(chart.moments) or all(series.values[at] is None for series in chart.series):
            if at > begin:
                yield range(begin, at)
            begin = at + 1


def _area(chart: Chart, base: Sequence[float], top: Sequence[float], most: float, stretch: range) -> str:
    places = [chart.x(chart.moments[at]) for at in stretch]
    if len(places) == 1:
        # An area of one moment has no width: it is drawn as wide as can be seen.
        places, stretch = [max(places[0] - 2, 0), places[0] + 2], range(stretch[0], stretch[0] + 1)
        heights, lows = [top[stretch[0]]] * 2, [base[stretch[0]]] * 2
    else:
        heights, lows = [top[at] for at in stretch], [base[at] for at in stretch]
    over = [f"{x:.1f} {y(value, most):.1f}" for x, value in zip(places, heights, strict=True)]
    under = [f"{x:.1f} {y(value, most):.1f}" for x, value in zip(places, lows, strict=True)]
    return f"M{'L'.join([*over, *reversed(under)])}z"
