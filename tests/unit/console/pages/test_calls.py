"""The page of calls: what waits and can be cancelled, and what has ended, the newest first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from daemon.console.page import part
from daemon.console.pages.activity_pages import CALLS_PAGE, CANCEL_CALL, SHOWN
from daemon.console.rendering import Rendering
from daemon.counting.recent_calls import RecentCall
from daemon.errors import InvalidArguments, UnknownServer
from tests.fakes_upstream import Stage
from tests.unit.console.pages.drawing import HOSTILE, drawn, values_of, viewer_of
from tests.unit.operators.stage import operator_context

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.operators.base import OperatorContext


def ended(number: int = 1, **changed: object) -> RecentCall:
    usual = RecentCall(
        at=time.time() - number,
        session=3,
        key=None,
        client="claude 2",
        token="",
        server="alpha",
        tool="echo",
        seconds=0.0125,
        outcome="ok",
    )
    return usual._replace(**changed)  # type: ignore[arg-type]


def context_of(calls: Iterable[RecentCall]) -> OperatorContext:
    context = operator_context(Stage())
    kept = [*calls]
    context.counters.recent.publish((len(kept), kept))
    return context


async def test_an_ended_call_says_who_what_how_long_and_with_what_outcome() -> None:
    context = context_of([ended(), ended(outcome="timeout", key="/home/me", tool="slow", seconds=2.5)])
    page = await drawn(CALLS_PAGE, viewer_of(context))
    for said in ("echo", "alpha", "claude 2", "#3", "12 ms", "2.5 s", "timeout", "/home/me"):
        assert said in page.text
    assert {"/ui/servers/alpha", "/ui/tools/alpha/echo", "/ui/sessions/%233", "/ui/sessions/%2Fhome%2Fme"} <= {
        *page.links
    }
    assert "; 2 that ended, 1 of them with an error" in page.text
    assert page.text.index("slow") < page.text.index("echo")


async def test_a_call_that_mcpd_answered_itself_leads_nowhere() -> None:
    page = await drawn(CALLS_PAGE, viewer_of(context_of([ended(server="", tool="category", session=None)])))
    assert "mcpd itself" in page.text
    assert page.links == []


async def test_errors_of_one_server_or_session_can_be_wanted() -> None:
    calls = [ended(), ended(outcome="timeout"), ended(server="beta"), ended(session=9, outcome="isError")]
    context = context_of(calls)
    for query, count in (
        ("", 4),
        ("server=alpha", 3),
        ("errors=1", 2),
        ("session=#9", 1),
        ("server=beta&errors=1", 0),
    ):
        values = await values_of(CALLS_PAGE, viewer_of(context, query=query))
        assert values["calls-summary"]["ended"] == count, query
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
    for written in ("0", "-1", "999999", "x", "²", "9" * 5000):
        assert await CALLS_PAGE.fragments(viewer_of(context, query=f"page={written}"))


async def test_what_others_wrote_stays_text() -> None:
    wanted = HOSTILE.replace("&", "").replace("\u202e", "")
    hostile = ended(tool=HOSTILE, client=HOSTILE, key=HOSTILE, token=HOSTILE)
    context = context_of([hostile, hostile._replace(key=wanted)])
    assert (await drawn(CALLS_PAGE, viewer_of(context, query=f"session={wanted}"))).is_harmless()
    assert (await drawn(CALLS_PAGE, viewer_of(context))).is_harmless()


@pytest.mark.parametrize("written", ["", "x", "1.5", "9" * 40, "-1", "7"])
async def test_a_call_that_is_not_there_cannot_be_cancelled(written: str) -> None:
    with pytest.raises(InvalidArguments):
        await CANCEL_CALL.act(viewer_of(context_of([]), id=written), {})


@pytest.mark.parametrize("may_change", [True, False])
def test_a_call_without_an_answer_can_be_cancelled_by_those_who_may(*, may_change: bool) -> None:
    call = {
        "id": 7,
        "session": 3,
        "key": None,
        "client": "",
        "token": "",
        "server": "",
        "instance": "git#1",
        "method": "prompts/get",
        "tool": HOSTILE,
        "since": time.time() - 90,
        "waitsFor": "turn",
    }
    html = Rendering().fragment(part("waiting-7", "calls_waiting", call=call, may_change=may_change))
    assert ("/ui/calls/7/cancel" in html) is may_change
    for said in ("its turn", "1m", "git#1", "prompts/get"):
        assert said in html
    assert "<script>" not in html
