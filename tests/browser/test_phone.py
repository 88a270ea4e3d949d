"""The console on a phone: rows are cards, no word is broken for want of room, nothing is off the screen."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from daemon.console.pages.page_table import PAGES
from tests.browser.driving import Here, console, settled
from tests.browser.screenshots import SERVERS
from tests.e2e.harness import scripted
from tests.pairwise import at_night

KEY = "ann-of-the-project"
HELD = {**scripted(tools=["find_note"]), "trust": "none"}
OF_ONE = [
    "/servers/git",
    "/servers/git?tab=tools",
    "/servers/browser?tab=settings",
    "/servers?view=table",
    "/servers/browser",
    "/tools?server=git",
    "/tools/git/git_log",
    "/approvals?server=held",
    f"/sessions/{KEY}",
]
SHOWN = [*(page.path for page in PAGES if page.in_navigation), *OF_ONE]

BROKEN_WORDS = """
() => [...document.querySelectorAll("th, td")].filter((cell) => cell.checkVisibility()).flatMap((cell) => {
  const found = [], walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    for (const word of walker.currentNode.data.matchAll(/[^\\s\\/-]{1,24}/g)) {
      const range = document.createRange();
      range.setStart(walker.currentNode, word.index);
      range.setEnd(walker.currentNode, word.index + word[0].length);
      const tops = new Set([...range.getClientRects()].map((each) => Math.round(each.top)));
      if (tops.size > 1) found.push(word[0]);
    }
  }
  return found;
})
"""
"""The words of tables that stand on two lines; of a word that no line holds, its pieces."""

OFF_SCREEN = """
() => [...document.querySelectorAll("main th, main td, main button, main a")]
  .filter((each) => each.checkVisibility() && !each.closest("thead"))
  .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth)
  .map((each) => each.textContent)
"""

LABELS = """
() => [...document.querySelectorAll(".scroll > table")].flatMap((table) => {
  const heads = [...table.querySelectorAll("thead th")].map((each) => each.textContent);
  return [...table.querySelectorAll("tbody tr")].flatMap((row) => [...row.children].slice(1)
    .map((cell, at) => [cell.dataset.label, heads[at + 1]]).filter(([own, head]) => own !== head));
})
"""
"""Cells that do not name the column that they stand in."""


@pytest.fixture(scope="module")
def at_work(browser: Browser) -> Iterator[Here]:
    with console(browser, {"mcpServers": {**SERVERS, "held": HELD}}) as here, here.daemon.client() as client:
        client.hello(session=KEY, surface="load")
        client.greet(clientInfo=_CLIENT)
        client.load("git_log", "read_note")
        client.call("git_log", {})
        yield here


HEIGHTS = "() => [...document.querySelectorAll('main tbody > tr')].map((each) => each.offsetHeight)"


@pytest.mark.parametrize("path", ["/events", "/audit", "/tools?server=git"])
def test_a_row_of_a_long_list_is_a_few_lines_on_a_phone(at_work: Here, path: str) -> None:
    """A hundred rows were 21,729 px high in a window 400 px wide; fifty are 4,460."""
    heights = sorted(settled(at_work.visit(path, "phone")).evaluate(HEIGHTS))
    assert heights[len(heights) // 2] < 150


_CLIENT = {"name": "claude-code", "version": "2.1"}


@pytest.mark.parametrize("path", at_night(SHOWN, "/servers", "/calls", "/approvals", *OF_ONE[2:]))
def test_a_phone_shows_all_of_a_page_and_breaks_no_word(at_work: Here, path: str) -> None:
    page = settled(at_work.visit(path, "phone"))
    assert page.evaluate(BROKEN_WORDS) == []
    assert page.evaluate(OFF_SCREEN) == []
    assert page.evaluate(LABELS) == []
    header = page.locator("body > header").bounding_box()
    assert header is not None
    assert header["height"] < 100  # two lines: there is little room on a phone
    sizes = [page.locator(each).bounding_box() for each in (".brand", ".who button")]
    assert all(each is not None for each in sizes)
    assert abs(sizes[0]["y"] - sizes[1]["y"]) < 30  # type: ignore[index]  # both on the first line
