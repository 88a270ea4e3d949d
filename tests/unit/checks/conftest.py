"""A house of one's own, with a short path that every user may enter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.checks.scenes import House

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def house(sockets: Path) -> House:
    sockets.chmod(0o755)
    return House(sockets)
