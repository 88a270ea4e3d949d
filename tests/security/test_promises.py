"""The table of promises in `docs/security.md` names code and tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (S\d+) \|(.+)\|(.+)\|(.+)\|$", re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")

ROWS = {number: rest for number, *rest in ROW.findall((ROOT / "docs" / "security.md").read_text())}
EXPECTED = [*(f"S{number}" for number in range(1, 13)), "S14", *(f"S{number}" for number in range(16, 49))]


@cache
def defined_in(path: str) -> frozenset[str]:
    """The tests of a file."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_each_promise_is_in_the_table() -> None:
    assert list(ROWS) == EXPECTED


@pytest.mark.parametrize("number", EXPECTED)
def test_a_promise_is_kept_by_code_that_exists_and_held_by_tests_that_exist(number: str) -> None:
    promise, kept, held = ROWS[number]
    assert promise.strip()
    places, tests = QUOTED.findall(kept), QUOTED.findall(held)
    assert places
    assert tests
    assert not [place for place in places if not (ROOT / place).is_file()]
    for test in tests:
        path, _, name = test.partition("::")
        assert name in defined_in(path), test
