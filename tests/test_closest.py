"""What was meant: close names, closest first, whatever is written."""

from __future__ import annotations

import pytest

from daemon.closest import LONGEST, MAX_COMPARED, closest

NAMES = ["read_file", "read_files", "write_file", "git_log"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("read_fil", ["read_file", "read_files"]),
        ("git-log", ["git_log"]),
        ("git_log", ["git_log"]),
        ("", []),
        ("weather", []),
    ],
)
def test_close_names_come_closest_first_and_others_not_at_all(wanted: str, found: list[str]) -> None:
    assert closest(wanted, NAMES)[: len(found) or None] == found


def test_only_so_many_are_told_each_once() -> None:
    assert closest("read_file", [*NAMES, *NAMES], most=1) == ["read_file"]
    assert len(closest("name_0", [f"name_{number}" for number in range(50)])) == 3


def test_of_what_is_endless_the_beginning_is_compared() -> None:
    assert closest("a" * LONGEST + "b" * 100_000, ["a" * LONGEST]) == ["a" * LONGEST]
    assert closest("zzz", [*(f"n{number}" for number in range(MAX_COMPARED)), "zzz"]) == []
