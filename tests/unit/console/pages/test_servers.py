"""The page of all servers: the worst first, with what helps; nothing that they say becomes markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.causes import Cause, Remedy
from daemon.console.pages.server_pages import SERVERS, shown
from daemon.states import ServerState
from tests.fakes_upstream import Stage
from tests.unit.config.reading import config_of
from tests.unit.console.pages.drawing import HOSTILE, drawn, values_of, viewer_of
from tests.unit.operators.stage import OperatorStage

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


def three() -> OperatorStage:
    """A failed server, a ready one and one that is off, in another order."""
    servers = {name: {"command": "unused", "enabled": name != "off"} for name in ("alpha", "off", "sick")}
    stage = Stage(config_of({"mcpServers": servers}))
    stage.becomes(
        "sick",
        ServerState.FAILED,
        reason=HOSTILE,
        cause=Cause.COMMAND_NOT_FOUND,
        remedy=Remedy(f"There is no program {HOSTILE}.", "Install it."),
        next_retry_at=2e9,
    )
    return OperatorStage(stage)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["sick", "alpha", "off"]),
        ("sort=name", ["alpha", "off", "sick"]),
        ("q=A", ["alpha"]),
        ("only=trouble", ["sick"]),
        ("only=disabled", ["off"]),
        ("q=nobody", []),
    ],
)
async def test_the_worst_is_first_and_a_query_chooses(query: str, names: list[str]) -> None:
    viewer = viewer_of(three().context(), query=query)
    assert shown(viewer.context, viewer.query) == names
    rows = [each["server"]["name"] for each in (await values_of(SERVERS, viewer)).values() if "server" in each]
    assert rows == names


async def test_a_row_says_why_what_helps_and_when_it_is_tried_again() -> None:
    page = await drawn(SERVERS, viewer_of(three().context()))
    assert "What helps: Install it" in page.text
    assert "Next try in" in page.text
    assert page.is_harmless()
    assert "/ui/servers/sick" in page.links
    assert {"/ui/servers/sick/restart", "/ui/servers/off/enable"} <= {*page.forms}


async def test_who_may_only_read_sees_no_controls() -> None:
    assert (await drawn(SERVERS, viewer_of(three().context(), may_change=False))).forms == []


async def test_calls_of_the_last_minutes_are_counted() -> None:
    stage = OperatorStage()
    for ok in (True, True, False):
        stage.alpha.stats.record([0.02], ok=ok)
    stage.alpha.in_flight = 3
    row = await _row(stage.context())
    assert (row["recent"]["calls"], row["recent"]["errors"], row["inFlight"]) == (3, 1, 3)
    assert row["recent"]["p50Ms"] == pytest.approx(20, rel=0.1)


async def test_nothing_differs_as_long_as_nothing_happens() -> None:
    context = three().context()
    assert await values_of(SERVERS, viewer_of(context)) == await values_of(SERVERS, viewer_of(context))


async def _row(context: OperatorContext) -> dict[str, Any]:
    return dict((await values_of(SERVERS, viewer_of(context)))["server-alpha"]["server"])
