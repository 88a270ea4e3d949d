"""One browser for all tests, one daemon for those that change nothing that others look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.driving import Here, chromium, close_windows, console
from tests.e2e.forking import FORKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser


@pytest.fixture(scope="package", autouse=True)
def forks() -> Iterator[None]:
    """Daemons are forked here, too."""
    FORKS.start()
    yield
    FORKS.stop()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # The sandbox needs what containers do not give to root; nothing from elsewhere is opened here.
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu", "--disable-gpu-rasterization"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def here(browser: Browser) -> Iterator[Here]:
    with console(browser) as opened:
        yield opened


@pytest.fixture(autouse=True)
def windows(browser: Browser) -> Iterator[None]:
    """Each test's windows are closed with it."""
    yield
    close_windows(browser, visitors=False)
