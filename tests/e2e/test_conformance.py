"""The official conformance suite against `/mcp`, in both revisions.

What a daemon without the suite's own tools, resources and prompts cannot pass is named in a file for each
revision, by scenario or by check. The suite fails when anything else fails, and when one of these passes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conforming import BASELINES, REVISIONS, documented, opened, run_suite
from tests.e2e.harness import ROOT, Daemon, scripted, serving
from tests.e2e.raw_http import HttpDoor
from tests.pairwise import at_night

DOCUMENT = ROOT / "docs" / "protocol.md"


@pytest.fixture(scope="module")
def door() -> HttpDoor:
    return HttpDoor()


@pytest.fixture(scope="module")
def daemon(door: HttpDoor) -> Iterator[Daemon]:
    config = {"mcpServers": {"work": scripted(tools=["echo"])}, "listen": door.listen}
    with serving(config) as daemon:
        yield daemon


@pytest.mark.parametrize("revision", at_night(REVISIONS, REVISIONS[-1]))
async def test_the_conformance_suite_fails_nothing_that_needs_no_fixture_of_its_own(
    daemon: Daemon, door: HttpDoor, revision: str, tmp_path: Path
) -> None:
    async with opened(door) as url:
        words = ["server", "--url", url, "--requirements", revision]
        words += ["--expected-failures", str(BASELINES / f"{revision}.yml"), "--output-dir", str(tmp_path)]
        report = await run_suite(*words)

    assert report.status == 0, report.said + daemon.said()
    passed = [each for each in report.scenarios if each.is_good and each.passed]
    assert documented(DOCUMENT, revision) == [len(passed), len(report.scenarios), *report.checks]
