"""`make test` runs the tests in parts: no test in none of them or in two, and what is said at the end."""

import runpy
from collections import Counter
from pathlib import Path

import pytest

from tests.printing import out_of
from tests.unit.cases import cases

ROOT = Path(__file__).parents[2]
ON_THEIR_OWN = {"bare", "systemd"}
"""Folders whose tests run on a machine that they take for themselves."""

PARTS = runpy.run_path(str(ROOT / "scripts" / "parts"))


@pytest.mark.parametrize(("unit", "folder"), [(False, "tests"), (True, "tests/unit")])
def test_each_file_of_tests_is_in_one_part(unit: bool, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    files = Counter(file for part in PARTS["tests"](unit=unit).values() for file in part)
    assert files == Counter(
        str(path) for path in Path(folder).rglob("test_*.py") if path.parts[1] not in ON_THEIR_OWN
    )


@cases("said", "counts")
def test_the_last_line_of_a_run_is_counted(said: str, counts: dict[str, int]) -> None:
    assert PARTS["counted"](said) == counts


@cases("name", "said", "alone", "status", "end")
def test_a_few_failures_of_tests_with_processes_are_repeated_alone_and_named(
    name: str,
    said: str,
    alone: bool,
    status: int,
    end: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main, repeated = PARTS["main"], list[str]()

    def passes_alone(names: list[str]) -> bool:
        repeated.extend(names)
        return alone

    monkeypatch.setitem(main.__globals__, "ended", lambda *_, **__: [(name, 1, said, "1 s")])
    monkeypatch.setitem(main.__globals__, "passes_alone", passes_alone)
    told = out_of(capsys, main([]), status).splitlines()
    assert told[-1].startswith(end)
    assert ("unsteady, failed beside others and passed alone: a.py::b[x]" in told) is (status == 0)
    assert repeated == (["a.py::b[x]"] if "x" in said else [])
