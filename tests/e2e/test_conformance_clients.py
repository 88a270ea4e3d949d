"""The official conformance suite with mcpd as the client: what the SDK's own client passes, mcpd passes.

Scenarios in which a client logs in to a server are listed as expected failures: mcpd sends the tokens that it
is given.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.conforming import BASELINES, REVISIONS, run_suite
from tests.e2e.driving import DRIVER, driven

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_needs_no_login_passes_with_mcpd_as_the_client(
    revision: str, tmp_path: Path, sockets: Path
) -> None:
    words = ["client", "--command", f"{sys.executable} -S {DRIVER}", "--requirements", revision]
    words += ["--expected-failures", str(BASELINES / f"{revision}.yml"), "--output-dir", str(tmp_path)]
    async with driven(sockets) as environ:
        report = await run_suite(*words, environ=environ)

    assert report.status == 0, report.said
    assert [name for name in report.failed if not name.startswith("auth/")] == []
