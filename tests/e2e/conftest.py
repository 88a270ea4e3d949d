"""What all tests with a real daemon share."""

from collections.abc import Iterator

import pytest

from tests.e2e.forking import FORKS
from tests.e2e.scripts import PYTHON, Clients, Processes


@pytest.fixture(scope="package", autouse=True)
def forks() -> Iterator[None]:
    """Daemons are forked here; afterwards no child is left that other tests would find."""
    FORKS.start()
    yield
    FORKS.stop()


@pytest.fixture(scope="package")
def sdks() -> Iterator[Processes]:
    """Clients on the SDKs, which follow scripts: starting one costs two seconds, so all tests share them."""
    processes = Processes()
    yield processes
    processes.end()


@pytest.fixture(scope="package")
def clients(sdks: Processes) -> Clients:
    """A client on the Python SDK."""
    return sdks[PYTHON]
