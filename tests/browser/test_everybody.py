"""Each page for everybody, when things are bad: by keyboard, without a script, on a phone, light and dark.

A server fails, one keeps crashing and writes markup, tools have names that turn text round or hardly end, a
session has loaded tools that are gone or changed, and the configuration is doubtful.
"""

import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from daemon.console.pages.page_table import PAGES
from tests.browser.driving import SCHEMES, SIZES, Here, Scheme, accessible, console, settled
from tests.e2e.harness import changeable, scripted
from tests.pairwise import at_night, each_once
from tests.scripted_server import tool

TURNED = "save\u202etxt.exe"
"""A name whose end is shown before its middle."""

LONG = "x" * 10_240
"""A name that no line holds."""

MARKUP = "<b>bold</b> \x1b[31m</pre>"
KEY = "ann's <i>project</i>"

BAD: tuple[dict[str, Any], ...] = (
    tool(TURNED, description=f"Turns \u2067text\u2069 round: {MARKUP}"),
    tool("long", description=LONG),
    tool(LONG),
    tool("kept"),
)
CHANGED = tool(
    "kept", inputSchema={"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
)
CRASHING = f"raise SystemExit({f'the licence {MARKUP} {LONG}'!r})"
SERVERS: dict[str, Any] = {
    "git": changeable(*BAD, tool("gone")),
    "notes": changeable(tool("read_note")),
    "broken": {"command": "/nonexistent/server", "description": MARKUP},
    "held": {**scripted(tools=[*BAD]), "trust": "none"},
    "crashing": {"command": sys.executable, "args": ["-c", CRASHING]},
}
OF_ONE = (
    "/servers/git",
    *(f"/servers/git?tab={tab}" for tab in ("tools", "logs", "history", "settings")),
    "/servers?view=table",
    "/find?q=k",
    "/servers/crashing",
    "/tools?server=git",
    f"/tools/git/{quote(TURNED, safe='')}",
    "/approvals?server=held",
    "/approvals?name=long",
    f"/sessions/{quote(KEY, safe='')}",
    "/nowhere",
)
LIKE_THEM = (
    *("/servers/broken", "/servers/crashing?tab=logs", "/servers?only=trouble", "/tools?q=text"),
    *("/tools/git/long", "/events?what=wrong", "/savings?span=hour"),
)
EACH_ONCE = [*(page.path for page in PAGES if page.in_navigation), *OF_ONE]
SHOWN = [*EACH_ONCE, *LIKE_THEM]
EACH_RUN = ("/servers", "/servers/git", f"/sessions/{quote(KEY, safe='')}", "/settings")
"""What is used by keyboard and read without a script in each run, and not in the nightly one alone."""


@pytest.fixture(scope="module")
def bad(browser: Browser) -> Iterator[Here]:
    profiles = {"default": {"surface": "load"}}
    with (
        console(browser, {"mcpServers": SERVERS, "profiles": profiles}) as opened,
        opened.daemon.client().hello(session=KEY) as client,
    ):
        client.load("kept", "gone", "long")
        client.call("kept", {})
        opened.daemon.changes("git", *BAD[:-1], CHANGED)
        yield opened


def opened(bad: Here, path: str, **options: Any) -> Page:
    page = bad.signed_in(**options)
    page.goto(f"{bad.address}{path}")
    return page


@pytest.mark.parametrize(("path", "size", "scheme"), each_once(SHOWN, [*SIZES], SCHEMES, rows=len(EACH_ONCE)))
def test_nothing_bars_anybody(bad: Here, path: str, size: str, scheme: Scheme) -> None:
    page = bad.visit(path, size, scheme)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    accessible(page)


CONTROLS = """() => {
    const wanted = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
    window.controls = [...document.querySelectorAll(wanted)].filter((each) => each.checkVisibility());
    window.controls.forEach((each) => { each.reached = false; });
    return window.controls.length;
}"""
"""Has a page remember its controls; how many there are."""

REACHED = """() => {
    const now = document.activeElement;
    if (now !== document.body && getComputedStyle(now).outlineStyle === "none") return "no outline";
    now.reached = true;
    return window.controls.every((each) => each.reached) ? "all" : "";
}"""

MISSED = "() => window.controls.filter((each) => !each.reached).map((each) => each.outerHTML.slice(0, 200))"

PARTS_OF_A_TIME = 16
"""Tab stops within the two fields for a date and a time."""


@pytest.mark.parametrize("path", at_night(SHOWN, *EACH_RUN))
def test_every_control_is_reached_with_the_keyboard_and_seen_to_be(bad: Here, path: str) -> None:
    page = bad.visit(path)
    page.evaluate("dispatchEvent(new Event('pagehide'))")  # nothing is replaced while keys are pressed
    found = page.evaluate(CONTROLS)
    for _ in range(found + PARTS_OF_A_TIME):
        page.keyboard.press("Tab")
        told = page.evaluate(REACHED)
        assert told != "no outline", page.evaluate("document.activeElement.outerHTML")
        if told == "all":
            break
    assert page.evaluate(MISSED) == []


@pytest.mark.parametrize("path", at_night(SHOWN, *EACH_RUN))
def test_without_a_script_it_says_the_same(bad: Here, path: str) -> None:
    with_script, without = bad.visit(path), opened(bad, path, java_script_enabled=False)
    headings = [each.get_by_role("heading").all_inner_texts() for each in (with_script, without)]
    assert headings[0] == headings[1] != []
    captions = [each.locator("caption").all_text_contents() for each in (with_script, without)]
    assert captions[0] == captions[1]


def test_what_turns_text_round_does_not_and_what_is_loaded_and_gone_says_so(bad: Here) -> None:
    page = settled(opened(bad, "/servers/git"))
    assert "\u202e" not in page.content()
    page.goto(f"{bad.address}/sessions/{quote(KEY, safe='')}")
    rows = {
        each.split("\t")[0].strip(): each for each in page.locator("#session-loaded tbody tr").all_inner_texts()
    }
    assert "can be used" in rows["git/long"]
    assert "can be used" not in rows["git/gone"]
    assert "can be used" not in rows["git/kept"]
