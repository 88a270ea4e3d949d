"""Tables of cases in files beside the tests: texts and entries that a test goes through are data."""

import json
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

Test = TypeVar("Test", bound="Callable[..., Any]")


def cases(*names: str, raw: Collection[str] = ()) -> Callable[[Test], Test]:
    """Run a test with each row below its name in `cases/MODULE.jsonl`, which holds a JSON value a line.

    The values named `raw` are bytes: a byte that is no UTF-8 is written as a lone surrogate.
    """

    def of(test: Test) -> Test:
        rows = rows_of(Path(test.__code__.co_filename), test.__name__.removeprefix("test_"))
        if raw:
            found = [dict(zip(names, row if len(names) > 1 else [row], strict=True)) for row in rows]
            rows = [[_bytes(value) if name in raw else value for name, value in row.items()] for row in found]
            rows = rows if len(names) > 1 else [value for (value,) in rows]
        made: Test = pytest.mark.parametrize(names if len(names) > 1 else names[0], rows)(test)
        return made

    return of


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
