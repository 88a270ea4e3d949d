"""Who is let in, what is shown and done, what is refused, and what is told of changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from daemon.console.access import HEADERS
from daemon.console.application import COMMENT_SECONDS, MAX_STREAMS
from daemon.console.rendering import FORM_TOKEN, Rendering
from daemon.history.event import Event, EventKind
from tests.unit.console.browsing import Browser, Desk

if TYPE_CHECKING:
    from daemon.clients.doors.http.asgi import Message

BOUND = 60.0
"""Seconds of the virtual clock that a test may take."""


@pytest.fixture(name="desk")
def a_desk() -> Desk:
    return Desk()


# --- coming in ----------------------------------------------------------------------------------------------


async def test_a_link_lets_in_once(desk: Desk) -> None:
    link = f"/ui/enter?once={desk.sessions.invite(may_change=True)}"
    browser = desk.browser(may_change=None)
    entered = await browser.get(link)
    assert entered.status == 200
    assert 'content="0; url=/ui"' in entered.text
    assert "HttpOnly" in entered.headers["set-cookie"]
    assert "SameSite=strict" in entered.headers["set-cookie"]
    assert (await browser.get("/ui")).status == 200
    again = await desk.browser(may_change=None).get(link)
    assert again.status == 403
    assert "set-cookie" not in again.headers
    assert "mcpd ui" in again.text


@pytest.mark.parametrize("headers", [{"sec_purpose": "prefetch;prerender"}, {"sec_purpose": "prefetch"}])
async def test_a_link_that_is_only_fetched_ahead_still_counts(desk: Desk, headers: dict[str, str]) -> None:
    link = f"/ui/enter?once={desk.sessions.invite(may_change=True)}"
    assert (await desk.browser(may_change=None).get(link, **headers)).status == 403
    assert (await desk.browser(may_change=None).ask("HEAD", link)).status == 403
    assert (await desk.browser(may_change=None).get(link)).status == 200


@pytest.mark.parametrize("target", ["/ui", "/ui/list", "/ui/list/x", "/ui/live?at=/ui/list"])
async def test_without_a_session_nothing_is_shown(desk: Desk, target: str) -> None:
    for cookie in ("", "wrong"):
        browser = Browser(desk.application.serve)
        browser.cookie = cookie
        answer = await browser.get(target)
        assert answer.status == 401
        assert "mcpd ui" in answer.text
    assert desk.shown.computed == 0


async def test_a_token_signs_in_and_a_wrong_one_is_answered_late(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked: list[tuple[str, str]] = []

    def sign_in(token: str, address: str) -> tuple[str | None, float]:
        asked.append((token, address))
        return (here.sessions.begin("token ci", may_change=False), 0.0) if token == "right" else (None, 5.0)

    here = Desk(sign_in)
    browser = here.browser(may_change=None)
    assert "sign in with a token" in (await browser.get("/ui/sign-in")).text
    wrong = await browser.post("/ui/sign-in", {"token": "wrong"})
    assert (wrong.status, trio.current_time()) == (401, 5.0)
    assert "no token that may" in wrong.text
    assert "wrong" not in wrong.text
    right = await browser.post("/ui/sign-in", {"token": " right "})
    assert (right.status, right.headers["location"]) == (303, "/ui")
    assert asked == [("wrong", "192.0.2.1"), ("right", "192.0.2.1")]
    assert "read only" in (await browser.get("/ui")).text


async def test_where_tokens_are_not_taken_no_form_asks_for_one(desk: Desk) -> None:
    browser = desk.browser(may_change=None)
    assert "<form" not in (await browser.get("/ui/sign-in")).text
    assert (await browser.post("/ui/sign-in", {"token": "x"})).status == 404


async def test_signing_out_ends_the_session(desk: Desk) -> None:
    browser = desk.browser()
    cookie = browser.cookie
    page = await browser.get("/ui")
    left = await browser.post("/ui/sign-out", {"form_token": page.form_token})
    assert left.status == 303
    assert desk.sessions.find(cookie) is None


# --- pages --------------------------------------------------------------------------------------------------


async def test_the_first_page_is_shown_at_the_root_too(desk: Desk) -> None:
    browser = desk.browser()
    root, page = await browser.get("/ui"), await browser.get("/ui/list?a=b")
    assert root.status == page.status == 200
    assert '<a href="/ui/list" aria-current="page">List</a>' in root.text
    assert "2 of 2 servers available" in page.text


async def test_a_name_may_hold_a_slash(desk: Desk) -> None:
    browser = desk.browser()
    page = await browser.get("/ui/list/a%2Fb%20c")
    await browser.post("/ui/list/a%2Fb%20c/do", {"form_token": page.form_token})
    ((viewer, _fields),) = desk.shown.done
    assert viewer.path == {"name": "a/b c"}


async def test_a_page_that_does_not_exist_says_why(desk: Desk) -> None:
    browser = desk.browser()
    desk.shown.rows.clear()
    answer = await browser.get("/ui/list")
    assert answer.status == 404
    assert "there is no such list" in answer.text
    assert (await browser.get("/ui/nowhere")).status == 404
    assert (await browser.get("/ui/list/")).status == 404, "no redirect by a Host that anybody can send"


async def test_a_query_may_have_only_so_many_fields(desk: Desk) -> None:
    assert (await desk.browser().get("/ui/list?" + "&".join("a=b" for _ in range(101)))).status == 400


async def test_a_fault_of_ours_is_a_page_and_is_raised(desk: Desk) -> None:
    desk.shown.fault = ZeroDivisionError("s3cret")
    with pytest.raises(ZeroDivisionError):
        await desk.browser().get("/ui")


@pytest.mark.parametrize("target", ["/ui", "/ui/sign-in", "/ui/nowhere", "/ui/enter?once=x"])
async def test_every_response_keeps_other_pages_out(desk: Desk, target: str) -> None:
    for may_change in (True, None):
        answer = await desk.browser(may_change=may_change).get(target)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS


async def test_static_files_may_be_kept_for_ever(desk: Desk) -> None:
    browser = desk.browser(may_change=None)
    for path in Rendering().static:
        answer = await browser.get(path)
        assert (answer.status, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert (await browser.get("/ui/static/0000/console.css")).status == 404
    assert (await browser.get("/ui/static/../access.py")).status in {401, 404}


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
async def test_other_methods_are_refused(desk: Desk, method: str) -> None:
    browser = desk.browser()
    for target in ("/ui", "/ui/list", "/ui/list/x/do", "/ui/live"):
        assert (await browser.ask(method, target)).status == 405


async def test_a_page_inside_another_one_or_asked_for_by_one_is_refused(desk: Desk) -> None:
    browser = desk.browser()
    for headers in (
        {"sec_fetch_dest": "iframe", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
        {"sec_fetch_dest": "script", "sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"},
        {"sec_fetch_dest": "empty", "sec_fetch_site": "cross-site", "sec_fetch_mode": "cors"},
    ):
        assert (await browser.get("/ui", **headers)).status == 403
    followed = {"sec_fetch_dest": "document", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert (await browser.get("/ui", **followed)).status == 200


# --- what is done -------------------------------------------------------------------------------------------


async def test_a_form_is_done_and_its_page_says_so_once(desk: Desk) -> None:
    browser = desk.browser()
    token = (await browser.get("/ui/list")).form_token
    done = await browser.post("/ui/list/x/do", {"form_token": token, "back": "/ui/list?a=b", "how": "well"})
    assert (done.status, done.headers["location"]) == (303, "/ui/list?a=b")
    ((viewer, fields),) = desk.shown.done
    assert fields == {"how": "well"}
    assert viewer.may_change
    assert "It is done." in (await browser.get("/ui/list")).text
    assert "It is done." not in (await browser.get("/ui/list")).text


async def test_what_is_refused_says_why_and_escapes_it(desk: Desk) -> None:
    browser = desk.browser()
    desk.shown.refusal = "no <b>server</b>"
    token = (await browser.get("/ui/list")).form_token
    assert (await browser.post("/ui/list/x/do", {"form_token": token})).status == 303
    text = (await browser.get("/ui/list")).text
    assert "no &lt;b&gt;server&lt;/b&gt;" in text
    assert 'role="alert"' in text


@pytest.mark.parametrize(
    "back",
    [
        "",
        "//evil.example",
        "https://evil.example/ui",
        "/ui/../x",
        "/ui//evil",
        "/ui\\@evil",
        "/nowhere",
        "javascript:x",
    ],
)
async def test_nobody_is_sent_elsewhere(desk: Desk, back: str) -> None:
    browser = desk.browser()
    token = (await browser.get("/ui/list")).form_token
    done = await browser.post("/ui/list/x/do", {"form_token": token, "back": back})
    assert done.headers["location"] == "/ui"


async def test_a_forged_form_does_nothing(desk: Desk) -> None:
    browser, other = desk.browser(), desk.browser()
    token = (await browser.get("/ui/list")).form_token
    foreign = (await other.get("/ui/list")).form_token
    assert token != foreign
    for fields in (
        {},
        {"form_token": ""},
        {"form_token": foreign},
        {"form_token": token[:-1]},
        {"form_token": "é"},
    ):
        assert (await browser.post("/ui/list/x/do", fields)).status == 403
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999", "sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "none"},
    ):
        assert (await browser.post("/ui/list/x/do", {"form_token": token}, **headers)).status == 403
    assert desk.shown.done == []


async def test_without_a_session_nothing_is_done(desk: Desk) -> None:
    assert (await desk.browser(may_change=None).post("/ui/list/x/do", {"form_token": ""})).status == 401
    assert desk.shown.done == []


async def test_who_may_only_look_changes_nothing(desk: Desk) -> None:
    browser = desk.browser(may_change=False)
    page = await browser.get("/ui/list")
    assert "read only" in page.text
    answer = await browser.post("/ui/list/x/do", {"form_token": page.form_token})
    assert answer.status == 403
    assert "change nothing" in answer.text
    assert desk.shown.done == []


async def test_what_is_no_form_is_refused(desk: Desk) -> None:
    browser = desk.browser()
    assert (await browser.post("/ui/list/x/do", {}, content_type="application/json")).status == 415
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert (await browser.ask("POST", "/ui/list/x/do", kind, b"\xff=\xff")).status == 400


# --- what is told of changes --------------------------------------------------------------------------------


class Stream:
    """What a browser is told by a stream."""

    def __init__(self, browser: Browser, target: str, nursery: trio.Nursery) -> None:
        self.told: list[str] = []
        self.ended = False
        self._more = trio.Event()
        nursery.start_soon(self._run, browser, target)

    async def _run(self, browser: Browser, target: str) -> None:
        await browser.follow("GET", target, self._take)
        self.ended = True
        self._more.set()

    async def _take(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        self.told.append(message.get("body", b"").decode())
        self._more.set()
        self._more = trio.Event()

    async def data(self) -> dict[str, Any]:
        """The newest change."""
        while not self.told or not self.told[-1].startswith("data: "):
            await self._more.wait()
        found: dict[str, Any] = json.loads(self.told.pop().removeprefix("data: "))
        return found


def live(page: str) -> str:
    start = page.index('data-live="') + len('data-live="')
    return page[start : page.index('"', start)].replace("&amp;", "&")


async def test_only_what_has_changed_since_the_page_is_told(
    desk: Desk, autojump_clock: trio.testing.MockClock
) -> None:
    browser = desk.browser()
    desk.shown.rows = {"a": {"available": 1, "total": 1}, "b": {"available": 1, "total": 1}}
    page = await browser.get("/ui/list")
    desk.shown.rows["b"] = {"available": 2, "total": 2}
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            stream = Stream(browser, live(page.text), nursery)
            assert list((await stream.data())["rows"]["changed"]) == ["b"]
            del desk.shown.rows["a"]
            desk.context.history.note(Event(kind=EventKind.RELOADED))
            assert (await stream.data())["rows"] == {"order": ["b"]}
            nursery.cancel_scope.cancel()


async def test_a_quiet_stream_says_something_from_time_to_time(
    desk: Desk, autojump_clock: trio.testing.MockClock
) -> None:
    browser = desk.browser()
    page = await browser.get("/ui/list")
    async with trio.open_nursery() as nursery:
        stream = Stream(browser, live(page.text), nursery)
        await trio.sleep(COMMENT_SECONDS * 2.5)
        assert [each[:1] for each in stream.told] == ["", "r", ":", ":"]
        nursery.cancel_scope.cancel()
    assert desk.shown.computed == 2


async def test_a_stream_ends_with_its_session(desk: Desk, autojump_clock: trio.testing.MockClock) -> None:
    browser = desk.browser()
    page = await browser.get("/ui/list")
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            stream = Stream(browser, live(page.text), nursery)
            await trio.sleep(1)
            desk.sessions.end_all()
    assert stream.told[-1].startswith("event: over")


async def test_a_stream_ends_with_what_it_shows(desk: Desk, autojump_clock: trio.testing.MockClock) -> None:
    browser = desk.browser()
    page = await browser.get("/ui/list")
    desk.shown.rows.clear()
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            stream = Stream(browser, live(page.text), nursery)
    assert stream.told[-1].startswith("event: over")


async def test_there_are_only_so_many_streams(desk: Desk, autojump_clock: trio.testing.MockClock) -> None:
    browser = desk.browser()
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            for _ in range(MAX_STREAMS):
                Stream(browser, "/ui/live?at=/ui/list&since=", nursery)
            await trio.testing.wait_all_tasks_blocked()
            assert (await browser.get("/ui/live?at=/ui/list")).status == 503
            nursery.cancel_scope.cancel()
    assert (await browser.ask("HEAD", "/ui/live?at=/ui/list")).status == 200


async def test_a_stream_of_no_page_is_refused(desk: Desk) -> None:
    assert (await desk.browser().get("/ui/live?at=/ui/nowhere")).status == 404


async def test_each_session_is_told_its_own_form_token(
    desk: Desk, autojump_clock: trio.testing.MockClock
) -> None:
    desk.shown.rows = {"a": {"available": FORM_TOKEN, "total": 1}}
    one, other = desk.browser(), desk.browser()
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            streams = [Stream(each, "/ui/live?at=/ui/list", nursery) for each in (one, other)]
            told = [(await each.data())["rows"]["changed"]["a"] for each in streams]
            nursery.cancel_scope.cancel()
    assert told[0] != told[1]
