"""Draws charts as SVG: pure functions from numbers to HTML, without scripts or inline styles.

A chart is a `figure` with a text, the drawing, and the numbers as a table. Colour is never the only sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import attrs
import msgspec
from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup

from daemon.history.event import Event, EventKind
from daemon.kit.wording import counted
from daemon.safety.escape import visible
from daemon.states import SERVING, ServerState

WIDTH, HEIGHT = 1000, 200
"""Units of a drawing, which the browser stretches."""

SPARK_HEIGHT = 20
"""Units of a chart in a table's cell."""

STYLES = 6
"""Series that the stylesheet can distinguish; a chart with more could not be read."""

_GRID = f'<path class="grid" d="M0 0H{WIDTH}M0 {HEIGHT // 2}H{WIDTH}M0 {HEIGHT}H{WIDTH}"/>'
"""Lines at the heights of the labels: top, middle and bottom."""

ROWS = 60
"""Rows of a chart's table of numbers. Of more moments, evenly spaced ones are left out, never the last."""

_STEPS = (1.0, 2.0, 5.0, 10.0)
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_WHOLE = 1e4
"""Smaller numbers are written in full: a prefix would not shorten them."""
_DAY = 86_400.0


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity over time."""

    name: str
    values: Sequence[float | None]
    """A value for each moment; an unknown one is None, and not drawn."""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a chart."""

    id: str
    """Id of its figure, unique in the page."""
    title: str
    unit: str = ""
    moments: Sequence[float]
    """The times at which the values begin, in rising epoch seconds."""
    step: float
    """Seconds that each value covers."""
    series: Sequence[Quantity]
    begin: float
    """The start of the axis."""
    end: float
    """The end of the axis, which is always after its start."""
    most: float | None = None
    """The value at the top; None takes a round number above all values."""

    def x(self, moment: float) -> float:
        """The horizontal position of a moment, from 0 to `WIDTH`."""
        return min(max((moment - self.begin) / (self.end - self.begin), 0.0), 1.0) * WIDTH


def ceiling(most: float) -> float:
    """The smallest round number that is not below `most`; 1 for 0."""
    if not (math.isfinite(most) and most > 0):
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in _STEPS if step * power >= most or step == _STEPS[-1])


def y(value: float, most: float) -> float:
    """The vertical position of a value, from `HEIGHT` for 0 to 0 for `most`."""
    return HEIGHT - min(max(value / most, 0.0), 1.0) * HEIGHT


def spark(values: Sequence[float | None]) -> Markup:
    """A line chart without axes, for a table's cell; empty if all values are zero or fewer than two known."""
    given = [(at, value) for at, value in enumerate(values) if value is not None]
    most = max((value for _, value in given), default=0.0)
    if len(given) < 2 or not most:  # noqa: PLR2004 - a line has two ends
        return Markup("")
    places = [(at, SPARK_HEIGHT - round(value / most * SPARK_HEIGHT)) for at, value in given]
    # Relative to the place before: a page may have a hundred of these lines.
    steps = " ".join(f"{x - was_x} {y - was_y}" for (was_x, was_y), (x, y) in pairwise(places))
    line = f"M{places[0][0]} {places[0][1]}l{steps}"
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="area" d="{2}V{1}H{3}"/><path d="{2}"/></svg>'
    ).format(len(values) - 1, SPARK_HEIGHT, line, places[0][0])


def number(value: float | None, unit: str = "") -> str:
    """A number as people read it, with three significant digits: `12.4 M tokens`."""
    if value is None or not math.isfinite(value):
        return "\N{EN DASH}"
    for size, prefix in _PREFIXES:
        if abs(value) >= max(size, _WHOLE):
            return " ".join(filter(None, (f"{value / size:.3g}", prefix, unit)))
    digits = f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits
    return f"{digits} {unit}".strip()


def clock(moment: float, span: float) -> str:
    """A time on an axis that covers `span` seconds, with the day if that is more than one day."""
    at = datetime.fromtimestamp(moment).astimezone()
    return f"{at:%d %b}" if span > 7 * _DAY else f"{at:%d %b %H:%M}" if span > _DAY else f"{at:%H:%M}"


def moment(at: float) -> str:
    """A time to the second, for tables."""
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}"


def top(chart: Chart, values: Iterable[float]) -> float:
    """The value at the top of a chart that has these values."""
    return ceiling(max(values, default=0.0)) if chart.most is None else chart.most


class _Image(NamedTuple):
    id: str
    title: str
    said: str
    drawing: Markup
    height: int
    width: int = WIDTH


@cache
def _template() -> Template:
    loaded = Environment(loader=PackageLoader("daemon.console"), autoescape=True, trim_blocks=True)
    loaded.filters["visible"] = visible
    return loaded.get_template("chart.html")


def figure(chart: Chart, drawing: str, *, most: float, kind: str) -> Markup:
    """Put a figure around a drawing (SVG of numbers); `most` is the value at its top, `kind` its CSS class."""
    said = in_words(chart)
    image = _Image(chart.id, chart.title, said, Markup(_GRID + drawing), HEIGHT)  # noqa: S704 - made of numbers
    return _figure(
        kind=kind,
        id=chart.id,
        title=chart.title,
        said=said,
        key=[(style, series.name) for series, style in styled(chart.series)],
        labels=[number(value, chart.unit) for value in (most, most / 2, 0.0)],
        images=[image] if any(map(known, chart.series)) else (),
        times=times(chart.begin, chart.end),
        header=("Time", *(series.name for series in chart.series)),
        rows=_numbers(chart),
    )


def _figure(**values: object) -> Markup:
    return Markup(_template().render(values))  # noqa: S704 - escaped by the template


def times(begin: float, end: float) -> list[str]:
    """The labels of the time axis: its start, middle and end."""
    return [clock(moment, end - begin) for moment in (begin, (begin + end) / 2, end)]


def styled(series: Sequence[Quantity]) -> Iterator[tuple[Quantity, str]]:
    """The series that are drawn, each with its CSS class."""
    return ((each, f"s{at}") for at, each in enumerate(series[:STYLES], start=1))


def known(series: Quantity) -> list[float]:
    """The values of a series that can be drawn."""
    return [value for value in series.values if value is not None and math.isfinite(value)]


def in_words(chart: Chart) -> str:
    """Describe a chart in words, for people who cannot see it."""
    parts = [_series_in_words(each, chart.unit) for each in chart.series if known(each)]
    if not parts:
        return "There is no data yet."
    span = chart.end - chart.begin
    return f"From {clock(chart.begin, span)} to {clock(chart.end, span)}. {' '.join(parts)}"


def _series_in_words(series: Quantity, unit: str) -> str:
    values = known(series)
    if len(values) == 1:
        return f"{series.name}: {number(values[0], unit)}, once."
    last, least, most = (number(value, unit) for value in (values[-1], min(values), max(values)))
    return f"{series.name}: last {last}, between {least} and {most}."


def _numbers(chart: Chart) -> Iterator[Sequence[str]]:
    number_of, span = len(chart.moments), chart.end - chart.begin
    for at in range(number_of - 1, -1, -max(1, math.ceil(number_of / ROWS))):
        when = clock(chart.moments[at], max(span, _DAY + 1) if span > _DAY else span)
        yield when, *(number(series.values[at], chart.unit) for series in chart.series)


BAND = 20

READY, DEGRADED, DOWN, OFF = "ready", "degraded", "down", "off"

_HEIGHTS = {READY: BAND, DEGRADED: 14, DOWN: 8, OFF: 2}
"""Heights of states in units, so that states differ even without colours."""

TELLING = frozenset({EventKind.READY, EventKind.DEGRADED, EventKind.ENDED, EventKind.STATE})

_AT_REST = frozenset({ServerState.DORMANT, ServerState.DISABLED, ServerState.STOPPING, ServerState.STOPPED})

MAX_SPANS = 200
"""Spans of a band that are drawn, the newest: others would be narrower than a pixel."""


@attrs.frozen(kw_only=True)
class Span:
    """A time in which a server had one state."""

    state: str
    """`ready`, `degraded`, `down` or `off`."""
    since: float
    until: float
    why: str = ""
    """The last reason of the state, without secrets."""


def band(name: str, title: str, server: str, spans: Sequence[Span], *, since: float, until: float) -> Markup:
    """Draw a server's states from `since` to `until` (epoch seconds) as a figure with the id `name`."""
    shown = [*_within(spans, since, max(until, since + 1.0))]
    said, drawn = band_in_words(server, shown), _drawn(shown[-MAX_SPANS:], since, max(until, since + 1.0))
    return _figure(
        kind="bands",
        id=name,
        title=title,
        key=[(f"state-{state}", state) for state in (*_HEIGHTS, "unknown")],
        labels=(),
        images=[_Image(f"{name}-band", server, said, Markup(drawn), BAND)],  # noqa: S704 - made of numbers
        times=times(since, until),
        header=("State", "From", "To", "Why"),
        rows=[
            (each.state, moment(each.since), moment(each.until), each.why)
            for each in shown[: -MAX_SPANS - 1 : -1]
        ],
    )


def spans_of(events: Iterable[Event], *, until: float) -> list[Span]:
    """The states that a server's events tell; after the daemon's own events, the state is unknown."""
    found: list[Span] = []
    for event in sorted(events, key=lambda each: each.at):
        if (state := _state_after(event)) is None:
            continue
        if found and found[-1].until > event.at:
            found[-1] = attrs.evolve(found[-1], until=event.at)
        if state and found and (found[-1].state, found[-1].until) == (state, event.at):
            found[-1] = attrs.evolve(found[-1], until=until, why=event.text or found[-1].why)
        elif state:
            found.append(Span(state=state, since=event.at, until=until, why=event.text))
    return [span for span in found if span.until > span.since]


_AFTER = {
    EventKind.READY: READY,
    EventKind.DEGRADED: DEGRADED,
    EventKind.DAEMON_STARTED: "",
    EventKind.DAEMON_STOPPED: "",
}


def _state_after(event: Event) -> str | None:
    """The state that an event tells; empty for an unknown state."""
    if event.kind not in {EventKind.ENDED, EventKind.STATE}:
        return _AFTER.get(event.kind)
    state = event.details.get("state")
    if event.kind is EventKind.STATE and state in SERVING:
        return str(state)
    return OFF if state in _AT_REST else DOWN


def band_in_words(server: str, spans: Sequence[Span]) -> str:
    """Describe a band in words, for people who cannot see it."""
    if not spans:
        return f"{server}: no data for this time."
    total = sum(span.until - span.since for span in spans) or 1.0
    shares = []
    for state in _HEIGHTS:
        lasted = [span.until - span.since for span in spans if span.state == state]
        if lasted:
            shares.append(f"{state} {100 * sum(lasted) / total:.0f} % ({counted(len(lasted), 'time')})")
    return f"{server}: {', '.join(shares)}; now {spans[-1].state}."


def _within(spans: Sequence[Span], since: float, until: float) -> Iterator[Span]:
    for span in spans:
        if span.until > since and span.since < until:
            yield attrs.evolve(span, since=max(span.since, since), until=min(span.until, until))


def _drawn(spans: Sequence[Span], since: float, until: float) -> str:
    scale = WIDTH / (until - since)
    drawn = []
    for span in spans:
        height = _HEIGHTS[span.state]
        left, width = (span.since - since) * scale, max((span.until - span.since) * scale, 1.0)
        drawn.append(
            f'<rect class="state-{span.state}" x="{min(left, WIDTH - 1.0):.1f}" y="{BAND - height}"'
            f' width="{width:.1f}" height="{height}"/>'
        )
    return "".join(drawn)


FILLED = 0.85
"""The part of its time that a bar fills, so that neighbouring bars stay apart."""


def bars(chart: Chart) -> Markup:
    """Draw stacked bars, the first series at the bottom, each as wide as its time."""
    if not any(sums(chart)):
        chart = msgspec.structs.replace(chart, series=())  # Bars without height would be an empty frame.
    most = top(chart, sums(chart))
    return figure(chart, "".join(_bars(chart, most)), most=most, kind="bars")


def sums(chart: Chart) -> list[float]:
    """The sum of all series at each moment."""
    drawn = [series.values for series, _style in styled(chart.series)]
    return [sum(values[at] or 0.0 for values in drawn) for at in range(len(chart.moments))]


def _bars(chart: Chart, most: float) -> Iterator[str]:
    width = max(chart.step / (chart.end - chart.begin) * WIDTH * FILLED, 1.0)
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


def lines(chart: Chart) -> Markup:
    """Draw lines, which dashes distinguish, too."""
    most = top(chart, (value for series in chart.series for value in known(series)))
    drawn = "".join(
        f'<path class="line {style}" d="{path}"/>'
        for series, style in styled(chart.series)
        if (path := "".join(_levels(chart, series, most)))
    )
    return figure(chart, drawn, most=most, kind="lines")


def _levels(chart: Chart, series: Quantity, most: float) -> Iterator[str]:
    """A piece of path for each value, joined to the previous one if their times meet."""
    end = None
    for moment, value in zip(chart.moments, series.values, strict=True):
        if value is None or not math.isfinite(value):
            continue
        height = f"{y(value, most):.1f}"
        yield f"V{height}" if moment == end else f"M{chart.x(moment):.1f} {height}"
        end = moment + chart.step
        yield f"H{chart.x(end):.1f}"
