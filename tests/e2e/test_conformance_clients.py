"""The official conformance suite with mcpd as the client: what the SDK's own client passes, mcpd passes.

In scenarios in which a user logs in, somebody runs `mcpd login`, in a browser that agrees to everything; in
those without a user the entry has `auth`. What mcpd cannot log in with is listed among the expected failures.
"""

import sys
import tomllib
from pathlib import Path

import pytest

from tests.e2e.conforming import BASELINES, REVISIONS, run_suite
from tests.e2e.driving import DRIVER, driven

BOUND_TO_KEYS = {"auth/dpop", "auth/dpop-nonce"}
"""An extension of the protocol that mcpd does not have: `conformance/*.yml` says why."""

PASSED = tomllib.loads((BASELINES / "sdk_client.toml").read_text())
"""The checks that the SDK's client passes without mcpd, by revision and scenario."""


@pytest.mark.nightly
@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_the_sdks_client_passes_passes_with_mcpd_as_the_client(
    revision: str, tmp_path: Path, sockets: Path
) -> None:
    words = ["client", "--command", f"{sys.executable} -S {DRIVER}", "--requirements", revision]
    words += ["--expected-failures", str(BASELINES / f"{revision}.yml"), "--output-dir", str(tmp_path)]
    async with driven(sockets) as environ:
        report = await run_suite(*words, environ=environ)

    assert report.status == 0, report.said
    here = {each.name: each for each in report.scenarios if each.name not in BOUND_TO_KEYS}
    assert [name for name, each in here.items() if not each.is_good] == []
    # A scenario checks each method that it sees, and mcpd uses more of them than a client has to.
    fewer = {name: each.passed for name, each in here.items() if each.passed < PASSED[revision][name]}
    assert fewer == {}
    assert here.keys() == PASSED[revision].keys()
