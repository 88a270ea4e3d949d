"""A store is opened, and set aside once if it is corrupt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.config.state_url import parse
from daemon.state.faults import StoreCause, StoreFault
from daemon.state.store_access import Opener, TrustedSwitches, opener_of
from tests.unit.state.scripted_store import WHERE, Disk, fault

if TYPE_CHECKING:
    from tests.unit.state.places import Sqlite


def test_it_brings_what_the_store_remembers() -> None:
    disk = Disk()
    disk.off = {("a", "")}
    opened = Opener(disk.open, where=WHERE)()
    assert opened.memory.switched == {("a", "")}
    assert not opened.replaces


def test_a_store_that_cannot_be_read_is_closed_again() -> None:
    disk = Disk()
    disk.fails("recall", StoreCause.UNAVAILABLE)
    with pytest.raises(StoreFault):
        Opener(disk.open, where=WHERE, set_aside=disk.set_aside)()
    assert disk.open_stores == 0
    assert disk.asides == 0


@pytest.mark.parametrize("operation", ["open", "recall"])
def test_a_corrupt_one_is_set_aside_and_said_with_the_new_one(operation: str) -> None:
    disk = Disk()
    disk.fails(operation, StoreCause.CORRUPT)
    opener = Opener(disk.open, where=WHERE, set_aside=disk.set_aside)
    assert opener().replaces
    assert opener.aside == "disk.corrupt-1"
    assert not opener().replaces


def test_one_that_was_found_corrupt_in_use_is_set_aside_unseen() -> None:
    disk = Disk()
    opener = Opener(disk.open, where=WHERE, set_aside=disk.set_aside)
    opener()
    opener.mark_corrupt(fault(StoreCause.CORRUPT))
    assert opener().replaces
    assert disk.asides == 1
    opener.mark_corrupt(fault(StoreCause.CORRUPT))
    with pytest.raises(StoreFault, match="corrupt"):
        opener()
    assert disk.asides == 1


def test_a_new_one_that_does_not_open_at_first_is_still_a_new_one() -> None:
    disk = Disk()
    opener = Opener(disk.open, where=WHERE, set_aside=disk.set_aside)
    opener.mark_corrupt(fault(StoreCause.CORRUPT))
    disk.set_aside_leaves = StoreCause.LOCKED
    with pytest.raises(StoreFault, match="locked"):
        opener()
    disk.works()
    assert opener().replaces


def test_a_corrupt_one_that_cannot_be_set_aside_stays_corrupt() -> None:
    disk = Disk()
    disk.fails("open", StoreCause.CORRUPT)
    with pytest.raises(StoreFault, match="the test says so"):
        Opener(disk.open, where=WHERE)()
    disk.fails("set_aside", OSError("no such directory"))
    with pytest.raises(StoreFault, match="cannot be set aside: no such directory") as raised:
        Opener(disk.open, where=WHERE, set_aside=disk.set_aside)()
    assert raised.value.cause is StoreCause.CORRUPT


def test_a_file_that_is_no_store_is_set_aside_under_the_time_of_the_daemon(sqlite_place: Sqlite) -> None:
    opener = opener_of(sqlite_place.url, writer="one", wall=lambda: 0.0, trusted=TrustedSwitches())
    opener().store.close()
    sqlite_place.path.write_bytes(b"no store" * 1000)
    opened = opener()
    opened.store.close()
    assert opened.replaces
    assert "1970" in opener.aside
    assert not opener.shared
    assert opener.listen is None


def test_a_shared_database_tells_when_others_write() -> None:
    opener = opener_of(parse("postgresql://h/db"), writer="one", wall=lambda: 0.0, trusted=TrustedSwitches())
    assert opener.shared
    assert opener.listen is not None
