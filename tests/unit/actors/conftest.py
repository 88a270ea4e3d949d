"""The disk below a recorder."""

import pytest

from tests.unit.state.scripted_store import Disk


@pytest.fixture
def disk() -> Disk:
    """Empty, and nothing goes wrong until the test says so."""
    return Disk()
