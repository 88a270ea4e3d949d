"""The console in Chromium: coming in, keeping others out, staying up to date, being used without a mouse."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from daemon.console.pages.page_table import PAGES
from tests import pages
from tests.browser.driving import Here, accessible, console, expect_words, press, row, settled
from tests.e2e.harness import free_port, running, scripted
from tests.waiting import WAIT

SHOWN = [page.path for page in PAGES if page.in_navigation]


@contextmanager
def another_site(html: str) -> Iterator[str]:
    """A page of somebody else, on another port and under another name; returns its address."""

    class Handler(pages.Page):
        def do_GET(self) -> None:
            self.say(html.encode(), kind="text/html")

    with pages.site(Handler) as address:
        yield f"{address.replace('127.0.0.1', 'localhost')}/"


# --- coming in ----------------------------------------------------------------------------------------------


def test_a_link_lets_one_browser_in_and_no_second_one(here: Here) -> None:
    link = here.link()
    first, second = here.context().new_page(), here.context().new_page()
    first.goto(link)
    first.wait_for_url(here.address)
    assert "Servers" in first.title()
    answer = second.goto(link)
    assert answer is not None
    assert answer.status == 403
    expect_words(second, "used already")
    assert first.context.cookies()[0]["httpOnly"]
    assert first.evaluate("document.cookie") == ""


def test_a_link_on_a_page_of_another_site_lets_in(here: Here) -> None:
    with another_site(f'<a href="{here.link()}">the console</a>') as address:
        page = here.context().new_page()
        page.goto(address)
        page.get_by_text("the console").click()
        page.wait_for_url(here.address)


def test_without_a_link_there_is_only_a_word_on_how_to_get_one(here: Here) -> None:
    page = here.context().new_page()
    answer = page.goto(f"{here.address}/servers")
    assert answer is not None
    assert answer.status == 401
    expect_words(page, "mcpd ui")
    assert "git" not in page.content()
    accessible(page)


def test_signing_out_ends_it_in_this_browser_only(here: Here) -> None:
    page, other = here.signed_in(), here.signed_in()
    page.get_by_role("button", name="Sign out").click()
    page.goto(here.address)
    expect_words(page, "You are not signed in")
    other.reload()
    assert "Servers" in other.title()


def test_two_daemons_of_one_machine_are_looked_at_in_one_browser(here: Here, browser: Browser) -> None:
    page = here.signed_in()
    with console(browser) as other:
        page.goto(other.link())
        page.wait_for_url(other.address)
        page.goto(here.address)
        assert "Servers" in page.title()
        page.get_by_role("button", name="Sign out").click()
        page.goto(other.address)
        assert "Servers" in page.title()


def test_a_token_of_the_configuration_signs_in_to_read(browser: Browser) -> None:
    value = "of-the-wall-display-0123456789"
    listed = [{"name": "wall", "value": value, "console": "read"}, {"name": "ci", "value": f"{value}-ci"}]
    http = {"address": f"127.0.0.1:{free_port()}", "tokens": listed}
    with console(browser, {"listen": {"http": http}}) as opened:
        page = opened.context().new_page()
        page.goto(f"{opened.address}/sign-in")
        page.get_by_label("token").fill(f"{value}-ci")
        press(page, "Sign in", "token is not valid for the console")
        page.get_by_label("token").fill(value)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(opened.address)
        expect_words(page, "signed in as token wall (console) · read only")


# --- keeping others out -------------------------------------------------------------------------------------


def test_who_may_only_look_has_no_controls_and_cannot_forge_them(here: Here) -> None:
    page = here.signed_in("--read-only")
    expect_words(page, "read only")
    assert page.locator("main form[method=post]").count() == 0
    token = page.locator("input[name=form_token]").first.get_attribute("value")
    form: dict[str, str | float | bool] = {"form_token": str(token)}
    answer = page.request.post(
        f"{here.address}/servers/git/restart", form=form, headers={"origin": here.address.removesuffix("/ui")}
    )
    assert answer.status == 403


FORGED = """
<form id="f" method="post" action="{address}/servers/git/restart"><input name="form_token" value="x"></form>
<script>document.getElementById("f").submit()</script>
"""


def test_a_form_of_another_site_does_nothing(here: Here) -> None:
    page = here.signed_in()
    before = here.daemon.ask("status")["servers"]["git"]["pid"]
    with another_site(FORGED.replace("{address}", here.address)) as address:
        page.goto(address)
        page.wait_for_url(f"{here.address}/servers/git/restart")
        # Refused by its origin or, without a cookie, as somebody who is not signed in.
        assert "not signed in" in page.content() or "may use the console" in page.content()
    assert here.daemon.ask("status")["servers"]["git"]["pid"] == before


def test_no_page_shows_it_in_a_frame(here: Here) -> None:
    page = here.signed_in()
    with another_site(f'<iframe src="{here.address}"></iframe>') as address:
        page.goto(address)
        frame = page.frames[-1]
        assert "Servers" not in frame.content()


def test_nothing_is_loaded_from_elsewhere_and_nothing_breaks_the_policy(here: Here) -> None:
    page = here.signed_in()
    asked: list[str] = []
    told: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    for path in SHOWN:
        page.goto(f"{here.address}{path}")
        settled(page)
    assert {each for each in asked if not each.startswith((here.address, "data:,"))} == set()
    assert told == []


# --- staying up to date -------------------------------------------------------------------------------------


def test_a_page_follows_its_daemon_keeps_what_a_person_does_and_says_when_it_is_over(browser: Browser) -> None:
    with console(browser) as opened:
        page = settled(opened.signed_in())
        expect(row(page, "git")).to_contain_text("ready")
        page.get_by_role("button", name="Restart notes").focus()
        opened.daemon.ask("switch", name="git", off=True)
        expect(row(page, "git")).to_contain_text("disabled", timeout=WAIT * 1000)
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Restart notes"
        assert opened.daemon.run("ui", "--end") == "ended 1 session of the console\n"
        expect_words(page, "is no longer updated")
        page = settled(opened.signed_in())
        assert opened.daemon.stop() == 0
        expect_words(page, "does not answer")


# --- for everybody ------------------------------------------------------------------------------------------


def focused(page: Page) -> str:
    return str(page.evaluate("(document.activeElement.textContent || '').trim()"))


def test_what_destroys_asks_first_and_the_keyboard_is_enough(browser: Browser) -> None:
    with console(browser) as opened:
        page = settled(opened.signed_in())
        before = opened.daemon.ask("status")["servers"]["git"]["pid"]
        page.keyboard.press("Tab")
        assert focused(page) == "Skip to the content"
        page.keyboard.press("Enter")
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.getAttribute('aria-label')") == "Restart git":
                break
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        accessible(page)
        assert focused(page) == "Cancel"
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert opened.daemon.ask("status")["servers"]["git"]["pid"] == before
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Restart git"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect_words(page, "git: restarted, now ready")
        assert opened.daemon.ask("status")["servers"]["git"]["pid"] not in {None, before}


def test_nothing_listens_before_somebody_asks(browser: Browser) -> None:
    with running({"mcpServers": {"git": scripted(tools=["x"])}}) as daemon:
        assert "console:" not in daemon.said()
        port = int(daemon.run("ui", "--print").split(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT):
            pass
        assert "console: served on" in daemon.said()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/calls", "No call yet"),
        ("/sessions", "No client is connected."),
        ("/savings", "No list of tools was sent yet."),
        ("/servers?q=nonesuch", "No server matches this filter."),
    ],
)
def test_a_table_without_rows_is_a_sentence(here: Here, path: str, said: str) -> None:
    page = here.visit(path)
    expect(page.get_by_text(said)).to_be_visible()
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')]"
        ".every((each) => each.querySelector('tbody > tr') || !each.checkVisibility())"
    )
    page.goto(f"{here.address}/servers")
    expect(page.get_by_text("No server matches this filter.")).to_be_hidden()
