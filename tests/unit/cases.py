"""Tables of cases in files beside the tests: texts and entries that a test goes through are data."""

import json
from collections.abc import Callable, Collection
from functools import cache, update_wrapper
from inspect import iscoroutinefunction, signature
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

Test = TypeVar("Test", bound="Callable[..., Any]")


def cases(*names: str, raw: Collection[str] = ()) -> Callable[[Test], Test]:
    """Run a test with each row below its name in `cases/MODULE.jsonl`, which holds a JSON value a line.

    The values named `raw` are bytes: a byte that is no UTF-8 is written as a lone surrogate.
    A test of values alone, without fixtures, is one test of all rows: most rows take less time than the runner
    takes for a test.
    """

    def of(test: Test) -> Test:
        found = rows_of(Path(test.__code__.co_filename), test.__name__.removeprefix("test_"))
        found = found if len(names) > 1 else [[value] for value in found]
        rows = [
            {name: _bytes(value) if name in raw else value for name, value in zip(names, row, strict=True)}
            for row in found
        ]
        if {*signature(test).parameters} == {*names} and not iscoroutinefunction(test):
            return _together(test, rows)
        values = [[*row.values()] if len(names) > 1 else row[names[0]] for row in rows]
        made: Test = pytest.mark.parametrize(names if len(names) > 1 else names[0], values)(test)
        return made

    return of


def _together(test: Test, rows: list[dict[str, Any]]) -> Test:
    """One test of all rows, which fails with the failure of each row."""

    def every() -> None:
        failures = []
        for row in rows:
            try:
                test(**row)
            except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - all are raised below
                failure.add_note(f"with {row!r}")
                failures.append(failure)
        if failures:
            raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} rows", failures)

    made: Any = update_wrapper(every, test)
    del made.__wrapped__  # by which pytest would find the parameters
    return cast("Test", made)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode(errors="surrogateescape")


def rows_of(test_file: Path, name: str) -> list[Any]:
    """The rows below `# name` in the file of cases that belongs to a test's file."""
    return _tables(test_file.parent / "cases" / f"{test_file.stem.removeprefix('test_')}.jsonl")[name]


@cache
def _tables(path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    rows: list[Any] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            rows = found.setdefault(line[2:], [])
        elif line:
            rows.append(json.loads(line))
    return found
