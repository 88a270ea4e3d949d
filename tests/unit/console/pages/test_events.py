"""The page of events: the history of all, the newest first, and what of it is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.causes import Cause
from daemon.console.pages.activity_pages import CHANGES, EVENTS_PAGE, EVENTS_SHOWN, changes
from daemon.console.rendering import Rendering
from daemon.errors import InvalidArguments
from daemon.history.event import Event, EventKind
from daemon.history.event_words import phrase
from tests.fakes_upstream import Stage
from tests.unit.console.pages.drawing import HOSTILE, drawn, values_of, viewer_of
from tests.unit.operators.stage import operator_context

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.operators.base import OperatorContext


def context_of(events: Iterable[Event]) -> OperatorContext:
    context = operator_context(Stage())
    for event in events:
        context.history.note(event)
    return context


def started(number: int, **more: str) -> Event:
    return Event(kind=EventKind.STARTED, at=1000.0 + number, run=number, **{"server": "alpha", **more})  # type: ignore[arg-type]


LISTS = Event(
    kind=EventKind.LISTS_CHANGED,
    server="alpha",
    details={"tools": {"came": ["add"], "went": ["gone"], "changed": ["echo"]}},
)


async def test_the_newest_comes_first_with_its_server_as_a_link() -> None:
    page = await drawn(EVENTS_PAGE, viewer_of(context_of([started(1), started(2), started(3, server="left")])))
    assert page.text.index("run 2 begins") < page.text.index("run 1 begins")
    assert "/ui/servers/alpha" in page.links
    assert "/ui/servers/left" not in page.links
    assert "left" in page.text


async def test_a_hundred_are_on_a_page_and_the_next_goes_on_where_it_ends() -> None:
    context = context_of(started(number) for number in range(EVENTS_SHOWN + 7))
    first = await EVENTS_PAGE.fragments(viewer_of(context))
    assert len(first["events"]) == EVENTS_SHOWN
    older = str(first["events-pages"][0].values["older"])
    assert older.startswith("/events?until=")
    rest = await EVENTS_PAGE.fragments(viewer_of(context, query=older.partition("?")[2]))
    shown: Any = [each.values["event"] for each in rest["events"]]
    assert [phrase(each) for each in shown][::6] == ["run 6 begins", "run 0 begins"]
    assert rest["events-pages"][0].values["newest"] == "/events"
    assert not rest["events-pages"][0].values["older"]


async def test_what_went_wrong_changed_tools_a_server_a_session_and_times_can_be_wanted() -> None:
    context = context_of(
        [
            started(1),
            started(2, server="beta"),
            Event(kind=EventKind.ENDED, at=1003.0, server="alpha", cause=Cause.KILLED, text="killed"),
            Event(kind=EventKind.ENDED, at=1004.0, server="alpha", details={"asked": True}),
            Event(kind=EventKind.SESSION_BEGAN, at=1005.0, session="#4"),
            LISTS,
        ]
    )
    for query, count in (
        ("", 6),
        ("what=wrong", 1),
        ("what=tools", 1),
        ("server=beta", 1),
        ("session=#4", 1),
        ("until=1003", 3),
        ("since=1004&until=1005", 2),
        ("since=2001-01-01T00:00", 1),
    ):
        found = await EVENTS_PAGE.fragments(viewer_of(context, query=query))
        assert len(found["events"]) == count, query
    for query in ("what=nothing", "since=soon", "until=inf", "since=nan"):
        with pytest.raises(InvalidArguments):
            await values_of(EVENTS_PAGE, viewer_of(context, query=query))


async def test_tools_that_are_there_are_links_on_it_and_on_the_page_of_tools() -> None:
    context = context_of([LISTS] * (CHANGES + 1))
    page = await drawn(EVENTS_PAGE, viewer_of(context, query="what=tools"))
    assert {"/ui/tools/alpha/add", "/ui/tools/alpha/echo"} <= {*page.links}
    assert "/ui/tools/alpha/gone" not in page.links
    html = Rendering().fragment(await changes(context))
    assert html.count("<li>") == CHANGES
    assert "/ui/events?what=tools" in html
    assert 'href="/ui/tools/alpha/add"' in html


async def test_what_others_wrote_is_text() -> None:
    hostile = [started(1, server=HOSTILE), started(2, server="", session=HOSTILE)]
    assert (await drawn(EVENTS_PAGE, viewer_of(context_of(hostile)))).is_harmless()
