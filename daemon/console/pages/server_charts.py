"""What a server was and did over the last day, as charts: its states, the time of its calls, its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.console.charts.bands import Band, bands, spans_of
from daemon.console.charts.figure import Chart, Quantity, known
from daemon.console.charts.lines import lines
from daemon.history.event import EventKind
from daemon.operators.events import recent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from daemon.counting.series import MinuteOfServer
    from daemon.operators.base import OperatorContext

DAY = 24 * 3600

EVENTS = 500
"""Most events that the states of a day are made of."""

STEP = 60
"""Charts end with a whole minute, in seconds: otherwise they would differ with each second."""

MEBIBYTE = 1 << 20

_DAEMON = frozenset({EventKind.DAEMON_STARTED, EventKind.DAEMON_STOPPED})


@attrs.frozen(kw_only=True)
class ServerCharts:
    """The data of a server's charts; drawn where a page is, in a thread, and only if they differ."""

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
    """What is known of the last day of a server."""
    until = (int(context.wall()) // STEP + 1) * STEP
    since = until - DAY
    events = await recent(context, server=name, since=since, limit=EVENTS)
    daemon = await recent(context, kinds=_DAEMON, since=since, limit=EVENTS)
    minutes = [each for each in context.counters.series.server(name) if each.at >= since]
    axis = {"since": since, "until": until}
    return ServerCharts(
        states=Band(name=name, spans=tuple(spans_of([*events, *daemon], until=until))),
        latencies=_chart(
            Chart(id="latencies", title="Time of calls", unit="ms", moments=(), series=(), **axis),
            minutes,
            half=[each.p50_ms for each in minutes],
            most=[each.p95_ms for each in minutes],
        ),
        memory=_chart(
            Chart(id="memory", title="Memory", unit="MiB", moments=(), series=(), **axis),
            minutes,
            resident=[None if each.rss_bytes is None else each.rss_bytes / MEBIBYTE for each in minutes],
        ),
        since=since,
        until=until,
    )


_NAMES = {"half": "half of the calls within (p50)", "most": "95 % within (p95)", "resident": "resident memory"}


def _chart(chart: Chart, minutes: Sequence[MinuteOfServer], **values: list[float | None]) -> Chart:
    """A chart with quantities of each minute; a minute that was not measured is a gap."""
    moments: list[float] = []
    columns: dict[str, list[float | None]] = {each: [] for each in values}
    for at, minute in enumerate(minutes):
        if moments and minute.at - moments[-1] > STEP:
            moments.append(moments[-1] + STEP)
            for column in columns.values():
                column.append(None)
        moments.append(minute.at)
        for each, column in columns.items():
            column.append(values[each][at])
    series = tuple(Quantity(name=_NAMES[each], values=tuple(column)) for each, column in columns.items())
    return attrs.evolve(chart, moments=tuple(moments), series=series)
