"""The pages of calls, savings and settings in Chromium: each control, each width, with and without a script."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.driving import SIZES, Here, accessible, console, expect_words, press, row, settled
from tests.e2e.harness import scripted
from tests.e2e.test_summaries import at_hand
from tests.pairwise import each_once
from tests.unit.summaries.endpoint_server import EndpointServer, status, well
from tests.waiting import WAIT

MODELS = status(200, json.dumps({"data": [{"id": "large"}, {"id": "m"}]}).encode())
PAGES = ("/calls", "/audit", "/savings", "/savings?span=hour", "/savings?span=season", "/settings")


@contextmanager
def stage(browser: Browser) -> Iterator[tuple[Here, EndpointServer]]:
    """A console with a server that can be waited for, and a model whose sentences nobody has asked for yet."""
    with at_hand(well) as server:
        config = {
            "mcpServers": {"git": scripted(tools=["sleep", "echo", "fail"]), "notes": scripted(tools=["echo"])},
            "profiles": {"reader": {"surface": "browse"}},
            "summaries": {"baseUrl": server.base_url, "model": "m"},
        }
        with console(browser, config) as here:
            yield here, server


@pytest.fixture(scope="module")
def staged(browser: Browser) -> Iterator[tuple[Here, EndpointServer]]:
    with stage(browser) as made:
        yield made


def opened(here: Here, path: str, **options: object) -> Page:
    page = here.signed_in(**options)
    page.goto(here.address + path)
    return page


@pytest.mark.parametrize(("path", "size"), each_once(PAGES, [*SIZES]))
def test_each_page_is_for_everybody(staged: tuple[Here, EndpointServer], path: str, size: str) -> None:
    here, _ = staged
    here.daemon.run("call", "notes/echo", "text=hi")
    accessible(settled(here.visit(path, size)))


def test_a_call_that_hangs_is_seen_and_cancelled(staged: tuple[Here, EndpointServer]) -> None:
    here, _ = staged
    page = settled(opened(here, "/calls"))
    command = here.daemon.command("call", "git/sleep", "seconds=1000")
    with subprocess.Popen(
        command, cwd=here.daemon.code, env=here.daemon.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as caller:
        waits = page.locator("#in-flight tr")
        # Nothing else happens, and nothing is reloaded: it comes by itself.
        expect(waits).to_contain_text("the answer", timeout=WAIT * 1000)
        waits.get_by_role("button", name="Cancel the call").click()
        press(page.get_by_role("dialog"), "Cancel the call", "cancelled after")
        said, _ = caller.communicate(timeout=WAIT)
        assert b"cancelled" in said
    expect(row(page, "sleep").filter(has_text="cancelled").first).to_be_visible(timeout=WAIT * 1000)


def test_ended_calls_come_by_themselves_and_are_filtered(staged: tuple[Here, EndpointServer]) -> None:
    here, _ = staged
    page = settled(opened(here, "/calls"))
    here.daemon.run("call", "notes/echo", "text=hi")
    here.daemon.run("call", "git/fail", check=None)
    expect(page.locator("#ended tr").filter(has_text="fail").first).to_be_visible(timeout=WAIT * 1000)
    still = opened(here, "/calls", java_script_enabled=False)
    still.get_by_label("Server").select_option("git")
    still.get_by_label("errors only").check()
    still.get_by_role("button", name="Show").click()
    names = {each.inner_text() for each in still.locator("#ended td:nth-child(2)").all()}
    assert names == {"git"}


def test_charts_say_their_numbers_without_a_script(staged: tuple[Here, EndpointServer]) -> None:
    here, _ = staged
    with here.daemon.client().hello(profile="reader") as client:
        client.listed()
        page = opened(here, "/savings?span=day", java_script_enabled=False)
        expect_words(page, "How this is estimated")
        chart = page.get_by_role("img", name="Tokens")
        expect(chart).to_be_visible()
        page.locator("#tokens summary").click()
        expect(page.locator("#tokens table")).to_be_visible()
        page.get_by_role("navigation", name="Time that the charts cover").get_by_text("Week").click()
        assert page.url.endswith("span=week")


def test_switches_are_thrown_with_the_keyboard_and_written(browser: Browser) -> None:
    with stage(browser) as (here, _):
        page = settled(opened(here, "/settings"))
        page.get_by_role("button", name="Switch off loading on demand for profile reader").press("Enter")
        press(page.get_by_role("dialog"), "Switch off", "profile reader is switched off")
        expect(row(page, "reader")).to_contain_text("full: every tool")
        page.get_by_role("button", name="Switch off loading on demand for all profiles").press("Enter")
        press(page.get_by_role("dialog"), "Switch off", "Every profile shows every tool")
        assert here.daemon.ask("status")["daemon"]["lazy"] is False
        written = json.loads(here.daemon.config.read_text())
        assert (written["lazy"], written["profiles"]["reader"]["lazy"]) == (False, False)
        here.daemon.run("lazy", "on")
        expect_words(page, "Each profile shows what its own switch")
        press(page, "Read it again", "The configuration was read")


def test_a_model_is_listed_chosen_and_tried(staged: tuple[Here, EndpointServer]) -> None:
    here, server = staged
    here.daemon.run("disable", "git")
    here.daemon.run("disable", "notes")
    page = settled(opened(here, "/settings"))
    server.behave(MODELS)
    press(page, "List the models of this endpoint", "The endpoint offers 2 models")
    page.get_by_label("Model", exact=True).select_option("large")
    press(page, "Choose", "large writes summaries from now on")
    server.behave(well)
    press(page, "Ask the model", "Does boil_water well.")
    accessible(page)
    assert json.loads(here.daemon.config.read_text())["summaries"]["model"] == "large"
    for name in ("git", "notes"):
        here.daemon.run("enable", name)
