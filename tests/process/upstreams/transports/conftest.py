"""Shared by the transports over HTTP."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collect_here() -> Iterator[None]:
    """Collect the garbage of each test, which is young, or another module's test would be blamed."""
    yield
    gc.collect(1)
