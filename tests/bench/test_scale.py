"""What docs/scale.md stands on: what is measured is told in words, and has its place in the document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.scale.__main__ import DOCUMENT, balanced_table, beside_table, main, marks
from bench.scale.balanced import Try, Way
from bench.scale.beside import Beside
from bench.scale.writers import writings
from bench.tables import markdown, place_in, put, text

if TYPE_CHECKING:
    from pathlib import Path

    from bench.scale.beside import Beside

BESIDE: Beside = {
    "memory for each tool": (5, "KB"),
    "descriptors for each client": (1, ""),
    "loads, 32 sessions at once": (2500, "a second"),
}


def test_what_was_measured_has_words_and_a_unit() -> None:
    title, heads, rows = table = beside_table(BESIDE)
    assert ["memory for each tool", "5.00 KB"] in rows
    assert ["descriptors for each client", "1.00"] in rows
    assert all(len(row) == len(heads) for row in rows)
    assert text(table).startswith(title)
    assert "| loads, 32 sessions at once | 2,500 a second |" in markdown(table)


def test_what_a_way_has_not_is_left_out() -> None:
    tries = [Try(rate=rate, daemons_us=400, balancer_us=0) for rate in (900, 1000, 5000)]
    _, heads, [row] = balanced_table([Way("one daemon", "modern", 1, [1], tries=tries)])
    assert row == ["one daemon", "modern", "1,000", "400 us", "-"]
    assert len(row) == len(heads)


@pytest.mark.parametrize("place", ["beside", "writers", "told", "balanced"])
def test_a_table_takes_the_place_of_the_last_one_and_nothing_else_changes(place: str, tmp_path: Path) -> None:
    path = tmp_path / "scale.md"
    path.write_text(DOCUMENT.read_text())
    before, _, after = place_in(path, *marks(place))
    put(path, *marks(place), "new")
    assert place_in(path, *marks(place)) == (before, "\n\nnew\n\n", after)


def test_a_store_that_cannot_be_opened_is_no_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--writers", "postgresql:///nothing?host=/nowhere"]) == 1
    assert "not measured: " in capsys.readouterr().err


def test_a_file_is_written_by_one(tmp_path: Path) -> None:
    (found,) = writings(None, tmp_path)
    assert found.writers == 1
    assert 0 < found.p50 <= found.p99
