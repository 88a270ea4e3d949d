"""The bench of starts: a boot is told as it was, and whoever hangs is not counted."""

from __future__ import annotations

from bench.starts import Found, boot, told
from tests.e2e.harness import ROOT


def test_a_boot_is_measured_until_all_healthy_servers_are_up() -> None:
    found = boot(ROOT, servers=2, seconds=0.05, hanging=1, patience=60.0)
    assert (found.up, found.timeouts) == (2, 0)
    assert 0 < found.half <= found.whole < 60


def test_a_boot_that_does_not_end_is_told_as_far_as_it_came() -> None:
    found = boot(ROOT, servers=1, seconds=600.0, hanging=0, patience=0.2)
    assert found == Found(up=0, half=0.2, whole=0.2, timeouts=0)


def test_a_line_tells_how_it_compares_with_the_ideal() -> None:
    line = told("this", Found(up=9, half=4.0, whole=12.0, timeouts=3), 10.0, 10)
    assert line.split() == ["this", "9", "of", "10", "4.0", "12.0", "1.20", "3"]
