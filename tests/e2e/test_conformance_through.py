"""The official conformance suite against its own server behind mcpd: what passes directly passes through mcpd.

The server is the Python SDK's, which fails nothing that a revision scores; so nothing scored may fail here, and
there is no list of failures that are expected.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.conforming import (
    FIXTURE,
    REVISIONS,
    fixture_command,
    fixture_over_stdio,
    opened,
    run_suite,
)
from tests.e2e.doors import HttpDoor
from tests.e2e.harness import Daemon, free_port, running
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

SCORED = {"2025-11-25": 30, "2026-07-28": 37}
"""How many scenarios for servers a revision requires."""

ALL_PASS = {"2025-11-25": 33}
"""Where all that run pass directly, unscored ones too; for the newer one the SDK lacks an extension (tasks)."""


@contextmanager
def _listening(port: int) -> Iterator[None]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(FIXTURE)}
    with subprocess.Popen(
        fixture_command(port), env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as it:
        try:
            yield
        finally:
            it.kill()
            it.wait(WAIT)


@pytest.fixture(scope="module")
def door() -> HttpDoor:
    return HttpDoor()


@pytest.fixture(scope="module", params=["stdio", "http"])
def daemon(request: pytest.FixtureRequest, door: HttpDoor) -> Iterator[Daemon]:
    with ExitStack() as stack:
        entry: dict[str, Any] = fixture_over_stdio()
        if request.param == "http":
            port = free_port()
            stack.enter_context(_listening(port))
            entry = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        config = {"mcpServers": {"fixture": entry}, "listen": door.listen}
        daemon = stack.enter_context(running(config))
        daemon.ready()
        yield daemon


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_the_suite_scores_passes_through_mcpd(
    daemon: Daemon, door: HttpDoor, revision: str, tmp_path: Path
) -> None:
    async with opened(door, "default", "full") as url:
        report = await run_suite(
            "server", "--url", url, "--requirements", revision, "--output-dir", str(tmp_path)
        )

    assert [each.name for each in report.scored if not each.is_good] == [], report.said + daemon.said()
    assert len(report.scored) == SCORED[revision]
    if revision in ALL_PASS:
        assert (report.failed, len(report.scenarios)) == ([], ALL_PASS[revision])
