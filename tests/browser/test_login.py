"""A login from the console, at a real authorization server, in the browser that looks at the console."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.driving import PHONE, Here, accessible, console, expect_words, press, settled
from tests.browser.driving import SERVERS as OTHERS
from tests.process.authorization.serving import protected
from tests.waiting import WAIT, eventually


@pytest.fixture(scope="module")
def wiki() -> Iterator[str]:
    """A server that wants a login, and its authorization server."""
    with protected() as url:
        yield url


@pytest.fixture
def guarded(browser: Browser, wiki: str) -> Iterator[Here]:
    """A console whose server `wiki` wants a login."""
    with console(browser, {"mcpServers": {**OTHERS, "wiki": {"url": wiki}}}) as opened:
        eventually(lambda: state_of(opened)["state"] == "needs_auth", opened.daemon.said)
        yield opened


def state_of(here: Here) -> dict[str, Any]:
    found: dict[str, Any] = here.daemon.ask("status")["servers"]["wiki"]
    return found


def page_of_wiki(here: Here, **options: Any) -> Page:
    page = here.signed_in(**options)
    page.context.route(lambda address: urlsplit(address).hostname != "127.0.0.1", lambda route: route.abort())
    page.goto(f"{here.address}/servers/wiki")
    return settled(page)


def agree(context: BrowserContext, page: Page) -> None:
    """Sign in at the authorization server, and agree."""
    page.locator("input[name=login]").fill("somebody")
    page.locator("input[name=password]").fill("anything")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()
    assert context.pages[0] is not page, "it has a tab of its own"


def test_a_login_begins_with_a_button_and_ends_with_a_server_that_is_ready(guarded: Here) -> None:
    page = page_of_wiki(guarded)
    expect(page.locator("#server-overview")).to_contain_text("What helps:")
    press(page.locator("#server-overview"), "Log in to wiki", "A login is under way")
    settled(page)
    accessible(page)
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open the page of the login").click()
    theirs = opened.value
    assert theirs.evaluate("window.opener") is None
    agree(page.context, theirs)
    expect_words(theirs, "mcpd")
    # The console says it by itself: nobody reloads it.
    expect(page.locator("#server-overview .chip")).to_have_text("ready", timeout=WAIT * 1000)
    expect(page.locator("#server-login")).not_to_contain_text("under way", timeout=WAIT * 1000)
    page.get_by_role("link", name="History").click()
    expect(page.locator("#server-history")).to_contain_text("login succeeded", timeout=WAIT * 1000)
    page.goto(f"{guarded.address}/events?server=wiki")
    expect_words(page, "login succeeded")
    assert guarded.daemon.run("call", "wiki/secret").strip() == "it was you"

    page.goto(f"{guarded.address}/servers/wiki")
    settled(page)
    page.get_by_role("button", name="Log out").click()
    press(page.get_by_role("dialog"), "Log out", "logged out of wiki")


@pytest.mark.nightly
def test_a_login_that_is_declined_is_said_to_be_and_can_be_begun_again(guarded: Here) -> None:
    page = page_of_wiki(guarded)
    page.locator("#server-overview").get_by_role("button", name="Log in to wiki").click()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open the page of the login").click()
    opened.value.get_by_role("link", name="Cancel").click()
    expect(page.locator("#server-login").get_by_role("button", name="Log in", exact=True)).to_be_visible(
        timeout=WAIT * 1000
    )
    page.get_by_role("link", name="History").click()
    expect(page.locator("#server-history")).to_contain_text("login failed", timeout=WAIT * 1000)
    assert state_of(guarded)["state"] == "needs_auth"


@pytest.mark.nightly
def test_a_code_is_shown_for_a_browser_elsewhere(guarded: Here) -> None:
    page = page_of_wiki(guarded, viewport=PHONE, java_script_enabled=True)
    press(page, "Log in with a code", "and type the code")
    accessible(settled(page))
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open the page of the login").click()
    theirs = opened.value
    theirs.get_by_role("button", name="Continue").click()
    agree(page.context, theirs)
    expect(page.locator("#server-overview .chip")).to_have_text("ready", timeout=WAIT * 1000)


def test_who_may_only_look_sees_no_way_to_log_in(guarded: Here) -> None:
    changing = page_of_wiki(guarded)
    press(changing.locator("#server-overview"), "Log in to wiki", "A login is under way")
    page = guarded.signed_in("--read-only")
    page.goto(f"{guarded.address}/servers/wiki")
    expect_words(page, "mcpd logs in to it with OAuth.")
    assert "/auth?" not in page.content()
    for each in (page, changing):
        each.context.close()
