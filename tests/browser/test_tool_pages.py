"""The pages of tools and sessions in Chromium: each control does what it says."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.driving import Here, accessible, console, press, settled
from tests.e2e.harness import scripted
from tests.scripted_server import tool


@pytest.fixture(scope="module")
def own(browser: Browser) -> Iterator[Here]:
    """A daemon with three servers and two profiles."""
    tools = [tool("read", description="Reads a file."), tool("write")]
    servers = {"s": scripted(tools=tools), "git": scripted(tools=["git_log"]), "notes": scripted()}
    with console(
        browser, {"mcpServers": servers, "profiles": {"default": {"surface": "load"}, "review": {}}}
    ) as made:
        yield made


def test_a_tool_is_found_as_a_model_finds_it_and_described_and_shows_that_it_is_called(own: Here) -> None:
    page = own.signed_in()
    page.goto(f"{own.address}/tools")
    page.get_by_label("Search as a model does").fill("reads a file")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody th").first).to_contain_text("read")
    page.get_by_role("link", name="read", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("read")
    expect(page.get_by_role("button", name="Call read")).not_to_have_css("column-gap", "normal")
    page.get_by_text("Write your own description").click()
    page.get_by_label("Description for models").fill("Ours & <i>theirs</i>.")
    press(page, "Write it into the configuration", "s/read has that description now")
    assert "Ours & <i>theirs</i>." in own.daemon.config.read_text(encoding="utf-8")
    press(page, "own description again", "s/read has its server's own description now")
    assert "Ours" not in own.daemon.config.read_text(encoding="utf-8")
    page.get_by_role("button", name="Call read").click()
    page.evaluate("document.addEventListener('submit', (event) => event.preventDefault())")
    page.get_by_role("dialog").get_by_role("button", name="Call read").click()
    expect(page.get_by_role("dialog").get_by_role("button", name="Calling…")).to_be_disabled()


def test_what_a_session_has_loaded_is_seen_and_taken_away(own: Here) -> None:
    with own.daemon.client().hello(session="/home/me") as client:
        client.load("read", "write")
        page = own.signed_in()
        page.goto(f"{own.address}/sessions")
        page.get_by_role("link", name="/home/me").first.click()
        expect(page.locator("#session-loaded tbody tr")).to_have_count(2)
        settled(page)
        client.load("git_log")
        # It is shown as soon as it is loaded.
        expect(page.locator("#session-loaded tbody tr")).to_have_count(3)
        press(page, "Unload s/read", "s/read is not loaded any more")
        assert "read" not in client.listed()
        page.get_by_role("button", name="Unload all").click()
        press(page.get_by_role("dialog"), "Unload all", "It has not loaded any tools.")
        page.get_by_label("Profile").select_option("review")
        press(page, "Move it to this profile", "its connection has profile review now")


def test_a_tool_is_called_with_a_form_made_of_its_schema(browser: Browser) -> None:
    members = {
        "text": {"type": "string", "description": "A word."},
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "kind": {"enum": ["one", "two"]},
        "more": {"type": "array", "items": {"type": "string"}},
        "unused": {"type": "string"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "either": {"type": ["boolean", "null"]},
    }
    schema = {"type": "object", "properties": members, "required": ["text"]}
    hints = {"readOnlyHint": True}
    safe = {"name": "echo", "inputSchema": schema, "annotations": hints}
    with console(
        browser, {"mcpServers": {"git": scripted(tools=[safe, "act"]), "notes": scripted(tools=["y"])}}
    ) as here:
        page = settled(here.signed_in())
        page.goto(f"{here.address}/tools/git/echo")
        page.get_by_label("text").fill("5")
        page.get_by_label("count").fill("7")
        page.get_by_label("flag").select_option("true")
        page.get_by_label("kind").select_option("two")
        page.get_by_label("more").fill('["a"]')
        page.get_by_label("maybe").fill("2 weeks ago")
        page.get_by_label("either").select_option("false")
        press(page, "Call echo", "git/echo has answered")
        told = page.locator(".outcome .message").inner_text()
        assert json.loads(told.partition(":")[2]) == {
            "text": "5", "count": 7, "flag": True, "kind": "two", "more": ["a"],
            "maybe": "2 weeks ago", "either": False,
        }  # fmt: skip
        # The form is as it was sent, and stays so when all of the page comes once more.
        for look_again in (False, True):
            if look_again:
                page.evaluate("window.dispatchEvent(new Event('pagehide'))")
                with page.expect_response("**/ui/live*"):
                    page.evaluate(
                        "window.dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))"
                    )
                page.wait_for_selector("#tool-call.arrived")
            for label, value in (("text", "5"), ("count", "7"), ("kind", "1"), ("more", '["a"]')):
                expect(page.get_by_label(label)).to_have_value(value)
        accessible(page)
        page.get_by_label("text").fill("x")
        page.get_by_label("more").fill("[")
        press(page, "Call echo", "more is not JSON")
        expect(page.get_by_label("more")).to_have_value("[")
        # Its server does not say that it only reads: it is asked first.
        page.goto(f"{here.address}/tools/git/act")
        page.get_by_role("button", name="Call act").click()
        expect(page.get_by_role("dialog")).to_contain_text("It may destroy something.")
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        expect(page.locator("#messages .message")).to_have_count(0)
