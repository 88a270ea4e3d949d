"""Who is let in, what is shown and done, what is refused, and what is told of changes."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
import trio
import trio.testing
from markupsafe import Markup

from daemon.audit.audit_log import Audit
from daemon.clients.client import Principal
from daemon.config.listen import ConsoleRole
from daemon.console import access, application
from daemon.console.application import COMMENT_SECONDS, MAX_FIELDS, MAX_STREAMS
from daemon.console.console import Console
from daemon.console.page import Fragment, Notice
from daemon.console.pages.tool_pages import MAX_ARGUMENTS
from daemon.console.rendering import (
    FORM_TOKEN,
    HERE,
    Rendering,
    by_button,
    foreign,
    heading,
    marked,
    milliseconds,
    sent,
    sent_in_json,
)
from daemon.history.event import Event, EventKind
from daemon.operators.report_words import ReportColumn
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.console.browsing import HOST, Browser, Desk
from tests.unit.operators.stage import operator_context
from tests.waiting import background

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.clients.doors.http.asgi import Message

BOUND = 60.0
"""Seconds of the virtual clock that a test may take."""


@pytest.fixture(name="desk")
def a_desk() -> Desk:
    return Desk()


# --- coming in -----------------------------------------------------------------------------------------------


async def test_a_link_lets_in_once(desk: Desk) -> None:
    link = f"/ui/enter?once={desk.sessions.invite('x', may_change=True)}"
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
    link = f"/ui/enter?once={desk.sessions.invite('x', may_change=True)}"
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


async def test_a_token_signs_in_and_a_wrong_one_takes_time(autojump_clock: trio.testing.MockClock) -> None:
    asked: list[tuple[str, str]] = []

    def sign_in(token: str, address: str) -> tuple[str | None, float]:
        asked.append((token, address))
        return (here.sessions.begin("token ci", may_change=False), 0.0) if token == "right" else (None, 5.0)

    here = Desk(sign_in)
    browser = here.browser(may_change=None)
    assert "sign in with a token" in (await browser.get("/ui/sign-in")).text
    wrong = await browser.post("/ui/sign-in", {"token": "wrong"})
    assert (wrong.status, trio.current_time()) == (401, 5.0)
    assert "not valid for the console" in wrong.text
    assert "wrong" not in wrong.text
    right = await browser.post("/ui/sign-in", {"token": " right "})
    assert (right.status, right.headers["location"]) == (303, "/ui")
    assert asked == [("wrong", "192.0.2.1"), ("right", "192.0.2.1")]
    assert "read only" in (await browser.get("/ui")).text


# --- pages ---------------------------------------------------------------------------------------------------


async def test_a_page_that_does_not_exist_says_why_and_a_slash_too_many_does_no_harm(desk: Desk) -> None:
    browser = desk.browser()
    desk.shown.rows.clear()
    answer = await browser.get("/ui/list")
    assert answer.status == 404
    assert "there is no such list" in answer.text
    assert (await browser.get("/ui/nowhere")).status == 404
    assert (await browser.get("/ui/list/")).status == 404, "no redirect by a Host that anybody can send"
    answer = await browser.get("/ui/")
    assert (answer.status, answer.headers["location"]) == (303, "/ui")


async def test_a_fault_of_ours_is_a_page_and_is_raised(desk: Desk) -> None:
    desk.shown.fault = ZeroDivisionError("s3cret")
    with pytest.raises(ZeroDivisionError):
        await desk.browser().get("/ui")


@pytest.mark.parametrize("target", ["/ui", "/ui/sign-in", "/ui/nowhere", "/ui/enter?once=x"])
async def test_every_response_keeps_other_pages_out(desk: Desk, target: str) -> None:
    for may_change in (True, None):
        answer = await desk.browser(may_change=may_change).get(target)
        assert {name: answer.headers[name] for name in access.HEADERS} == access.HEADERS


async def test_static_files_may_be_kept_for_ever(desk: Desk) -> None:
    browser = desk.browser(may_change=None)
    for path in Rendering().static:
        answer = await browser.get(path)
        assert (answer.status, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert (await browser.get("/ui/static/0000/console.css")).status == 404
    assert (await browser.get("/ui/static/../access.py")).status in {401, 404}


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


# --- what is done --------------------------------------------------------------------------------------------


async def test_a_form_is_done_and_its_page_says_so_once(desk: Desk) -> None:
    browser = desk.browser()
    token = (await browser.get("/ui/list")).form_token
    form = {"form_token": token, "back": "/ui/list?a=b", "how": "well"}
    done = await browser.post("/ui/list/a%2Fb%20c/do", form)
    assert (done.status, done.headers["location"]) == (303, "/ui/list?a=b")
    ((viewer, fields),) = desk.shown.done
    assert fields == {"how": "well"}
    assert (viewer.may_change, viewer.context.principal) == (True, "a test")
    assert viewer.path == {"name": "a/b c"}, "a name may hold a slash"
    assert "It is done." in (await browser.get("/ui/list")).text
    assert "It is done." not in (await browser.get("/ui/list")).text


async def test_what_was_typed_is_shown_again_to_its_viewer_alone(desk: Desk) -> None:
    browser, other = desk.browser(), desk.browser()
    token = (await browser.get("/ui/list")).form_token
    sent = {"form_token": token, "back": "/ui/list?a=b"}
    await browser.post("/ui/list/x/keep", {**sent, "how": "well"})
    desk.shown.typed.clear()
    await browser.get("/ui/list?a=b")
    # What others may follow is computed without it.
    assert desk.shown.typed == [{}, {"how": "well"}]
    for each, address in ((other, "/ui/list?a=b"), (browser, "/ui/list")):
        desk.shown.typed.clear()
        await each.get(address)
        assert desk.shown.typed == [{}]
    desk.shown.leads_to = "/list"
    done = await browser.post("/ui/list/x/keep", {**sent, "again": "yes"})
    assert done.headers["location"] == "/ui/list"
    assert desk.shown.done[-1][1] == {"how": "well", "again": "yes"}
    await browser.get("/ui/list?a=b")
    assert desk.shown.typed[-1] == {}


async def test_what_is_refused_says_why_and_escapes_it(desk: Desk) -> None:
    browser = desk.browser()
    desk.shown.refusal = "no <b>server</b>"
    token = (await browser.get("/ui/list")).form_token
    assert (await browser.post("/ui/list/x/do", {"form_token": token})).status == 303
    text = (await browser.get("/ui/list")).text
    assert "no &lt;b&gt;server&lt;/b&gt;" in text
    assert 'role="alert"' in text


def test_each_visit_begins_with_a_record_of_who_came(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[object] = []
    monkeypatch.setattr(access, "note_command", lambda _audit, *told: noted.append(told))
    desk.sessions.enter(desk.sessions.invite("uid 0 (console)", may_change=True))
    desk.sessions.begin("token ci (console)", token="ci", may_change=False)
    assert noted == [
        ("uid 0 (console)", "sign-in", {"readOnly": False}, "ok"),
        ("token ci (console)", "sign-in", {"readOnly": True}, "ok"),
    ]


async def test_an_action_is_recorded_even_if_it_fails(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[object] = []
    monkeypatch.setattr(application, "note_command", lambda *told: noted.append(told[-1]))
    browser = desk.browser()
    form = {"form_token": (await browser.get("/ui/list")).form_token}
    for refusal in ("", "no"):
        desk.shown.refusal = refusal
        await browser.post("/ui/list/x/do", form)
    desk.shown.refusal = ""
    monkeypatch.setattr(desk.shown, "done", None)
    with pytest.raises(AttributeError):
        await browser.post("/ui/list/x/do", form)
    assert noted == ["ok", "refused", "internal error"]


@cases("back")
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
    for fields in ({}, *({"form_token": each} for each in ("", foreign, token[:-1], "é"))):
        assert (await browser.post("/ui/list/x/do", fields)).status == 403
    elsewhere = {"origin": "http://127.0.0.1:9999", "sec_fetch_site": "same-site"}
    origins = [{"origin": each} for each in ("http://evil.example", "null")]
    for headers in (elsewhere, *origins, *({"sec_fetch_site": each} for each in ("cross-site", "none"))):
        assert (await browser.post("/ui/list/x/do", {"form_token": token}, **headers)).status == 403
    assert desk.shown.done == []


async def test_who_may_only_look_or_is_not_signed_in_changes_nothing(desk: Desk) -> None:
    browser = desk.browser(may_change=False)
    page = await browser.get("/ui/list")
    assert "read only" in page.text
    answer = await browser.post("/ui/list/x/do", {"form_token": page.form_token})
    assert answer.status == 403
    assert "change nothing" in answer.text
    assert desk.shown.done == []
    assert (await desk.browser(may_change=None).post("/ui/list/x/do", {"form_token": ""})).status == 401
    assert desk.shown.done == []


async def test_a_form_of_a_tool_with_the_most_arguments_is_read(desk: Desk) -> None:
    browser = desk.browser()
    fields = {f"argument-{number}": "" for number in range(MAX_ARGUMENTS)}
    token = (await browser.get("/ui/list")).form_token
    await browser.post("/ui/list/x/do", {"form_token": token, "hash": "", "back": "", **fields})
    [(_viewer, done)] = desk.shown.done
    assert fields.items() <= done.items()


async def test_what_no_page_of_ours_sends_is_refused(desk: Desk) -> None:
    browser, stranger = desk.browser(), desk.browser(may_change=None)
    assert (await browser.post("/ui/list/x/do", {}, content_type="application/json")).status == 415
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert (await browser.ask("POST", "/ui/list/x/do", kind, b"\xff=\xff")).status == 400
    assert (await browser.get("/ui/list?" + "&".join("a=b" for _ in range(MAX_FIELDS + 1)))).status == 400
    assert (await browser.get("/ui/live?at=/ui/nowhere")).status == 404
    assert (await stranger.post("/ui/sign-in", {"token": "x"})).status == 404, "no tokens are taken here"


# --- what is told of changes ---------------------------------------------------------------------------------


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


async def test_a_stream_tells_what_has_changed(desk: Desk, autojump_clock: trio.testing.MockClock) -> None:
    browser = desk.browser()
    desk.shown.rows = {"a": {"available": 1, "total": 1}, "b": {"available": 1, "total": 1}}
    page = await browser.get("/ui/list")
    desk.shown.rows["b"] = {"available": 2, "total": 2}
    with trio.fail_after(BOUND):
        async with background() as nursery:
            stream = Stream(browser, live(page.text), nursery)
            assert list((await stream.data())["rows"]["changed"]) == ["b"]
            del desk.shown.rows["a"]
            desk.context.history.note(Event(kind=EventKind.RELOADED))
            assert (await stream.data())["rows"] == {"order": ["b"]}


async def test_a_quiet_stream_comments_at_times(desk: Desk, autojump_clock: trio.testing.MockClock) -> None:
    browser = desk.browser()
    page = await browser.get("/ui/list")
    async with background() as nursery:
        stream = Stream(browser, live(page.text), nursery)
        await trio.sleep(COMMENT_SECONDS * 2.5)
        assert [each[:1] for each in stream.told] == ["", "r", ":", ":"]
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


async def test_there_are_only_so_many_streams(desk: Desk, autojump_clock: trio.testing.MockClock) -> None:
    browser = desk.browser()
    with trio.fail_after(BOUND):
        async with background() as nursery:
            for _ in range(MAX_STREAMS):
                Stream(browser, "/ui/live?at=/ui/list&since=", nursery)
            await trio.testing.wait_all_tasks_blocked()
            assert (await browser.get("/ui/live?at=/ui/list")).status == 503
    for page in ("/ui", "/ui/list"):
        assert (await browser.ask("HEAD", f"/ui/live?at={page}")).status == 200


async def test_each_session_has_its_own_form_token(desk: Desk, autojump_clock: trio.testing.MockClock) -> None:
    desk.shown.rows = {"a": {"available": FORM_TOKEN, "total": 1}}
    one, other = desk.browser(), desk.browser()
    with trio.fail_after(BOUND):
        async with background() as nursery:
            streams = [Stream(each, "/ui/live?at=/ui/list", nursery) for each in (one, other)]
            told = [(await each.data())["rows"]["changed"]["a"] for each in streams]
    assert told[0] != told[1]


# --- signing in ----------------------------------------------------------------------------------------------


TOKENS = {
    "of-a-client": Principal(token="ci"),
    "of-a-reader": Principal(token="wall", console=ConsoleRole.READ),
    "of-an-operator": Principal(token="me", console=ConsoleRole.CONTROL),
}


def a_console(match: Callable[[str], Principal | None] | None = None) -> Console:
    async def address() -> str:
        await trio.lowlevel.checkpoint()
        return "http://127.0.0.1:7337"

    return Console(operator_context(Stage()), address=address, match=match)


@pytest.mark.parametrize("may_change", [True, False])
async def test_a_link_leads_to_the_pages(may_change: bool) -> None:
    console = a_console()
    link = urlsplit(await console.link("uid 7 (console)", may_change=may_change))
    assert (link.netloc, link.path, list(parse_qs(link.query))) == ("127.0.0.1:7337", "/ui/enter", ["once"])
    browser = Browser(console)
    assert not console.knows({"host": HOST, "cookie": "mcpd_console_7337=x"})
    assert (await browser.get(f"{link.path}?{link.query}")).status == 200
    assert console.knows({"host": HOST, "cookie": f"a=b; mcpd_console_7337={browser.cookie}"})
    assert not console.knows({})
    assert console.end_all() == 1
    assert not console.knows({"host": HOST, "cookie": f"mcpd_console_7337={browser.cookie}"})


async def test_a_token_that_may_see_the_console_signs_in() -> None:
    console = a_console(TOKENS.get)
    cookie, delay = console.sign_in("of-a-reader", "192.0.2.1")
    assert cookie is not None
    assert delay == 0
    browser = Browser(console)
    browser.cookie = cookie
    assert console.knows({"host": HOST, "cookie": f"__Host-mcpd_console_7337={cookie}"})
    console.revoked("me")
    assert console.knows({"host": HOST, "cookie": f"mcpd_console_7337={cookie}"})
    console.revoked("wall")
    assert not console.knows({"host": HOST, "cookie": f"mcpd_console_7337={cookie}"})


def test_tokens_for_clients_and_wrong_ones_do_not_and_wait_longer_each_time() -> None:
    console = a_console(TOKENS.get)
    told = [console.sign_in(token, "192.0.2.1") for token in ("of-a-client", "wrong", "")]
    assert [cookie for cookie, _delay in told] == [None] * 3
    assert [delay for _cookie, delay in told] == [0.0, 0.25, 0.5]
    assert console.sign_in("of-an-operator", "192.0.2.1")[0] is not None


# --- links and sessions --------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now=100.0)


@pytest.fixture
def sessions(clock: SimpleNamespace) -> access.ConsoleSessions:
    return access.ConsoleSessions(lambda: clock.now, Audit())


def test_a_link_is_too_old_after_a_minute(sessions: access.ConsoleSessions, clock: SimpleNamespace) -> None:
    secret = sessions.invite("x", may_change=True)
    clock.now += access.LINK_SECONDS
    assert sessions.enter(secret) is None


def test_of_many_links_the_newest_count_until_all_sessions_are_ended(sessions: access.ConsoleSessions) -> None:
    first, *others = [sessions.invite("x", may_change=True) for _ in range(access.MAX_LINKS + 1)]
    assert sessions.enter(first) is None
    assert all(sessions.enter(each) for each in others)
    secret = sessions.invite("x", may_change=True)
    sessions.begin("x", may_change=True)
    assert sessions.end_all() == len(others) + 1
    assert sessions.enter(secret) is None


def test_secrets_are_long_and_never_the_same(sessions: access.ConsoleSessions) -> None:
    made = {sessions.invite("x", may_change=True) for _ in range(50)}
    made |= {sessions.begin("x", may_change=True) for _ in range(50)}
    made |= {each.form_token for each in sessions}
    assert len(made) == 150
    assert min(map(len, made)) >= 43


def test_a_session_goes_on_while_it_is_used(sessions: access.ConsoleSessions, clock: SimpleNamespace) -> None:
    cookie = sessions.begin("x", may_change=True)
    for _ in range(3):
        clock.now += access.IDLE_SECONDS - 1
        assert sessions.find(cookie) is not None
    clock.now += access.IDLE_SECONDS
    (session,) = sessions
    assert sessions.find(cookie) is None
    assert session.has_ended
    assert not len(sessions)


def test_of_many_sessions_those_used_last_stay(sessions: access.ConsoleSessions) -> None:
    first, second, *_ = [sessions.begin("x", may_change=True) for _ in range(access.MAX_SESSIONS)]
    sessions.find(first)
    sessions.begin("x", may_change=True)
    assert sessions.find(first) is not None
    assert sessions.find(second) is None
    assert len(sessions) == access.MAX_SESSIONS


def test_a_revoked_token_takes_its_sessions_with_it(sessions: access.ConsoleSessions) -> None:
    sessions.begin("token ci", token="ci", may_change=False)
    kept = sessions.begin("token dev", token="dev", may_change=True)
    assert sessions.revoke("ci") == 1
    assert [each.token for each in sessions] == ["dev"]
    assert sessions.find(kept) is not None


def test_notices_are_shown_once_and_are_few(sessions: access.ConsoleSessions) -> None:
    sessions.begin("x", may_change=True)
    (session,) = sessions
    for number in range(access.MAX_NOTICES + 1):
        session.tell(Notice(str(number)))
    assert [each.text for each in session.take_notices()] == ["1", "2", "3", "4"]
    assert session.take_notices() == []


# --- which cookie counts -------------------------------------------------------------------------------------


@cases("cookie", "plain", "under_tls")
def test_a_cookie_that_any_page_of_the_host_can_set_is_none_under_tls(
    cookie: str, plain: str, under_tls: str
) -> None:
    headers = {"host": "127.0.0.1:7337", **({"cookie": cookie} if cookie else {})}
    assert access.cookie_in(headers, tls=False) == plain
    assert access.cookie_in(headers, tls=True) == under_tls


@cases("host", "name")
def test_a_cookie_is_named_by_the_port_and_by_nothing_else_of_the_host(host: str, name: str) -> None:
    assert access.cookie_name(host, tls=False) == name
    assert access.cookie_name(host, tls=True) == f"__Host-{name}"


# --- what templates get --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rendering() -> Rendering:
    return Rendering()


@cases("text", "shown")
def test_text_of_others_is_escaped_and_marked(text: str, shown: str) -> None:
    assert foreign(text) == Markup(f'<bdi class="foreign">{shown}</bdi>')


@cases("text", "shown")
def test_what_stands_between_backticks_is_code_and_escaped(text: str, shown: str) -> None:
    assert marked(text) == Markup(f'<bdi class="foreign">{shown}</bdi>')


@cases("value", "words")
def test_latencies_are_short(value: float | None, words: str) -> None:
    assert milliseconds(value) == words


def test_a_heading_has_a_capital_where_it_begins_with_a_word() -> None:
    assert [heading(ReportColumn(text, str)) for text in ("waits for", "p50 ms")] == ["Waits for", "p50 ms"]


def test_markers_are_replaced_for_each_viewer(rendering: Rendering) -> None:
    fragment = Fragment(id="x", template="masthead.html", values={"available": 1, "total": 3, "off": 1})
    assert "1 of 3 servers available, 1 off" in rendering.fragment(fragment, may_change=True)
    assert sent(f"{FORM_TOKEN} {HERE}", "t0k3n", '/ui/x?a="') == "t0k3n /ui/x?a=&#34;"


def test_a_command_is_told_by_the_button_that_gives_it() -> None:
    told = by_button("Mend <it>. Then `mcpd restart git`, or `mcpd reload`; `mcpd restart other`.", "git")
    buttons = '<button class="quiet" form="{}">{}</button>'.format
    assert "Mend &lt;it&gt;. Then " in told
    assert buttons("restart-git", "Restart") in told
    assert buttons("reload", "Reload") in told
    assert '<a href="/ui/servers/other">Restart</a>' in told


def test_an_address_in_a_stream_is_text_whatever_it_spells() -> None:
    here = '/ui/x?a=\\u0022\\u003e\\"\n\ndata: x'
    told = sent_in_json(msgspec.json.encode({"html": f"{FORM_TOKEN} {HERE}"}).decode(), "t0k3n", here)
    assert "\n" not in told
    assert msgspec.json.decode(told) == {"html": sent(f"{FORM_TOKEN} {HERE}", "t0k3n", here)}


def test_no_template_has_what_the_policy_forbids_or_shows_text_unescaped() -> None:
    for template in files("daemon.console").joinpath("templates").iterdir():
        source = template.read_text().lower()
        forbidden = re.search(r" style=|<style|<script>| onclick| onload|\| ?safe|autoescape", source)
        assert not forbidden, (template.name, forbidden)
