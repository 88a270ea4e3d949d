"""The official conformance suite against its own server behind mcpd: what passes directly passes through mcpd.

The server is the Python SDK's, which fails nothing that a revision scores; so nothing scored may fail here, and
there is no list of failures that are expected.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conforming import (
    FIXTURE,
    REVISIONS,
    documented,
    fixture_command,
    fixture_over_stdio,
    opened,
    run_suite,
)
from tests.e2e.harness import ROOT, Daemon, free_port, running
from tests.e2e.raw_http import HttpDoor
from tests.pairwise import each_once
from tests.waiting import WAIT

ROWS = {"stdio": "over stdio", "http": "over streamable HTTP"}
DOCUMENT = ROOT / "docs" / "protocol.md"

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


@pytest.fixture(scope="module")
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def daemon(transport: str, door: HttpDoor) -> Iterator[Daemon]:
    with ExitStack() as stack:
        entry: dict[str, Any] = fixture_over_stdio()
        if transport == "http":
            port = free_port()
            stack.enter_context(_listening(port))
            entry = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        config = {"mcpServers": {"fixture": entry}, "listen": door.listen}
        daemon = stack.enter_context(running(config))
        daemon.ready()
        yield daemon


@pytest.mark.parametrize(("transport", "revision"), each_once([*ROWS], REVISIONS), indirect=["transport"])
async def test_what_the_suite_scores_passes_through_mcpd(
    daemon: Daemon, door: HttpDoor, transport: str, revision: str, tmp_path: Path
) -> None:
    async with opened(door, "default", "full") as url:
        report = await run_suite(
            "server", "--url", url, "--requirements", revision, "--output-dir", str(tmp_path)
        )

    failed = [each.name for each in report.scored if not each.is_good]
    assert failed == [], report.said + daemon.said()
    counted = [len(report.scored) - len(failed), len(report.scored)]
    assert counted == documented(DOCUMENT, ROWS[transport])[2 * REVISIONS.index(revision) :][:2]
    if revision in ALL_PASS:
        assert (report.failed, len(report.scenarios)) == ([], ALL_PASS[revision])
