"""Chromium, a daemon whose console it looks at, and the judge of accessibility."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.e2e.harness import changeable, running, scripted
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, Page

    from tests.e2e.harness import Daemon

PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}

LIVE = "body[data-state=live]"
"""There once a page is kept up to date."""

SERVERS: dict[str, Any] = {
    "git": scripted(tools=["git_log", "git_status"]),
    "notes": changeable({"name": "read_note", "description": "Reads a note."}),
    "broken": {"command": "/nonexistent/server"},
}


def chromium() -> str:
    """Where the distribution keeps it."""
    found = shutil.which("chromium")
    assert found is not None, "make chromium"
    return found


@attrs.define
class Here:
    """A daemon, and a browser beside it."""

    daemon: Daemon
    browser: Browser
    address: str
    """Where pages are, as in `http://127.0.0.1:1234/ui`."""

    def link(self, *words: str) -> str:
        """What `mcpd ui --print` prints, alone on its last line."""
        return self.daemon.run("ui", "--print", *words).splitlines()[-1]

    def context(self, **options: Any) -> BrowserContext:
        """A browser of its own, with nobody's cookies."""
        made = self.browser.new_context(viewport=options.pop("viewport", DESK), **options)
        made.set_default_timeout(WAIT * 1000)
        return made

    def signed_in(self, *words: str, **options: Any) -> Page:
        """A page of a browser that has followed a link."""
        page = self.context(**options).new_page()
        page.goto(self.link(*words))
        page.wait_for_url(self.address)
        return page


@contextmanager
def console(browser: Browser, config: dict[str, Any] | None = None) -> Iterator[Here]:
    """A daemon whose servers have settled."""
    with running({"mcpServers": SERVERS, **(config or {})}, forked=False) as daemon:
        daemon.ready("git", "notes")
        parts = urlsplit(daemon.ask("ui")["link"])
        yield Here(daemon, browser, f"{parts.scheme}://{parts.netloc}/ui")


_UNLIKE_WHAT_IS_SEEN = """() => [...document.querySelectorAll("a[aria-label], button[aria-label]")]
    .map(each => [each.textContent.trim().toLowerCase(), each.getAttribute("aria-label").toLowerCase()])
    .filter(([seen, said]) => !said.includes(seen))"""
"""Names of controls for screen readers that lack their visible words."""


def settled(page: Page) -> Page:
    """The page, once it is kept up to date."""
    page.wait_for_selector(LIVE)
    return page


def accessible(page: Page) -> None:
    """Fail on anything that axe finds, and on a page that is wider than its window."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate(_UNLIKE_WHAT_IS_SEEN) == [], "WCAG 2.5.3: who says what is seen means the control"
    too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(too_wide), page.url


def row(page: Page, name: str) -> Any:
    """The row of a table that begins with a name."""
    return page.locator("tbody tr").filter(has=page.get_by_role("rowheader", name=re.compile(rf"^{name}\b")))


def expect_words(page: Page, text: str) -> None:
    """Wait until the page says something."""
    expect(page.locator("body")).to_contain_text(text, timeout=WAIT * 1000)
