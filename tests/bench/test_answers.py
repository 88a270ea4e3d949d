"""The benchmark of answers' sizes, run as a developer runs it, on two small recorded lists."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.bench.test_tokens import WAIT, tool

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.answers", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT, check=False)


def sizes_in(text: str) -> Iterator[tuple[str, int, int]]:
    """The rows of the table: a meta-tool, and its largest answer in tokens before and after."""
    for line in text.splitlines():
        name, *numbers = line.replace(",", "").split() or [""]
        if len(numbers) > 3 and numbers[0].isdigit() and numbers[1].isdigit():
            yield name, int(numbers[0]), int(numbers[1])


@pytest.mark.e2e
def test_no_answer_is_above_the_limit_and_what_it_was_stands_beside_it(tmp_path: Path) -> None:
    lists = {
        "shed": [tool("count_spades", "Counts the spades in a shed.")],
        "pond": [tool(f"fish_{number}", "Catches a fish. " * 100) for number in range(150)],
    }
    for name, tools in lists.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"tools": tools}))
    done = bench(str(tmp_path))
    assert done.returncode == 0, (done.stdout, done.stderr)
    sizes = {name: (before, after) for name, before, after in sizes_in(done.stdout)}
    assert sizes["get-category-tools"][0] > 50_000
    assert all(after <= 8000 for _before, after in sizes.values())
    assert {"list_categories", "get_tools", "search_tools", "load_mcp_server", "load_mcp_tool"} <= sizes.keys()


def test_a_directory_without_lists_is_wrong_usage(tmp_path: Path) -> None:
    done = bench(str(tmp_path))
    assert done.returncode == 2
    assert "has no *.json" in done.stderr
