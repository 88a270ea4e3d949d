"""Chromium, a daemon with its console, and a check of accessibility."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import attrs
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Locator, Page, ViewportSize, expect

from tests.e2e.harness import Daemon, changeable, running, scripted
from tests.waiting import WAIT

PHONE: ViewportSize = {"width": 360, "height": 740}
DESK: ViewportSize = {"width": 1280, "height": 900}
SIZES = {"desk": DESK, "phone": PHONE}
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

VISITORS: list[BrowserContext] = []
"""Windows that outlive a test (`Here.visit`)."""

TAKEN: dict[Page, str] = {}
"""The windows that the current test has from `Here.signed_in`, with their options; emptied after the test."""

FREE: dict[str, list[Page]] = {}
"""Windows that no test has, by their options."""

LIVE = "body[data-state=live]"
"""A selector that matches once a page gets live updates."""

SERVERS: dict[str, Any] = {
    "git": scripted(tools=["git_log", "git_status"]),
    "notes": changeable({"name": "read_note", "description": "Reads a note."}),
    "broken": {"command": "/nonexistent/server"},
}


@attrs.define
class Here:
    """A daemon and a browser."""

    daemon: Daemon
    browser: Browser
    address: str
    """The address of the pages, such as `http://127.0.0.1:1234/ui`."""
    _visitor: Page | None = None

    def link(self, *words: str) -> str:
        """A fresh link to sign in with; `words` may be `--read-only`."""
        return str(self.daemon.ask("ui", readOnly="--read-only" in words)["link"])

    def context(self, **options: Any) -> BrowserContext:
        """A separate browser without cookies."""
        options = {"viewport": DESK, "reduced_motion": "reduce", **options}
        made = self.browser.new_context(**options)
        made.set_default_timeout(WAIT * 1000)
        return made

    def signed_in(self, *words: str, **options: Any) -> Page:
        """A page of a browser that has followed a link.

        It reuses an earlier test's window if there is one, since a new one costs a second of CPU.
        """
        kind = json.dumps(options, sort_keys=True)
        free = FREE.setdefault(kind, [])
        page = free.pop() if free else self.context(**options).new_page()
        TAKEN[page] = kind
        page.goto(self.link(*words))
        page.wait_for_url(self.address)
        return page

    def visit(self, path: str, size: str = "desk", scheme: Scheme = "light") -> Page:
        """A page for visitors who change nothing: they all share one browser window.

        A separate window costs a second of CPU.
        """
        if self._visitor is None:
            self._visitor = self.signed_in()
            VISITORS.append(self._visitor.context)
        self._visitor.set_viewport_size(SIZES[size])
        self._visitor.emulate_media(color_scheme=scheme)
        self._visitor.goto(f"{self.address}{path}")
        return self._visitor


def close_windows(browser: Browser, *, visitors: bool) -> None:
    """Empty the windows of `Here.signed_in` and close all others; shared windows only if `visitors`."""
    if visitors:
        VISITORS.clear()
    kept = [*VISITORS]
    for page, kind in TAKEN.items():
        if page.context not in VISITORS and not page.is_closed():
            _empty(page)
            FREE[kind].append(page)
    TAKEN.clear()
    kept += [page.context for pages in FREE.values() for page in pages]
    for context in browser.contexts:
        if context not in kept:
            context.close()


def _empty(page: Page) -> None:
    """Remove a test's traces from a window: the console stores only cookies there."""
    for other in page.context.pages:
        if other is not page:
            other.close()
    page.context.unroute_all(behavior="ignoreErrors")
    page.context.clear_cookies()
    page.goto("about:blank")


@contextmanager
def console(browser: Browser, config: dict[str, Any] | None = None) -> Iterator[Here]:
    """A daemon whose servers are up."""
    with running({"mcpServers": SERVERS, **(config or {})}) as daemon:
        daemon.ready("git", "notes")
        parts = urlsplit(daemon.ask("ui")["link"])
        try:
            yield Here(daemon, browser, f"{parts.scheme}://{parts.netloc}/ui")
        finally:
            close_windows(browser, visitors=True)


_UNLIKE_WHAT_IS_SEEN = """() => [...document.querySelectorAll("a[aria-label], button[aria-label]")]
    .map(each => [each.textContent.trim().toLowerCase(), each.getAttribute("aria-label").toLowerCase()])
    .filter(([seen, said]) => !said.includes(seen))"""
"""Names of controls for screen readers that lack their visible words."""


def settled(page: Page) -> Page:
    """The page, once it gets live updates."""
    page.wait_for_selector(LIVE)
    return page


def accessible(page: Page) -> None:
    """Fail on any finding of axe, and on a page that is wider than its window."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate(_UNLIKE_WHAT_IS_SEEN) == [], "WCAG 2.5.3: who says what is seen means the control"
    too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(too_wide), page.url


def row(page: Page, name: str) -> Any:
    """The table row, or the card, that begins with a name."""
    begins = re.compile(rf"^{name}\b")
    head = page.get_by_role("rowheader", name=begins).or_(page.get_by_role("heading", name=begins))
    return page.locator("tbody tr, .cards > li").filter(has=head)


def expect_words(page: Page, text: str) -> None:
    """Wait until the page shows a text."""
    expect(page.locator("body")).to_contain_text(text, timeout=WAIT * 1000)


def press(place: Page | Locator, button: str, text: str, *, exact: bool = False) -> None:
    """Click a button of a page, or of a part, and wait until the page shows a text."""
    place.get_by_role("button", name=button, exact=exact).click()
    expect_words(place if isinstance(place, Page) else place.page, text)
