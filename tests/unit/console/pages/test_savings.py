"""The page of savings: sums, and charts from the hour to the quarter."""

from typing import Any

import pytest

from daemon.console.pages.savings import SAVINGS_PAGE, SPANS
from daemon.counting.recent_calls import MinuteOfDaemon
from daemon.counting.tally import CLIENT_INSTEAD, CLIENT_SPARED, INSTEAD, OTHER, SPARED
from daemon.operators.base import OperatorContext
from tests.fakes_upstream import Stage
from tests.unit.console.charts.drawn import described, paths, rows
from tests.unit.console.pages.drawing import drawn, values_of, viewer_of
from tests.unit.operators.stage import SESSION, FakeArchive, FakeSession, clients_of, operator_context

NOON = 1_800_000_000.0 // 86_400 * 86_400 + 43_200
HOUR = 3600


def context_of(counted: dict[str, Any] | None = None, **changed: Any) -> OperatorContext:
    archive = FakeArchive(counted=counted or {})
    return operator_context(Stage(), archive=archive, wall=lambda: NOON + 90, **changed)


async def charts_of(context: OperatorContext, span: str) -> dict[str, str]:
    holders = await SAVINGS_PAGE.fragments(viewer_of(context, query=f"span={span}"))
    return {str(each.values["name"]): str(each.values["chart"]) for each in holders["savings-charts"]}


@pytest.mark.parametrize("span", [*SPANS, "", "nonsense"])
async def test_each_span_is_drawn_even_if_nothing_was_counted(span: str) -> None:
    page = await drawn(SAVINGS_PAGE, viewer_of(context_of(), query=f"span={span}"))
    assert "4 bytes of JSON count as one token" in page.text
    assert page.is_harmless()
    assert {"/ui/savings?span=hour", "/ui/savings?span=season"} <= {*page.links}


async def test_tokens_of_all_tools_are_divided_into_those_shown_and_those_never_shown() -> None:
    counted = {SPARED: [(int(NOON), 1000)], INSTEAD: [(int(NOON), 250)]}
    chart = (await charts_of(context_of(counted), "day"))["tokens"]
    assert "shown when asked for: last 250, between 0 and 250" in described(chart)
    assert "never shown: last 750, between 0 and 750" in described(chart)
    assert rows(chart)[0][1:] == ["250", "750"]


async def test_an_hour_has_gaps_where_no_daemon_was_running() -> None:
    context = context_of()
    for minutes_ago, tokens in ((3, 40), (1, -8)):
        at = int(NOON) - 60 * minutes_ago
        context.counters.series.note(MinuteOfDaemon(at, tokens, extra_round_trips=2), {})
    found = await charts_of(context, "hour")
    assert "not sent: last -8, between -8 and 40" in described(found["tokens"])
    (trips,) = paths(found["round-trips"], "bar")
    assert trips.count("M") == 2


async def test_surfaces_and_clients_are_told_apart() -> None:
    context = context_of(clients=clients_of(FakeSession(SESSION)))
    context.counters.tally.listed("category", 400, 4000)
    context.counters.tally.spared("category", 3600)
    context.archive.totals.read({SPARED: 9, INSTEAD: 7}, 1.0)
    values = await values_of(SAVINGS_PAGE, viewer_of(context))
    surface = values["surface-category"]
    assert (surface["lists"], surface["shown"], surface["all_tools"], surface["net"]) == (1, 100, 1000, 900)
    assert (values["connection-3"]["name"], values["savings-sum"]["net"]) == ("claude 2", 2)
    page = await drawn(SAVINGS_PAGE, viewer_of(context))
    assert "/ui/sessions/%2Fhome%2Fme%2Fproject" in page.links


async def test_clients_that_have_left_are_told_by_what_was_counted_by_the_hour() -> None:
    counted = {
        f"{CLIENT_SPARED}zed": [(int(NOON) - HOUR, 700), (int(NOON), 300)],
        f"{CLIENT_INSTEAD}zed": [(int(NOON), 100)],
        f"{CLIENT_INSTEAD}{OTHER}": [(int(NOON), 50)],
    }
    for span in SPANS:
        holders = await SAVINGS_PAGE.fragments(viewer_of(context_of(counted), query=f"span={span}"))
        told = [
            (each.values["name"], each.values["spared"], each.values["instead"])
            for each in holders["savings-clients"]
        ]
        assert told == [("zed", 300 if span == "hour" else 1000, 100), ("", 0, 50)]
