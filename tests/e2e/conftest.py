"""Fixtures for all tests with a real daemon."""

from collections.abc import Iterator

import pytest

from tests.e2e.forking import FORKS
from tests.e2e.scripts import PYTHON, Clients, Processes


@pytest.fixture(scope="package", autouse=True)
def forks() -> Iterator[None]:
    """Allow forking of daemons; afterwards no child is left for other tests to find."""
    FORKS.start()
    yield
    FORKS.stop()


@pytest.fixture(scope="package")
def sdks() -> Iterator[Processes]:
    """Clients on the SDKs, which follow scripts: a start takes two seconds, so all tests share them."""
    processes = Processes()
    yield processes
    processes.end()


@pytest.fixture(scope="package")
def clients(sdks: Processes) -> Clients:
    """A client on the Python SDK."""
    return sdks[PYTHON]
