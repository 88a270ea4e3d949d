"""What a server was and did lately, as charts: its states, the time of its calls, its memory.

They cover the shortest of a few spans that has all that is known: of a daemon that has just begun a day would
be empty but for its last minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.console.charts.bands import TELLING, Band, bands, spans_of
from daemon.console.charts.figure import Chart, Quantity, known
from daemon.console.charts.lines import lines
from daemon.history.event import EventKind
from daemon.operators.events import recent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from daemon.operators.base import OperatorContext

HOUR = 3600

SPANS = {"The last hour": HOUR, "The last 6 hours": 6 * HOUR, "The last day": 24 * HOUR}
"""What charts may cover, in seconds, the shortest first; minutes are kept for a day."""

EVENTS = 500
"""Most events that the states of a day are made of."""

STEP = 60
"""Seconds of each value. Charts end with a whole minute, too: otherwise they would differ with each second."""

MEBIBYTE = 1 << 20

_DAEMON = frozenset({EventKind.DAEMON_STARTED, EventKind.DAEMON_STOPPED})


@attrs.frozen(kw_only=True)
class ServerCharts:
    """The data of a server's charts; drawn where a page is, in a thread, and only if they differ."""

    title: str
    """What they cover."""
    states: Band
    latencies: Chart
    memory: Chart
    since: float
    until: float

    def drawn(self) -> list[Markup]:
        """The charts as figures; none of a quantity that was never measured."""
        states = bands("states", "State", [self.states], since=self.since, until=self.until)
        measured = (each for each in (self.latencies, self.memory) if any(map(known, each.series)))
        return [*([states] if self.states.spans else []), *map(lines, measured)]


async def server_charts(context: OperatorContext, name: str) -> ServerCharts:
    """What is known of the last day of a server, or of less if nothing older is known."""
    until = (int(context.wall()) // STEP + 1) * STEP
    # However old: that a server has been ready for a week was said a week ago.
    events = await recent(context, server=name, kinds=TELLING, limit=EVENTS)
    daemon = await recent(context, kinds=_DAEMON, limit=EVENTS)
    spans = tuple(spans_of([*events, *daemon], until=until))
    minutes = context.counters.series.server(name)
    oldest = min([*(span.since for span in spans), *(each.at for each in minutes)], default=until)
    title = next((title for title, span in SPANS.items() if oldest >= until - span), [*SPANS][-1])
    since = until - SPANS[title]
    minutes = [each for each in minutes if each.at >= since]
    moments = tuple(each.at for each in minutes)

    def chart(key: str, title: str, unit: str, **values: Sequence[float | None]) -> Chart:
        series = tuple(Quantity(name=_NAMES[each], values=tuple(column)) for each, column in values.items())
        return Chart(
            id=key, title=title, unit=unit, moments=moments, step=STEP, series=series, since=since, until=until
        )

    return ServerCharts(
        title=title,
        states=Band(name=name, spans=spans),
        latencies=chart(
            "latencies",
            "Time of calls",
            "ms",
            half=[each.p50_ms for each in minutes],
            most=[each.p95_ms for each in minutes],
        ),
        memory=chart("memory", "Memory", "MiB", resident=[_mebibytes(each.rss_bytes) for each in minutes]),
        since=since,
        until=until,
    )


_NAMES = {"half": "half of the calls within (p50)", "most": "95 % within (p95)", "resident": "resident memory"}


def _mebibytes(size: int | None) -> float | None:
    return None if size is None else size / MEBIBYTE
