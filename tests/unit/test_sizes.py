"""Limits on the size of modules, functions, classes and constructors that a reviewer would forget to count."""

import ast
import runpy
from collections.abc import Iterator, Mapping
from functools import cache
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent

LONGEST_FUNCTION, LONG_FUNCTION, MEDIAN_FUNCTION = 50, 30, 8

parsed = cache(ast.parse)
"""Several rules look at the whole tree."""


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Name and length of every function that does something; a nested one also counts for its host."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = _without_docstring(node)
            # A stub of a Protocol is no short function: counting them would make room for long ones.
            if any(not _is_stub(statement) for statement in body):
                yield f"{node.name}:{node.lineno}", _length(node, body)


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node) is not None else node.body


def _is_stub(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef, body: list[ast.stmt]) -> int:
    docstring = node.body[0]
    spared = 0 if body is node.body else (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return (node.end_lineno or node.lineno) - node.lineno + 1 - spared


def percentile_90(lengths: list[int]) -> int:
    return sorted(lengths)[ceil(0.9 * len(lengths)) - 1]


def function_faults(sources: Mapping[str, str]) -> Iterator[str]:
    lengths: list[int] = []
    for path, source in sources.items():
        for name, length in functions(source):
            lengths.append(length)
            if length > LONGEST_FUNCTION:
                yield f"{path}: {name} has {length} lines, over {LONGEST_FUNCTION}"
    if (long := percentile_90(lengths)) > LONG_FUNCTION:
        yield f"the 90th percentile of functions has {long} lines, over {LONG_FUNCTION}"
    if (middle := median(lengths)) > MEDIAN_FUNCTION:
        yield f"the median function has {middle} lines, over {MEDIAN_FUNCTION}"


def package_faults(tests: set[str]) -> Iterator[str]:
    """Without an __init__.py a second test_model.py would be a module of the same name: one would not run."""
    for path in sorted(tests):
        if Path(path).name.startswith("test_") and str(Path(path).parent / "__init__.py") not in tests:
            yield f"{path} is in a folder without __init__.py"


@cache
def daemon() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "daemon").rglob("*.py")}


def our_tests() -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py")}


def test_the_functions_of_the_daemon_are_short() -> None:
    faults = list(function_faults(daemon()))
    assert not faults, "\n".join(faults)


def test_each_folder_of_tests_is_a_package() -> None:
    faults = list(package_faults(our_tests()))
    assert not faults, "\n".join(faults)


HOUSE = runpy.run_path(str(ROOT / "scripts" / "house"))
"""How classes, rooms and floors are counted, and their limits; `test_house.py` tests the counting."""


@pytest.fixture(scope="module")
def modules() -> Any:
    return HOUSE["modules"](ROOT, "daemon")


@pytest.mark.parametrize(("count", "limit"), [("methods", "METHODS"), ("parameters", "PARAMETERS")])
def test_classes_are_small_and_constructors_narrow(modules: Any, count: str, limit: str) -> None:
    counted = HOUSE[count](modules)
    assert counted
    assert not [each for each in counted if each[0] > HOUSE[limit]]


def test_no_module_is_longer_than_a_chapter(modules: Any) -> None:
    assert not [each for each in HOUSE["lines"](modules) if each[0] > HOUSE["LINES"]]


def test_a_class_name_means_one_class(modules: Any) -> None:
    assert not HOUSE["twice"](modules)


def test_few_modules_are_loose_and_rooms_are_few_floors_high(modules: Any) -> None:
    loose = [each.name for each in modules if each.name.count(".") == 1 and each.path.name != "__init__.py"]
    assert 0 < len(loose) <= HOUSE["LOOSE"], loose
    floors, is_circle = HOUSE["floors"](modules)
    assert not is_circle, floors
    assert 0 < len(floors) <= HOUSE["FLOORS"], floors


def function(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


SHORT = function(2) * 20


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        (SHORT + function(50), 0),
        (SHORT + function(51), 1),
        (SHORT + function(51).replace("def", "async def"), 1),
        (SHORT + function(50).replace("():\n", '():\n    """Two\n    lines."""\n'), 0),
        (SHORT + function(31) * 2, 0),
        (SHORT + function(31) * 3, 1),
        (function(8), 0),
        (function(9), 1),
        (function(9) + "def stub(): ...\n" * 20, 1),
    ],
)
def test_functions_are_counted(source: str, faults: int) -> None:
    assert len(list(function_faults({"a": source}))) == faults


def test_a_folder_without_init_is_found() -> None:
    assert not list(package_faults({"tests/a/test_b.py", "tests/a/__init__.py"}))
    assert len(list(package_faults({"tests/a/test_b.py", "tests/__init__.py"}))) == 1
