"""Where things are remembered: real directories, locks and databases."""

from __future__ import annotations

import importlib.util
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon.checks.examination import FULL, SCARCE, check, room
from daemon.checks.findings import Level
from daemon.state.sqlite import hold
from tests.unit.checks.scenes import as_somebody_else, levels, only, process

if TYPE_CHECKING:
    from tests.unit.checks.scenes import House


def test_a_directory_that_can_be_used_is_fine(house: House) -> None:
    found = list(check(house.look()))
    assert levels(found) == ["ok"]
    assert found[0].what.startswith(f"{house.state / 'state.db'}, ")


def test_a_directory_that_is_not_there_yet_is_noted(house: House) -> None:
    house.state.rmdir()
    assert str(house.state) in only(check(house.look()), Level.NOTE)


def test_a_directory_that_cannot_be_made_or_written_is_a_fault(house: House) -> None:
    house.state.chmod(0o555)
    house.run.chmod(0o755)
    with as_somebody_else():
        assert "may not write" in only(check(house.look()), Level.FAULT)
    house.state.rmdir()
    house.state.parent.chmod(0o555)
    with as_somebody_else():
        assert "cannot be made" in only(check(house.look()), Level.FAULT)
    house.state.parent.chmod(0o755)


def test_a_directory_that_others_can_write_is_a_fault(house: House) -> None:
    house.state.chmod(0o777)
    assert "chmod 700" in only(check(house.look()), Level.FAULT)


def test_a_file_in_the_place_of_the_directory_is_a_fault(house: House) -> None:
    house.state.rmdir()
    house.state.write_text("")
    assert "is no directory" in next(each.what for each in check(house.look()) if each.level is Level.FAULT)


def disk(*, free: int = SCARCE * 2, flags: int = 0, files: int = 100, left: int = 100) -> os.statvfs_result:
    """A file system, in the order of statvfs(3): blocks of one byte, free and available ones alike."""
    return os.statvfs_result((1, 1, SCARCE * 9, free, free, files, left, left, flags, 255))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (disk(), []),
        (disk(free=SCARCE - 1), ["warning"]),
        (disk(free=FULL - 1), ["fault"]),
        (disk(flags=os.ST_RDONLY), ["fault"]),
        (disk(left=0), ["fault"]),
        (disk(files=0, left=0), []),
    ],
)
def test_a_disk_without_room_is_told(found: os.statvfs_result, said: list[str]) -> None:
    assert levels(room(Path("/state"), found)) == said


def test_a_database_is_fine_and_what_is_none_is_a_warning(house: House) -> None:
    file = house.state / "state.db"
    file.touch()
    assert levels(check(house.look())) == ["ok"]
    file.unlink()
    with sqlite3.connect(file) as database:
        database.execute("create table x (y)")
    database.close()
    assert levels(check(house.look())) == ["ok"]
    file.write_bytes(b"SQLite no more")
    assert "sets it aside" in only(check(house.look()), Level.WARNING)


def test_a_database_that_one_may_not_use_is_a_fault(house: House) -> None:
    (house.state / "state.db").touch(mode=0o600)
    house.state.chmod(0o1777)
    house.run.chmod(0o755)
    with as_somebody_else():
        found = levels(check(house.look()))
    assert found == (["fault"] if os.geteuid() == 0 else ["ok"])


def test_what_was_set_aside_is_noted(house: House) -> None:
    (house.state / "state.db.corrupt-1").touch()
    assert "state.db.corrupt-1" in only(check(house.look()), Level.NOTE)


@pytest.mark.process
def test_a_daemon_that_holds_the_state_and_does_not_answer_is_a_warning(house: House) -> None:
    with hold(house.state / "state.db"):
        assert f"pid {os.getpid()}" in only(check(house.look()), Level.WARNING)
        with house.daemon():
            assert levels(check(house.look())) == ["ok"]
        with process(house.root, **house.environ) as pid, house.daemon(pid=pid):
            assert levels(check(house.look())) == ["warning"]


def test_a_daemon_that_keeps_nothing_is_a_fault(house: House) -> None:
    kept = {"state": "degraded", "reason": "the disk is full", "where": str(house.state / "state.db")}
    with house.daemon(persistence=kept):
        assert "the disk is full" in only(check(house.look()), Level.FAULT)


def test_a_database_of_somebody_elses_is_not_asked_and_shows_no_password(house: House) -> None:
    house.write({"state": {"url": "postgresql://me:hunter2-hunter2@no-such-host.invalid/x"}})
    found = list(check(house.look()))
    assert levels(found) == ["ok" if importlib.util.find_spec("psycopg") else "fault"]
    assert "hunter2" not in str(found)
