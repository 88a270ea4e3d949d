"""Sizes that every module, class and function keeps; what only falls is counted by `scripts/house`."""

import runpy
from collections.abc import Iterable, Iterator
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.modules import Module

ROOT = Path(__file__).parents[2]
HOUSE = runpy.run_path(str(ROOT / "scripts" / "house"))
"""Counts; `test_house.py` tests the counting."""

LONG_FUNCTION, MEDIAN_FUNCTION = 30, 8


@pytest.fixture(scope="module")
def house() -> Any:
    return HOUSE["House"](ROOT, {})


def percentile_90(lengths: list[int]) -> int:
    return sorted(lengths)[ceil(0.9 * len(lengths)) - 1]


def function_faults(modules: Iterable[Module]) -> Iterator[str]:
    lengths = [length for module in modules for _, length in module.functions()]
    if (long := percentile_90(lengths)) > LONG_FUNCTION:
        yield f"the 90th percentile of functions has {long} lines, over {LONG_FUNCTION}"
    if (middle := median(lengths)) > MEDIAN_FUNCTION:
        yield f"the median function has {middle} lines, over {MEDIAN_FUNCTION}"


def package_faults(tests: set[str]) -> Iterator[str]:
    """Without an __init__.py a second test_model.py would be a module of the same name: one would not run."""
    for path in sorted(tests):
        if Path(path).name.startswith("test_") and str(Path(path).parent / "__init__.py") not in tests:
            yield f"{path} is in a folder without __init__.py"


@pytest.mark.parametrize(
    "count", ["long_functions", "long_modules", "wide_constructors", "repeated_class_names"]
)
def test_none_is_over_a_limit(house: Any, count: str) -> None:
    over = getattr(house, count)()
    assert not over, "\n".join(over)


def test_the_functions_of_the_daemon_are_short(house: Any) -> None:
    faults = list(function_faults(house.daemon.values()))
    assert not faults, "\n".join(faults)


def test_each_folder_of_tests_is_a_package() -> None:
    faults = list(package_faults({str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py")}))
    assert not faults, "\n".join(faults)


def function(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


SHORT = function(2) * 20


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        (SHORT + function(31) * 2, 0),
        (SHORT + function(31) * 3, 1),
        (SHORT + function(31).replace("def", "async def") * 3, 1),
        (SHORT + function(30).replace("():\n", '():\n    """Two\n    lines."""\n') * 3, 0),
        (function(8), 0),
        (function(9), 1),
        (function(9) + "def stub(): ...\n" * 20, 1),
    ],
)
def test_functions_are_counted(source: str, faults: int) -> None:
    assert len(list(function_faults([Module("daemon.a", source)]))) == faults


def test_a_folder_without_init_is_found() -> None:
    assert not list(package_faults({"tests/a/test_b.py", "tests/a/__init__.py"}))
    assert len(list(package_faults({"tests/a/test_b.py", "tests/__init__.py"}))) == 1
