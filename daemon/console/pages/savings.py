"""The page of savings: the tokens that loading on demand has saved and cost over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.console.charts import Chart, Quantity, bars, lines
from daemon.console.page import ConsolePage, Fragment, Holders, Viewer, element_id, part, session_page
from daemon.counting.tally import CLIENT_INSTEAD, CLIENT_SPARED, INSTEAD, OTHER, SPARED, in_all, tokens_in
from daemon.kit.wording import BYTES_PER_TOKEN, DAY, HOUR, MINUTE, camel
from daemon.operators.tool_reports import view_of

if TYPE_CHECKING:
    from markupsafe import Markup

    from daemon.operators.base import OperatorContext


CLIENTS = 100
"""Clients, and connections, on the page: those with the largest savings."""


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """A period that the charts cover."""

    title: str
    step: int
    parts: int


SPANS = {
    "hour": Period(title="Hour", step=MINUTE, parts=60),
    "day": Period(title="Day", step=HOUR, parts=24),
    "week": Period(title="Week", step=HOUR, parts=7 * 24),
    "month": Period(title="30 days", step=DAY, parts=30),
    "season": Period(title="90 days", step=DAY, parts=90),
}
"""Periods by their word in the address. The hour is counted here by minutes, others come from the store."""

USUAL = "day"

Hours = Mapping[str, Sequence[tuple[int, int]]]
"""Hourly counts by name, each with the start of its hour."""

Counts = dict[str, list[float | None]]
"""Counts of each part of a period, by name; None if no daemon was counting."""


# Makes one of the page's charts, with its id and the times of the period.
NewChart = Callable[..., Chart]

Draw = Callable[[NewChart, Counts], "Markup"]


async def _fragments(viewer: Viewer) -> Holders:
    context = viewer.context
    word = viewer.query.get("span", USUAL)
    word = word if word in SPANS else USUAL
    span = SPANS[word]
    moments = _moments(span, context.wall())
    counted = await context.archive.hours(moments[0])
    counts = _of_minutes(context, moments) if word == "hour" else _of_hours(counted, span, moments)
    new = partial(Chart, moments=moments, step=span.step, begin=moments[0], end=moments[-1] + span.step)
    drawn = {name: draw(partial(new, id=name), counts) for name, draw in _CHARTS.items()}
    spans = [(each, about.title) for each, about in SPANS.items()]
    return {
        "savings-spans": [part("savings-span", "savings_spans", now=word, spans=spans)],
        "savings-sums": [part("savings-sum", "savings_sums", **_sums(context))],
        "savings-charts": [
            part(f"chart-of-{name}", "savings_chart", name=name, chart=chart) for name, chart in drawn.items()
        ],
        "savings-surfaces": _surfaces(context),
        "savings-clients": _clients(counted),
        "savings-connections": _connections(context),
    }


SAVINGS_PAGE = ConsolePage(
    path="/savings", title="Savings", template="savings.html", fragments=_fragments, calls_every=10.0
)


def _moments(span: Period, now: float) -> list[float]:
    """The times at which a period's parts begin, up to the current part; days begin at local midnight."""
    offset = 0.0
    if span.step == DAY:
        shift = datetime.fromtimestamp(now).astimezone().utcoffset()
        offset = shift.total_seconds() if shift is not None else 0.0
    last = (now + offset) // span.step * span.step - offset
    return [last - span.step * back for back in range(span.parts - 1, -1, -1)]


def _of_minutes(context: OperatorContext, moments: Sequence[float]) -> Counts:
    known = {minute.at: minute for minute in context.counters.series.daemon()}
    found = [known.get(int(moment)) for moment in moments]
    return {
        camel(name): [None if each is None else getattr(each, name) for each in found]
        for name in ("tokens_not_sent", *_NAMES)
    }


def _of_hours(counted: Hours, span: Period, moments: Sequence[float]) -> Counts:
    sums: dict[str, dict[int, float]] = {}
    for name in (*map(camel, _NAMES), SPARED, INSTEAD):
        parts = sums.setdefault(name, {})
        for at, count in counted.get(name, ()):
            part = int((at - moments[0]) // span.step)
            parts[part] = parts.get(part, 0) + count
    return {name: [parts.get(at, 0) for at in range(len(moments))] for name, parts in sums.items()}


_NAMES = ("loads", "load_hits", "load_misses", "invalidations", "extra_round_trips")


def _tokens(chart: NewChart, counts: Counts) -> Markup:
    if SPARED not in counts:
        net = Quantity(name="not sent", values=counts["tokensNotSent"])
        return bars(chart(title="Tokens saved for models", series=(net,)))
    pairs = [*zip(counts[SPARED], counts[INSTEAD], strict=True)]
    shown = Quantity(name="shown when asked for", values=[instead for _spared, instead in pairs])
    spared = Quantity(
        name="never shown", values=[max((spared or 0) - (instead or 0), 0) for spared, instead in pairs]
    )
    return bars(chart(title="Tokens left out of lists: shown later, or never", series=(shown, spared)))


def _hit_rate(chart: NewChart, counts: Counts) -> Markup:
    rates = [
        100 * (hits or 0) / found if (found := (hits or 0) + (misses or 0)) else None
        for hits, misses in zip(counts["loadHits"], counts["loadMisses"], strict=True)
    ]
    series = (Quantity(name="hit rate", values=rates),)
    title = "Calls that found their tool loaded already (hit rate)"
    return lines(chart(title=title, unit="%", series=series, most=100.0))


def _of_counts(title: str, shown: Mapping[str, str]) -> Draw:
    """Draw the counts in `shown`, as bars under these names."""

    def draw(chart: NewChart, counts: Counts) -> Markup:
        series = [Quantity(name=each, values=counts[count]) for each, count in shown.items()]
        return bars(chart(title=title, series=series))

    return draw


_CHARTS: dict[str, Draw] = {
    "tokens": _tokens,
    "hit-rate": _hit_rate,
    "loads": _of_counts(
        "Tools that were loaded, and loaded tools that became invalid",
        {"loaded": "loads", "became invalid": "invalidations"},
    ),
    "round-trips": _of_counts(
        "Extra round trips: calls to find and load tools", {"calls of meta-tools": "extraRoundTrips"}
    ),
}


def _sums(context: OperatorContext) -> dict[str, object]:
    totals = context.archive.totals
    counted: Any = in_all(totals.known, totals.since)
    surface, view = view_of(context)
    return {
        "since": round(counted["since"] or context.facts.started_at),
        "spared": counted.get(SPARED, 0),
        "instead": counted.get(INSTEAD, 0),
        "net": counted["estimatedTokensNotSent"],
        "hit_rate": counted["loadHitRate"],
        "invalidation_rate": counted["invalidationRate"],
        "invalidations": sum(counted.get("invalidations", {}).values()),
        "loads": counted.get("loads", 0),
        "round_trips": counted.get("extraRoundTrips", 0),
        "all_tools": tokens_in(view.offer.listing_bytes),
        "shown": tokens_in(sum(map(len, surface.list_tools(view)))),
        "bytes_per_token": BYTES_PER_TOKEN,
    }


def _surfaces(context: OperatorContext) -> list[Fragment]:
    return [
        part(
            f"surface-{name}",
            "savings_row",
            name=name,
            address="",
            lists=lists.count,
            shown=tokens_in(lists.sent),
            all_tools=tokens_in(lists.full),
            net=tokens_in(lists.spared - lists.instead),
        )
        for name, lists in context.counters.tally.lists.items()
        if lists.count
    ]


def _clients(counted: Hours) -> list[Fragment]:
    found: dict[str, list[int]] = {}
    for at, prefix in enumerate((CLIENT_SPARED, CLIENT_INSTEAD)):
        for key, hours in counted.items():
            if key.startswith(prefix):
                sums = found.setdefault(key.removeprefix(prefix), [0, 0])
                sums[at] += sum(count for _at, count in hours)
    known = sorted(found.items(), key=lambda each: each[1][1] - each[1][0])
    return [
        part(
            element_id("client", name),
            "savings_client",
            name="" if name == OTHER else name,
            spared=spared,
            instead=instead,
        )
        for name, (spared, instead) in known[:CLIENTS]
    ]


def _connections(context: OperatorContext) -> list[Fragment]:
    known = sorted(context.clients.statistics(), key=lambda each: -(each.tokens_not_sent or 0))
    return [
        part(
            f"connection-{each.number}",
            "savings_row",
            name=each.client or "unnamed",
            address=session_page(each.key or f"#{each.number}"),
            surface=each.surface,
            net=each.tokens_not_sent,
        )
        for each in known[:CLIENTS]
    ]
