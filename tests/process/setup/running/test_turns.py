"""One start at a time, and a failure is shared by those who waited for it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from daemon.setup.running.starting import NotStarted, turn
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path


def test_who_waited_for_a_start_that_failed_is_told_why_if_they_share_it(tmp_path: Path) -> None:
    outcomes: list[str] = []

    def wait(*, shared: bool) -> None:
        try:
            with turn(tmp_path / "s", time.monotonic() + PATIENCE, shared=shared):
                outcomes.append("its own turn")
        except NotStarted as error:
            outcomes.append(f"{error} {error.status}")

    waiting = [threading.Thread(target=wait, kwargs={"shared": shared}) for shared in (True, False)]
    with turn(tmp_path / "s", time.monotonic() + PATIENCE, shared=False) as record:
        for each in waiting:
            each.start()
        # Only who has begun to wait shares it; a thread that is late has a turn of its own.
        with pytest.raises(NotStarted), turn(tmp_path / "s", time.monotonic(), shared=True):
            raise AssertionError("two turns at once")
        record(NotStarted("faulty", 78))
    for each in waiting:
        each.join(PATIENCE)
    assert "its own turn" in outcomes
    assert set(outcomes) <= {"faulty 78", "its own turn"}


def test_an_old_failure_is_nobodys(tmp_path: Path) -> None:
    with turn(tmp_path / "s", time.monotonic() + PATIENCE, shared=True) as record:
        record(NotStarted("faulty"))
    with turn(tmp_path / "s", time.monotonic() + PATIENCE, shared=True) as record:
        record(NotStarted("again"))


@pytest.mark.parametrize("left", ["", "{", "[]", '{"at": 9e9}'])
def test_a_record_that_nobody_can_read_counts_for_nothing(tmp_path: Path, left: str) -> None:
    (tmp_path / "s.start").write_text(left)
    with turn(tmp_path / "s", time.monotonic() + PATIENCE, shared=True):
        pass
