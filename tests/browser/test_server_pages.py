"""The pages of servers in Chromium: what was killed is seen to be, and everything can be done there."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.driving import Here, console, expect_words, press, row, settled
from tests.e2e.harness import changeable, scripted
from tests.waiting import WAIT


@pytest.fixture(scope="module")
def own(browser: Browser) -> Iterator[Here]:
    """A daemon of these tests' own: they switch its servers off."""
    servers: dict[str, Any] = {
        # Longer away than a page is old: that it is away can be seen.
        "git": {**scripted(tools=["git_log"]), "restart": {"base": 3}},
        "notes": changeable(
            {"name": "read_note", "description": "Reads a note."}, stderr="it is up\na warning\n"
        ),
        "broken": {"command": "/nonexistent/server"},
    }
    with console(browser, {"mcpServers": servers}) as opened:
        yield opened


_REMEMBER_STATES = """() => {
    const seen = () => document.querySelector("#server-overview .chip").textContent;
    window.states = [seen()];
    new MutationObserver(() => { if (seen() !== window.states.at(-1)) window.states.push(seen()); })
        .observe(document.querySelector("main"), {childList: true, subtree: true, characterData: true});
}"""
"""Has a page keep each state that it shows."""


def test_a_server_that_is_killed_is_seen_to_be_and_to_come_back(own: Here) -> None:
    page = settled(own.signed_in())
    page.goto(f"{own.address}/servers/git")
    settled(page)
    before = own.daemon.ask("status")["servers"]["git"]
    page.evaluate("window.never_reloaded = true")
    page.evaluate(_REMEMBER_STATES)
    os.kill(before["pid"], signal.SIGKILL)
    # Nobody but the page is asked from here on: it has to see the end, and the new beginning.
    expect(page.locator("#server-overview")).to_contain_text("1 restart since", timeout=WAIT * 1000)
    expect(page.locator("#server-numbers")).not_to_contain_text(str(before["pid"]), timeout=WAIT * 1000)
    expect(page.locator("#server-overview .chip")).to_have_text("ready", timeout=WAIT * 1000)
    assert page.evaluate("window.never_reloaded")
    states = page.evaluate("window.states")
    assert states[0] == states[-1] == "ready"
    assert {*states} - {"ready"}, "it was seen to be away"
    after = own.daemon.ask("status")["servers"]["git"]
    expect(page.locator("#server-numbers")).to_contain_text(str(after["pid"]))


def test_a_server_is_switched_off_and_on_restarted_and_refreshed(own: Here) -> None:
    page = settled(own.signed_in())
    notes = row(page, "notes")
    notes.get_by_role("button", name="Disable notes").click()
    press(page.get_by_role("dialog"), "Disable", "notes: switched off, now disabled")
    notes.get_by_role("button", name="Enable notes").click()
    expect_words(page, "notes: switched on, now ready")
    settled(page)
    notes.get_by_role("button", name="Restart notes").click()
    press(page.get_by_role("dialog"), "Restart", "notes: restarted, now ready")
    tops = "controls => [...controls.querySelectorAll('button, a')].map(each => each.offsetTop)"
    assert len({*notes.locator(".controls").evaluate(tops)}) == 1, "in one row"
    notes.get_by_role("link", name="Logs of notes").click()
    expect_words(page, "a warning")
    press(page, "Refresh tools of notes", "2 tools; as before")


def test_what_helps_is_said_and_the_worst_comes_first(own: Here) -> None:
    page = own.signed_in()
    first = page.locator(".cards > li").first
    expect(first).to_contain_text("broken")
    expect(first).to_contain_text("What helps:")
    expect(first.locator("dl")).to_have_count(0)
    page.get_by_role("link", name="By name").click()
    page.get_by_role("searchbox", name="Name").fill("o")
    page.keyboard.press("Enter")
    expect(page.locator(".cards h2")).to_have_text(["broken", "notes"])
    page.get_by_role("link", name="Table").click()
    expect(page.locator("tbody th a")).to_have_text(["broken", "notes"])
    page.get_by_role("link", name="broken", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("broken")


def test_what_helps_is_a_link_or_a_button_where_it_stands_and_what_is_not_well_a_link(own: Here) -> None:
    page = settled(own.signed_in())
    helps = row(page, "broken").locator(".helps")
    helps.get_by_role("button", name="Restart").click()
    press(page.get_by_role("dialog"), "Restart", "broken: restarted, now failed")
    settled(page)
    helps.get_by_role("button", name="Reload").click()
    expect_words(page, "The configuration was read.\nnothing has changed")
    page.goto(f"{own.address}/savings")
    expect(page.locator("#servers-available")).to_contain_text("2 of 3 servers available")
    page.locator("#servers-available").get_by_role("link", name="broken failed").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("broken")


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_lines_of_a_log_are_searched(own: Here, *, script: bool) -> None:
    page = own.signed_in(java_script_enabled=script)
    page.goto(f"{own.address}/servers/notes?tab=logs")
    lines = page.locator(".log > .line:visible")
    expect(lines.filter(has_text="it is up")).not_to_have_count(0)
    page.get_by_role("searchbox", name="Lines with").fill("WARN")
    if not script:
        page.get_by_role("button", name="Search").click()
    expect(lines.filter(has_text="it is up")).to_have_count(0)
    expect(lines.first).to_contain_text("a warning")


def test_without_a_script_it_is_read_and_used_and_a_place_is_reached(own: Here) -> None:
    page = own.signed_in(java_script_enabled=False)
    page.goto(f"{own.address}/servers/notes?tab=tools")
    expect_words(page, "What it offers")
    expect_words(page, "set_tools")
    press(page, "Refresh tools of notes", "2 tools; as before")
    page.get_by_role("searchbox", name="Go to").fill("git")
    page.keyboard.press("Enter")
    expect(page.locator("#found a").first).to_contain_text("git")
    page.goto(f"{own.address}/find?q=nothing-has-this-name")
    expect_words(page, "No server and no tool has this in its name.")


def test_with_the_keyboard_alone_a_server_is_found_and_refreshed_and_a_place_reached(own: Here) -> None:
    page = settled(own.signed_in())
    _tab_to(page, "notes")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("notes")
    _tab_to(page, "Refresh tools")
    page.keyboard.press("Enter")
    expect_words(page, "2 tools; as before")
    page.keyboard.press("Control+k")
    page.keyboard.type("git_l")
    expect(page.locator("#found a")).to_have_text(["git_log tool of git"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("git_log")
    page.keyboard.press("Control+k")
    page.keyboard.type("ev")
    expect(page.locator("#found a")).to_have_text(["Events"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Events")


def _tab_to(page: Page, words: str) -> None:
    """Press Tab until what has the focus says these words."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == words:
            return
    raise AssertionError(f"nothing that says {words!r} can be reached with Tab")
