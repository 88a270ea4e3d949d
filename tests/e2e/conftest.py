"""What all tests with a real daemon share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.forking import FORKS
from tests.e2e.scripts import Clients

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package", autouse=True)
def forks() -> Iterator[None]:
    """Daemons are forked here; afterwards no child is left that other tests would find."""
    FORKS.start()
    yield
    FORKS.stop()


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """Clients on the SDKs, which follow scripts; their processes serve all tests of a file."""
    with Clients() as clients:
        yield clients
