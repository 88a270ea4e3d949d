"""What a known server keeps for its clients is a warning until its entry says who shares it."""

from __future__ import annotations

from typing import Any

from daemon.checks.entries import most_instances
from daemon.checks.entries import sharing as check
from daemon.checks.findings import Level
from tests.unit.cases import cases
from tests.unit.config.reading import server_of


@cases("entry", "causes")
def test_each_matter_is_a_warning_with_its_place_and_what_to_write(
    entry: dict[str, Any], causes: list[list[str]]
) -> None:
    found = list(check(server_of(entry)))
    assert [[each.cause, each.key] for each in found] == causes
    assert all(each.level is Level.WARNING and each.what.startswith("s ") and each.do for each in found)


@cases("entry", "most")
def test_so_many_instances_run_at_most(entry: dict[str, Any], most: int) -> None:
    assert most_instances(server_of(entry)) == most
