"""The official conformance suite against `/mcp`, in both revisions.

What a daemon without the suite's own tools, resources and prompts cannot pass is named in a file for each
revision, by scenario or by check. The suite fails when anything else fails, and when one of these passes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from tests.e2e.carrying import carrying
from tests.e2e.doors import HttpDoor
from tests.e2e.harness import NODE, NODE24, ROOT, Daemon, running, scripted
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

SUITE = NODE / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
BASELINES = Path(__file__).parent / "conformance"
DOCUMENT = ROOT / "docs" / "performance.md"


@pytest.fixture(scope="module")
def door() -> HttpDoor:
    return HttpDoor()


@pytest.fixture(scope="module")
def daemon(door: HttpDoor) -> Iterator[Daemon]:
    config = {"mcpServers": {"work": scripted(tools=["echo"])}, "listen": door.listen}
    with running(config) as daemon:
        daemon.ready()
        yield daemon


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_conformance_suite_fails_nothing_that_needs_no_fixture_of_its_own(
    daemon: Daemon, door: HttpDoor, revision: str, tmp_path: Path
) -> None:
    async with carrying(f"Authorization: {door.headers()['Authorization']}", door.port) as port:
        words = ["server", "--url", f"http://127.0.0.1:{port}/mcp", "--requirements", revision]
        words += ["--expected-failures", str(BASELINES / f"{revision}.yml"), "--output-dir", str(tmp_path)]
        with trio.fail_after(WAIT):
            done = await trio.run_process(
                [NODE24, str(SUITE), *words], capture_stdout=True, capture_stderr=True, check=False
            )

    said = done.stdout.decode()
    assert done.returncode == 0, f"{said}{done.stderr.decode()}{daemon.said()}"
    assert _documented(revision) == _counted(said)


def _counted(said: str) -> list[int]:
    """How many scenarios passed, of how many that ran, and how many checks of how many."""
    scenarios: list[tuple[str, str]] = re.findall(
        r"^[✓✗] [\w-]+: (\d+) passed, (\d+) failed", said, re.MULTILINE
    )
    passed = [each for each in scenarios if int(each[0]) and not int(each[1])]
    total = re.search(r"^Total: (\d+) passed, (\d+) failed", said, re.MULTILINE)
    assert total is not None, said
    return [len(passed), len(scenarios), int(total[1]), int(total[1]) + int(total[2])]


def _documented(revision: str) -> list[int]:
    """The same, as the table in docs/performance.md has it."""
    row = re.search(
        rf"^\| {revision} \| (\d+) of (\d+) \| (\d+) of (\d+) \|", DOCUMENT.read_text(), re.MULTILINE
    )
    assert row is not None, revision
    return [int(number) for number in row.groups()]
