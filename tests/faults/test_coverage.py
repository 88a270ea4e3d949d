"""The list of what catches which failure is whole, and each test that it names exists."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.faults.test_matrix import CASES, ROWS

ROOT = Path(__file__).parents[2]


@cache
def functions_of(path: str) -> frozenset[str]:
    """The test functions of a file; none if there is no such file."""
    file = ROOT / path
    tree = ast.parse(file.read_text() if file.exists() else "")
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def exists(test: str) -> bool:
    """Whether there is a test, or a case of the matrix, of this name."""
    path, separator, name = test.partition("::")
    return name in functions_of(path) if separator else test in CASES


def test_each_named_test_exists_and_a_row_without_one_has_a_note() -> None:
    rows = [row for table in ROWS.values() for row in table]
    assert [test for row in rows for test in row.get("tests", ()) if not exists(test)] == []
    assert [row["what"] for row in rows if not (row.get("tests") or row.get("note"))] == []


def test_the_fifty_are_fifty() -> None:
    assert [int(row["what"].split()[0]) for row in ROWS["fifty"]] == list(range(1, 51))


def test_a_name_that_does_not_exist_is_found() -> None:
    assert exists("tests/faults/test_coverage.py::test_the_fifty_are_fifty")
    assert not exists("tests/faults/test_coverage.py::test_nobody")
    assert not exists("tests/nobody.py::test_the_fifty_are_fifty")
    assert exists("stdio: killed while idle")
    assert not exists("stdio: nobody")
