"""The page of calls: what waits and can be cancelled, and what has ended, the newest first."""

import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from daemon.causes import Cause
from daemon.console.page import part, server_page, session_page, tool_page, with_query
from daemon.console.pages.activity_pages import CALLS_PAGE, CANCEL_CALL, EVENTS_PAGE, EVENTS_SHOWN, SHOWN
from daemon.console.rendering import Rendering
from daemon.counting.recent_calls import RecentCall
from daemon.errors import InvalidArguments, UnknownServer
from daemon.history.event import Event, EventKind
from daemon.history.event_words import phrase
from daemon.operators.base import OperatorContext
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.console.pages.drawing import HOSTILE, drawn, values_of, viewer_of
from tests.unit.operators.stage import operator_context


def ended(number: int = 1, **changed: object) -> RecentCall:
    usual = RecentCall(time.time() - number, 3, None, "claude 2", "", "alpha", "echo", 0.0125, "ok")
    return usual._replace(**changed)  # type: ignore[arg-type]


def context_of(calls: Iterable[RecentCall]) -> OperatorContext:
    context = operator_context(Stage())
    kept = [*calls]
    context.counters.recent.publish((len(kept), kept))
    return context


async def test_an_ended_call_says_who_what_how_long_and_with_what_outcome() -> None:
    context = context_of(
        [ended(), ended(outcome="timeout", key="/home/me", tool="slow", seconds=2.5, text="too slow")]
    )
    page = await drawn(CALLS_PAGE, viewer_of(context))
    for said in ("echo", "alpha", "claude 2", "#3", "12 ms", "2.5 s", "timeout", "/home/me", "too slow"):
        assert said in page.text
    assert {"/ui/servers/alpha", "/ui/tools/alpha/echo", "/ui/sessions/%233", "/ui/sessions/%2Fhome%2Fme"} <= {
        *page.links
    }
    assert "; 2 ended, 1 with an error" in page.text
    assert page.text.index("slow") < page.text.index("echo")


@cases("query", "count")
async def test_errors_of_one_server_or_session_can_be_wanted(query: str, count: int) -> None:
    calls = [ended(), ended(outcome="timeout"), ended(server="beta"), ended(session=9, outcome="isError")]
    context = context_of(calls)
    values = await values_of(CALLS_PAGE, viewer_of(context, query=query))
    assert values["calls-summary"]["ended"] == count
    with pytest.raises(UnknownServer):
        await values_of(CALLS_PAGE, viewer_of(context, query="server=nobody"))
    with pytest.raises(InvalidArguments, match="no session is named"):
        await values_of(CALLS_PAGE, viewer_of(context, query="session=nobody"))


async def test_there_are_a_hundred_on_a_page() -> None:
    context = context_of(ended(tool=f"tool-{number}") for number in range(250))
    first = await CALLS_PAGE.fragments(viewer_of(context))
    last = await CALLS_PAGE.fragments(viewer_of(context, query="page=3"))
    assert (len(first["ended"]), len(last["ended"])) == (SHOWN, 50)
    newest: Any = first["ended"][0].values["call"]
    assert newest["tool"] == "tool-249"
    pager = (await drawn(CALLS_PAGE, viewer_of(context, query="page=2&errors="))).links[-2:]
    assert pager == ["/ui/calls?page=1", "/ui/calls?page=3"]
    assert (await drawn(CALLS_PAGE, viewer_of(context, query="page=3"))).links[-1] == "/ui/calls?page=2"
    for written in ("0", "-1", "999999", "x", "²", "9" * 5000):
        assert await CALLS_PAGE.fragments(viewer_of(context, query=f"page={written}"))


@pytest.mark.parametrize("written", ["", "x", "1.5", "9" * 40, "-1", "7"])
async def test_a_call_that_is_not_there_cannot_be_cancelled(written: str) -> None:
    with pytest.raises(InvalidArguments):
        await CANCEL_CALL.act(viewer_of(context_of([]), id=written), {})


@pytest.mark.parametrize("may_change", [True, False])
def test_a_call_without_an_answer_can_be_cancelled_by_those_who_may(*, may_change: bool) -> None:
    whose = {"id": 7, "session": 3, "key": None, "client": "", "token": "", "server": "", "instance": "git#1"}
    what = {"method": "prompts/get", "tool": HOSTILE, "script": "run_code (call 5)", "waitsFor": "turn"}
    call = {**whose, **what, "since": time.time() - 90}
    html = Rendering().fragment(part("waiting-7", "calls_waiting", call=call), may_change=may_change)
    assert ("/ui/calls/7/cancel" in html) is may_change
    for said in ("its turn", "1m", "git#1", "prompts/get"):
        assert said in html
    assert "<script>" not in html


# --- the page of events --------------------------------------------------------------------------------------


def context_of_events(events: Iterable[Event]) -> OperatorContext:
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
    page = await drawn(
        EVENTS_PAGE, viewer_of(context_of_events([started(1), started(2), started(3, server="left")]))
    )
    assert page.text.index("run 2 begins") < page.text.index("run 1 begins")
    assert "/ui/servers/alpha" in page.links
    assert "/ui/servers/left" not in page.links
    assert "left" in page.text


async def test_a_hundred_are_on_a_page_and_the_next_goes_on_where_it_ends() -> None:
    context = context_of_events(started(number) for number in range(EVENTS_SHOWN + 7))
    first = await EVENTS_PAGE.fragments(viewer_of(context))
    assert len(first["events"]) == EVENTS_SHOWN
    older = str(first["events-pages"][0].values["older"])
    assert older.startswith("/events?until=")
    rest = await EVENTS_PAGE.fragments(viewer_of(context, query=older.partition("?")[2]))
    shown: Any = [each.values["event"] for each in rest["events"]]
    assert [phrase(each) for each in shown][::6] == ["run 6 begins", "run 0 begins"]
    assert rest["events-pages"][0].values["newest"] == "/events"
    assert not rest["events-pages"][0].values["older"]


@cases("query", "count")
async def test_events_of_one_sort_server_session_or_time_can_be_wanted(query: str, count: int | None) -> None:
    crashed: dict[str, Any] = {"cause": Cause.KILLED, "details": {"seconds": 2.0}}
    events = [
        started(1),
        started(2, server="beta"),
        Event(kind=EventKind.ENDED, at=1003.0, server="alpha", **crashed),
        Event(kind=EventKind.ENDED, at=1004.0, server="alpha", details={"asked": True}),
        Event(kind=EventKind.SESSION_BEGAN, at=1005.0, session="#4"),
        LISTS,
    ]
    with pytest.raises(InvalidArguments) if count is None else nullcontext():
        found = await EVENTS_PAGE.fragments(viewer_of(context_of_events(events), query=query))
        assert len(found["events"]) == count


# --- addresses lead to what they name, whatever is in the name -----------------------------------------------


NAMES = ["git", "a/b", "#4", "/home/me/project", "?q=1&x", "%2F", "ü <b>", ".."]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_segment_of_an_address_and_one_value_of_a_query(name: str) -> None:
    for address, segments in (
        (server_page(name), ["servers", name]),
        (session_page(name), ["sessions", name]),
        (tool_page("git", name), ["tools", "git", name]),
    ):
        found = urlsplit(address)
        assert (found.query, found.fragment) == ("", "")
        assert [unquote(each) for each in found.path.split("/")[1:]] == segments
    address = with_query("/tools", category=name, page=2, q="")
    assert parse_qsl(urlsplit(address).query) == [("category", name), ("page", "2")]


async def test_what_waits_for_approval_has_not_gone_wrong() -> None:
    ended = Event(kind=EventKind.ENDED, server="git", cause=Cause.KILLED)
    waits = Event(kind=EventKind.HELD, server="git", details={"definitions": {"log": {"because": "new"}}})
    for event, chip in ((ended, "wrong"), (waits, "held")):
        page = await drawn(EVENTS_PAGE, viewer_of(context_of_events([event])))
        assert [each for each in ("wrong", "held") if f">{each}</span>" in page.html] == [chip]


async def test_a_page_without_events_says_so() -> None:
    context = context_of([])
    said = "No known event matches."
    assert said in (await drawn(EVENTS_PAGE, viewer_of(context, query="server=nobody"))).text
    context.history.note(Event(kind=EventKind.DAEMON_STARTED))
    assert said not in (await drawn(EVENTS_PAGE, viewer_of(context))).text
