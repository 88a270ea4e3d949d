"""What the tests of all doors stand on."""

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from loguru import logger

from tests.unit.clients.doors.opened import listen


@pytest.fixture
def path() -> Iterator[Path]:
    """Short: the path of a unix socket has 107 bytes at most, pytest's own directories may be longer."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        yield Path(directory) / "front.sock"


@pytest.fixture
def listener(path: Path) -> Iterator[socket.socket]:
    with listen(path, socket.socket) as listener:
        yield listener


@pytest.fixture
def log() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lines.append, format="{level} {message} {exception}")
    yield lines
    logger.remove(sink)
