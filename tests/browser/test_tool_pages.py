"""The pages of tools and sessions in Chromium: hostile names stay text, and each control does what it says."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.driving import Here, console, expect_words, row, settled
from tests.e2e.harness import scripted
from tests.scripted_server import tool

SCRIPT = "<script>document.title='taken'</script>\u202e"
NAME = "a/b<img src=x onerror=document.title='taken'>"
ENCODED = "a%2Fb%3Cimg%20src%3Dx%20onerror%3Ddocument.title%3D%27taken%27%3E"
SCHEMA = {"type": "object", "properties": {"<b>x</b>": {"type": "string", "description": SCRIPT}}}


@pytest.fixture(scope="module")
def own(browser: Browser) -> Iterator[Here]:
    """A daemon with a hostile tool."""
    tools = [
        tool("read", description="Reads a file."),
        tool("write"),
        tool(NAME, description=SCRIPT, inputSchema=SCHEMA),
    ]
    servers = {"s": scripted(tools=tools), "git": scripted(tools=["git_log"]), "notes": scripted()}
    with console(
        browser, {"mcpServers": servers, "profiles": {"default": {"surface": "load"}, "review": {}}}
    ) as made:
        yield made


def test_what_a_tool_says_of_itself_stays_text(own: Here) -> None:
    page = own.signed_in()
    for path in ("/tools?category=s", f"/tools/s/{ENCODED}", "/servers/s"):
        page.goto(own.address + path)
        settled(page)
        assert "taken" not in page.title() or NAME in page.title()
        assert page.locator("main img, main script, main b").count() == 0
        expect_words(page, NAME)
    page.goto(f"{own.address}/tools/s/{ENCODED}")
    expect_words(page, "<b>x</b>")


def test_a_tool_is_found_as_a_model_finds_it(own: Here) -> None:
    page = own.signed_in()
    page.goto(f"{own.address}/tools")
    page.get_by_label("Search as a model does").fill("reads a file")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody th").first).to_contain_text("read")
    page.get_by_role("link", name="read", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("read")


def test_a_tool_is_switched_off_and_on_in_its_category(own: Here) -> None:
    page = own.signed_in()
    page.goto(f"{own.address}/tools?category=s")
    page.get_by_role("button", name="Disable s/write").click()
    expect_words(page, "s/write is switched off.")
    expect(row(page, "write")).to_contain_text("switched off by an operator")
    page.get_by_role("button", name="Enable s/write").click()
    expect_words(page, "s/write is switched on.")


def test_a_description_is_written_and_taken_out_again(own: Here) -> None:
    page = own.signed_in()
    page.goto(f"{own.address}/tools/s/read")
    page.get_by_label("What models are told of it").fill("Ours & <i>theirs</i>.")
    page.get_by_role("button", name="Write it into the configuration").click()
    expect_words(page, "s/read has this description now")
    assert "Ours & <i>theirs</i>." in own.daemon.config.read_text(encoding="utf-8")
    page.get_by_role("button", name="own description again").click()
    expect_words(page, "s/read has its server's own description now")
    assert "Ours" not in own.daemon.config.read_text(encoding="utf-8")


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
        page.get_by_role("button", name="Unload s/read").click()
        expect_words(page, "s/read is not loaded any more.")
        assert "read" not in client.listed()
        page.get_by_role("button", name="Unload all").click()
        page.get_by_role("dialog").get_by_role("button", name="Unload all").click()
        expect_words(page, "It has not loaded any tools.")
        page.get_by_label("Profile").select_option("review")
        page.get_by_role("button", name="Move it to this profile").click()
        expect_words(page, "The session has profile review now.")
