"""A unit test starts no process and uses no network: one that does is in tests/process, or is so marked."""

import socket
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}
"""What the interpreter tells of processes that are started (audit events)."""

REACHES = {"socket.bind", "socket.connect"}

_watched: list[str] = []
"""The test that runs now, unless it may do all this."""


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched or event not in STARTS | REACHES:
        return
    if event in REACHES and getattr(arguments[0], "family", None) == socket.AF_UNIX:
        return
    raise RuntimeError(f"{_watched[0]} is a unit test, and this is {event}: see tests/unit/conftest.py")


sys.addaudithook(_watch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Watch the test itself; what its fixtures start, a database say, has a marker of its own."""
    if item.get_closest_marker("process") is None and item.get_closest_marker("e2e") is None:
        _watched.append(item.nodeid)
    try:
        return (yield)
    finally:
        _watched.clear()


_numbers = count()


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By a number: pytest's own looks at the names of all others, which are thousands, and makes a link."""
    return tmp_path_factory.mktemp(str(next(_numbers)), numbered=False)
