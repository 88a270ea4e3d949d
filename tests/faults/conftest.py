"""The seed of what is left to chance here: told with every failure, taken from MCPD_SEED."""

import os
import random
import secrets
import tempfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.faults.arena import Arena, arena

SEED = int(os.environ.get("MCPD_SEED") or secrets.randbelow(2**32))
"""Of this run."""


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """What chance comes from, in this test: the same for the same seed, whichever other tests run."""
    return random.Random(SEED ^ zlib.crc32(request.node.nodeid.encode()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say how to have the same chance again."""
    report = yield
    if report.failed:
        report.sections.append(("seed", f"MCPD_SEED={SEED} pytest {report.nodeid!r} has the same chance again"))
    return report


@pytest.fixture(scope="module")
def stage_for_all() -> Iterator[Arena]:
    """One daemon for all cases of a module."""
    with arena() as found:
        yield found


@pytest.fixture(scope="module")
def short_path_for_all() -> Iterator[Path]:
    """Likewise, for a module."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        yield Path(directory)
