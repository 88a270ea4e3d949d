"""The benchmarks of tokens and of answers' sizes, run as a developer runs them, on two small recorded lists."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SURFACES = ("category", "browse", "search", "load", "full")

AIM = ("--tool", "shed/count_spades", "--need", "count spades", "--arguments", '{"path": "."}')

WAIT = 180.0
"""Seconds for two daemons and a dozen conversations on a busy machine."""


def bench(*words: str, of: str = "tokens") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"bench.{of}", *words]
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
    done = bench(str(lists), *AIM)
    assert done.returncode == 0, (done.stdout, done.stderr)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 servers list 151 tools, 151 of them usable")
    totals = [line.split()[0] for line in lines if line.split()[1:2] == ["total"]]
    assert totals == list(SURFACES)
    assert sum(line.endswith("PASS") for line in lines) == 4 * (len(SURFACES) - 1)


@pytest.mark.e2e
def test_a_set_too_small_to_save_anything_misses_the_goal(lists: Path) -> None:
    (lists / "pond.json").unlink()
    done = bench(str(lists), *AIM)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert {line.split()[0] for line in done.stdout.splitlines() if line.endswith("FAIL")} == set(SURFACES[:-1])


@pytest.mark.e2e
def test_a_call_that_is_not_reached_is_no_measurement(lists: Path) -> None:
    done = bench(str(lists), "--tool", "shed/count_rakes")
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "no tool shed/count_rakes is listed" in done.stderr


def test_wrong_usage_says_what_is_wrong(lists: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    for words, said in (
        ([str(lists), "--tool", "barn/count"], "no list is named barn"),
        ([str(tmp_path_factory.mktemp("empty"))], "has no *.json"),
    ):
        done = bench(*words)
        assert done.returncode == 2
        assert said in done.stderr


def sizes_in(text: str) -> Iterator[tuple[str, int, int]]:
    """The rows of the table: a meta-tool, and its largest answer in tokens before and after."""
    for line in text.splitlines():
        name, *numbers = line.replace(",", "").split() or [""]
        if len(numbers) > 3 and numbers[0].isdigit() and numbers[1].isdigit():
            yield name, int(numbers[0]), int(numbers[1])


@pytest.mark.e2e
def test_no_answer_is_above_the_limit_and_what_it_was_stands_beside_it(lists: Path) -> None:
    done = bench(str(lists), of="answers")
    assert done.returncode == 0, (done.stdout, done.stderr)
    sizes = {name: (before, after) for name, before, after in sizes_in(done.stdout)}
    assert sizes["get-category-tools"][0] > 50_000
    assert all(after <= 8000 for _before, after in sizes.values())
    assert {"list_categories", "get_tools", "search_tools", "load_mcp_server", "load_mcp_tool"} <= sizes.keys()
