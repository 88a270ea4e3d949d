"""A house of one's own, with a short path that every user may enter."""

from pathlib import Path

import pytest

from tests.unit.checks.scenes import House


@pytest.fixture
def house(sockets: Path) -> House:
    sockets.chmod(0o755)
    return House(sockets)
