"""Seed 002 §12 and §13, line by line: which tests stand for each (`seed_002.toml`), and that they are there."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LINES = tomllib.loads(Path(__file__).with_name("seed_002.toml").read_text())


@pytest.mark.parametrize("line", LINES)
def test_each_line_of_the_seed_has_its_tests(line: str) -> None:
    for name, tests in LINES[line].items():
        tree = ast.parse((TESTS / name).read_text())
        there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert set(tests) <= there, name


def test_no_line_is_left_out() -> None:
    numbers = [line.split()[0] for line in LINES]
    unit, integration = [f"12.1.{n}" for n in range(1, 5)], [f"12.2.{n}" for n in range(1, 6)]
    assert numbers == [*unit, *integration, "12.3.1", *(f"13.{n}" for n in range(1, 7))]
