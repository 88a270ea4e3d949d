"""States over time: a band for each server, high while it is ready, low while it is down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from markupsafe import Markup

from daemon.console.charts.figure import WIDTH, moment, svg, table, times
from daemon.history.event import EventKind
from daemon.kit.wording import counted
from daemon.safety.escape import visible
from daemon.states import SERVING, ServerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from daemon.history.event import Event

BAND = 20
"""Units of a band's height."""

READY, DEGRADED, DOWN, OFF = "ready", "degraded", "down", "off"

_HEIGHTS = {READY: BAND, DEGRADED: 14, DOWN: 8, OFF: 2}
"""Units of height by state, so that states differ without their colours, too."""

TELLING = frozenset({EventKind.READY, EventKind.DEGRADED, EventKind.ENDED, EventKind.STATE})
"""The kinds of events that say how a server is from then on."""

_AT_REST = frozenset({ServerState.DORMANT, ServerState.DISABLED, ServerState.STOPPING, ServerState.STOPPED})
"""States in which a server is not wanted to run."""

MAX_SPANS = 200
"""Spans of one band that are drawn: more are narrower than a pixel. The oldest are left out."""


@attrs.frozen(kw_only=True)
class Span:
    """A time during which a server was in one state."""

    state: str
    """`ready`, `degraded`, `down` or `off`."""
    since: float
    """In seconds since the epoch."""
    until: float
    why: str = ""
    """Why, in words without secrets: what was told last."""


@attrs.frozen(kw_only=True)
class Band:
    """The states of one server, oldest first; times between them at which nothing is known stay empty."""

    name: str
    spans: Sequence[Span]


def bands(name: str, title: str, rows: Sequence[Band], *, since: float, until: float) -> Markup:
    """The bands of servers between two times, in seconds since the epoch, as a figure with the id `name`."""
    until = max(until, since + 1.0)
    drawn = Markup("").join(
        Markup('<div class="band"><span class="band-name" title="{full}">{full}</span>{svg}</div>').format(
            full=visible(row.name),
            svg=svg(
                f"{name}-{at}", row.name, in_words(row, since, until), _drawn(row, since, until), height=BAND
            ),
        )
        for at, row in enumerate(rows)
    )
    states = (*_HEIGHTS, "unknown")
    key = Markup("").join(Markup('<li class="state-{0}">{0}</li>').format(state) for state in states)
    return Markup(
        '<figure class="chart chart-bands" id="{id}"><figcaption>{title}</figcaption>'
        '<ul class="chart-key">{key}</ul>{drawn}<div class="chart-x" aria-hidden="true">{times}</div>'
        "{table}</figure>"
    ).format(
        id=name,
        title=visible(title),
        key=key,
        drawn=drawn,
        times=times(since, until),
        table=table(("Server", "State", "From", "To", "Why"), _rows(rows, since, until)),
    )


def spans_of(events: Iterable[Event], *, until: float) -> list[Span]:
    """The states that the events of one server tell of, oldest first.

    Args:
        events: of one server, and of the daemon itself: while that does not run, nothing is known.
        until: when the last state ends, in seconds since the epoch.
    """
    found: list[Span] = []
    for event in sorted(events, key=lambda each: each.at):
        if event.kind in {EventKind.DAEMON_STARTED, EventKind.DAEMON_STOPPED}:
            state = ""
        elif (known := _state_after(event)) is None:
            continue
        else:
            state = known
        if found and found[-1].until > event.at:
            found[-1] = attrs.evolve(found[-1], until=event.at)
        if state and found and (found[-1].state, found[-1].until) == (state, event.at):
            found[-1] = attrs.evolve(found[-1], until=until, why=event.text or found[-1].why)
        elif state:
            found.append(Span(state=state, since=event.at, until=until, why=event.text))
    return [span for span in found if span.until > span.since]


def _state_after(event: Event) -> str | None:
    """The state that an event brings a server into; None if it says nothing of it."""
    if event.kind is EventKind.READY:
        return READY
    if event.kind is EventKind.DEGRADED:
        return DEGRADED
    state = event.details.get("state")
    if event.kind is EventKind.ENDED:
        return OFF if state in _AT_REST else DOWN
    if event.kind is EventKind.STATE:
        return str(state) if state in SERVING else OFF if state in _AT_REST else DOWN
    return None


def in_words(row: Band, since: float, until: float) -> str:
    """What a band shows, for those who do not see it."""
    spans = [*_within(row.spans, since, until)]
    if not spans:
        return f"{row.name}: nothing is known of this time."
    total = sum(span.until - span.since for span in spans) or 1.0
    shares = []
    for state in _HEIGHTS:
        lasted = [span.until - span.since for span in spans if span.state == state]
        if lasted:
            shares.append(f"{state} {100 * sum(lasted) / total:.0f} % ({counted(len(lasted), 'time')})")
    return f"{row.name}: {', '.join(shares)}; now {spans[-1].state}."


def _within(spans: Sequence[Span], since: float, until: float) -> Iterator[Span]:
    for span in spans:
        if span.until > since and span.since < until:
            yield attrs.evolve(span, since=max(span.since, since), until=min(span.until, until))


def _drawn(row: Band, since: float, until: float) -> str:
    scale = WIDTH / (until - since)
    drawn = []
    for span in [*_within(row.spans, since, until)][-MAX_SPANS:]:
        height = _HEIGHTS.get(span.state, BAND)
        left, width = (span.since - since) * scale, max((span.until - span.since) * scale, 1.0)
        state = span.state if span.state in _HEIGHTS else "unknown"
        drawn.append(
            f'<rect class="state-{state}" x="{min(left, WIDTH - 1.0):.1f}" y="{BAND - height}"'
            f' width="{width:.1f}" height="{height}"/>'
        )
    return "".join(drawn)


def _rows(rows: Sequence[Band], since: float, until: float) -> Iterator[Sequence[str]]:
    for row in rows:
        for span in reversed([*_within(row.spans, since, until)][-MAX_SPANS:]):
            yield row.name, span.state, moment(span.since), moment(span.until), span.why
