"""`make test` runs the tests in two processes: what runs apart, and what is said at the end."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HALVES = runpy.run_path(str(ROOT / "scripts" / "halves"))


def test_what_runs_apart_is_there() -> None:
    assert all((ROOT / each).is_dir() for each in HALVES["APART"])


@pytest.mark.parametrize(
    ("said", "counts"),
    [
        ("....\n4 passed in 0.10s\n", {"passed": 4}),
        (
            "===== 1 failed, 2 passed, 3 errors in 61.00s (0:01:01) =====\n",
            {"failed": 1, "passed": 2, "errors": 3},
        ),
        ("5 deselected in 0.02s\n", {"deselected": 5}),
        ("3 passed in 1.00s\nlater: 1 failed in 2.00s\n", {"failed": 1}),
        ("Fatal Python error: Segmentation fault\n", {}),
        ("", {}),
    ],
)
def test_the_last_line_of_a_run_is_counted(said: str, counts: dict[str, int]) -> None:
    assert HALVES["counted"](said) == counts
