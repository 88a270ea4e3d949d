"""One browser for all tests, and one daemon for the tests that change nothing for others."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.driving import Here, close_windows, console
from tests.e2e.conftest import forks
from tests.e2e.harness import chromium

__all__ = ["forks"]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # The sandbox needs what containers do not give to root; nothing from elsewhere is opened here.
        browser = playwright.chromium.launch(
            executable_path=chromium(),
            args=["--no-sandbox", "--disable-gpu", "--disable-gpu-rasterization", "--in-process-gpu"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def here(browser: Browser) -> Iterator[Here]:
    with console(browser) as opened:
        yield opened


@pytest.fixture(autouse=True)
def windows(browser: Browser) -> Iterator[None]:
    """Close each test's windows with it."""
    yield
    close_windows(browser, visitors=False)
