"""The token benchmark, run as a developer runs it, on two small recorded lists."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SURFACES = ("category", "browse", "search", "load", "full")

WAIT = 180.0
"""Seconds for two daemons and a dozen conversations on a busy machine."""


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.tokens", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT, check=False)


def tool(name: str, description: str) -> dict[str, Any]:
    properties = {"path": {"type": "string", "description": "Where to look."}}
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": ["path"]},
    }


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    fixtures = {
        "Shed": [tool("count_spades", "Counts the spades in a shed.")],
        "pond": [tool(f"fish_{number}", "Catches a fish. " * 100) for number in range(150)],
    }
    for name, tools in fixtures.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"tools": tools}, indent=1))
    return tmp_path


@pytest.mark.e2e
def test_every_surface_is_measured_and_reaches_the_call(lists: Path) -> None:
    aim = ("--tool", "shed/count_spades", "--need", "count spades", "--arguments", '{"path": "."}')
    done = bench(str(lists), *aim)
    assert done.returncode == 0, (done.stdout, done.stderr)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 servers list 151 tools, 151 of them usable")
    totals = [line.split()[0] for line in lines if line.split()[1:2] == ["total"]]
    assert totals == list(SURFACES)
    assert sum(line.endswith("PASS") for line in lines) == 4 * (len(SURFACES) - 1)


@pytest.mark.e2e
def test_a_set_too_small_to_save_anything_misses_the_goal(lists: Path) -> None:
    (lists / "pond.json").unlink()
    done = bench(
        str(lists), "--tool", "shed/count_spades", "--need", "count spades", "--arguments", '{"path": "."}'
    )
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert {line.split()[0] for line in done.stdout.splitlines() if line.endswith("FAIL")} == set(SURFACES[:-1])


@pytest.mark.e2e
def test_a_call_that_is_not_reached_is_no_measurement(lists: Path) -> None:
    done = bench(str(lists), "--tool", "shed/count_rakes")
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "no tool shed/count_rakes is listed" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tool", "barn/count"], "no list is named barn"),
        (["--copies", "0"], "'0' is not a number over 0"),
        (["--arguments", "[]"], "'[]' is not a JSON object"),
    ],
)
def test_wrong_usage_says_what_is_wrong(lists: Path, words: list[str], said: str) -> None:
    done = bench(str(lists), *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_directory_without_lists_is_wrong_usage(tmp_path: Path) -> None:
    done = bench(str(tmp_path))
    assert done.returncode == 2
    assert "has no *.json" in done.stderr


def test_help_has_an_example_and_the_exit_statuses() -> None:
    done = bench("--help")
    assert done.returncode == 0
    assert "example:\n  python -m bench.tokens" in done.stdout
    assert "exit status:" in done.stdout
