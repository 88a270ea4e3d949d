"""What hostile servers, clients and addresses write stays text in Chromium, on pages and in streams."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.driving import Here, console, expect_words, settled
from tests.e2e.harness import scripted

SCRIPT = "window.owned = true"
ATTACK = (
    f"<script>{SCRIPT}</script><img src=x onerror='{SCRIPT}'><svg onload='{SCRIPT}'>"
    f"<a href='javascript:{SCRIPT}'></textarea></title></bdi>"
    f"<form action=/ui/evil>\"'>{{{{ 7 * 7 }}}}{{% raw %}}"
)
"""Markup, handlers, SVG, ends of what it may stand in, and a template."""

WRITTEN = f"{ATTACK}\u202e"
"""The same with a character that turns text round, which is spelt out."""

NAME = f"a/{ATTACK}"[:128]
TOOL: dict[str, Any] = {
    "name": NAME,
    "title": WRITTEN,
    "description": WRITTEN,
    "inputSchema": {
        "type": "object",
        "properties": {ATTACK: {"type": "string", "description": WRITTEN, "default": ATTACK, "enum": [ATTACK]}},
    },
}
SERVERS = {
    "git": scripted(tools=["act", TOOL], stderr=f"{WRITTEN}\n", name=WRITTEN),
    "notes": scripted(tools=["x"]),
    "held": {**scripted(tools=[TOOL]), "trust": "none"},
    "refusing": scripted(on={"initialize": {"error": {"code": 1, "message": WRITTEN}}}),
}
CLIENT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": WRITTEN, "version": WRITTEN},
}
KEY = ATTACK[:200]

FOREIGN = "script:not([src]), main img, [onerror], [onload], a[href^=javascript], form[action$=evil]"
"""Elements that no page of the console has."""

COME_BACK = """
dispatchEvent(new Event("pagehide"));
dispatchEvent(new PageTransitionEvent("pageshow", {persisted: true}));
"""
"""Has a page follow a stream anew, which tells all of it."""

PATHS = (
    "/servers",
    "/servers/git",
    *(f"/servers/git?tab={tab}" for tab in ("tools", "logs", "history", "settings")),
    "/servers/refusing?tab=history",
    "/find?q=img",
    "/servers/refusing",
    "/tools?server=git",
    f"/tools?q={quote(ATTACK)}",
    f"/tools/git/{quote(NAME, safe='')}",
    "/approvals",
    f"/approvals?name={quote(NAME)}",
    f"/tools/held/{quote(NAME, safe='')}",
    "/sessions",
    f"/sessions/{quote(KEY, safe='')}",
    "/calls",
    "/events",
    f"/calls?session={quote(ATTACK)}",
    "/savings",
    "/settings",
    f"/servers/{quote(ATTACK, safe='')}",
    f"/{quote(ATTACK, safe='')}",
)


@pytest.fixture(scope="module")
def attacked(browser: Browser) -> Iterator[Here]:
    """A console that shows what the most hostile have written."""
    with (
        console(browser, {"mcpServers": SERVERS}) as opened,
        opened.daemon.client().hello(session=KEY, surface="load") as client,
    ):
        client.ask("initialize", CLIENT)
        client.load(NAME)
        client.call(WRITTEN, {})
        yield opened


def assert_harmless(page: Page) -> None:
    assert page.evaluate("window.owned") is None
    assert page.locator(FOREIGN).count() == 0
    assert "49" not in page.title()
    assert "\u202e" not in page.content()


@pytest.fixture(scope="module")
def faults(attacked: Here) -> list[str]:
    """What goes wrong on pages that are visited."""
    told: list[str] = []
    attacked.visit("/servers").on("pageerror", lambda error: told.append(str(error)))
    return told


@pytest.mark.parametrize("path", PATHS)
def test_what_others_write_stays_text(attacked: Here, faults: list[str], path: str) -> None:
    page = attacked.visit(path)
    assert_harmless(page)
    if page.locator("body[data-live]").count():
        settled(page)
        page.evaluate(COME_BACK)
        page.locator(".arrived").first.wait_for()
        assert_harmless(page)
    assert faults == []


@pytest.mark.parametrize("spelled", ["\\u0022\\u003e\\u003cimg/src=x\\u003e", "\\", "\\n\\ndata:x"])
def test_what_an_address_spells_is_no_escape_in_a_stream(
    attacked: Here, faults: list[str], spelled: str
) -> None:
    page = settled(attacked.visit(f"/servers?x={spelled}"))
    for off, state in ((True, "disabled"), (False, "ready")):
        attacked.daemon.ask("switch", name="notes", off=off)
        page.locator(".cards > li", has_text="notes").locator(f".chip.{state}").wait_for()
    assert_harmless(page)
    assert faults == []
    back = page.locator("main input[name=back]").first.get_attribute("value")
    assert back is not None
    assert back.endswith(f"?x={spelled}")


def test_a_name_with_markup_is_shown_as_it_is(attacked: Here) -> None:
    expect_words(attacked.visit("/tools?server=git"), NAME[:40])
