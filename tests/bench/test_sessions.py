"""The benchmark of sessions, run as a developer runs it, on a few of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.sessions import BOUNDS

ROOT = Path(__file__).parents[2]

PATIENCE = 120.0
"""Seconds for one run, which takes some; on a busy machine a few times that."""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "bench/sessions.py", "--sessions", "60", "--tools", "200", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.e2e
def test_every_cost_is_printed_beside_its_bound() -> None:
    ran = run("--loose", "1e4")
    assert (ran.returncode, ran.stderr) == (0, "")
    for what, (_bound, unit) in BOUNDS.items():
        assert re.search(rf"^{re.escape(what)} +[\d.]+ {unit} +[\d,]+ {unit} *$", ran.stdout, re.MULTILINE), (
            what
        )


@pytest.mark.e2e
def test_a_bound_that_is_not_kept_is_named_and_fails() -> None:
    ran = run("--loose", "0")
    assert ran.returncode == 1
    assert "not kept: " in ran.stderr
    assert ran.stdout.count("EXCEEDED") > len(BOUNDS) / 2
