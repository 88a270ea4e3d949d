"""A store is opened, and set aside once if it is corrupt."""

from __future__ import annotations

import pytest

from daemon.keeping.opening import Opener
from daemon.store.faults import Kind, StoreFault
from tests.keeping.scripted_store import Disk, fault


def test_it_brings_what_the_store_remembers() -> None:
    disk = Disk()
    disk.off = {("a", "")}
    opened = Opener(disk.open, None, shared=False)()
    assert opened.switched == {("a", "")}
    assert not opened.anew
    assert disk.asked["changes_since"] == 0


def test_of_a_shared_store_the_version_is_read_before_anything_else() -> None:
    disk = Disk()
    assert Opener(disk.open, None, shared=True)().version == 1
    assert list(disk.asked) == ["open", "changes_since", "servers", "switched"]


@pytest.mark.parametrize("operation", ["servers", "switched"])
def test_a_store_that_cannot_be_read_is_closed_again(operation: str) -> None:
    disk = Disk()
    disk.fails(operation, Kind.UNAVAILABLE)
    with pytest.raises(StoreFault):
        Opener(disk.open, disk.set_aside, shared=False)()
    assert disk.open_stores == 0
    assert disk.asides == 0


@pytest.mark.parametrize("operation", ["open", "servers"])
def test_a_corrupt_one_is_set_aside_and_said_with_the_new_one(operation: str) -> None:
    disk = Disk()
    disk.fails(operation, Kind.CORRUPT)
    opener = Opener(disk.open, disk.set_aside, shared=False)
    assert opener().anew
    assert opener.aside == "disk.corrupt-1"
    assert not opener().anew


def test_one_that_was_found_corrupt_in_use_is_set_aside_unseen() -> None:
    disk = Disk()
    opener = Opener(disk.open, disk.set_aside, shared=False)
    opener()
    opener.condemn(fault(Kind.CORRUPT))
    assert opener().anew
    assert disk.asides == 1
    opener.condemn(fault(Kind.CORRUPT))
    with pytest.raises(StoreFault, match="corrupt"):
        opener()
    assert disk.asides == 1


def test_a_new_one_that_does_not_open_at_first_is_still_a_new_one() -> None:
    disk = Disk()
    opener = Opener(disk.open, disk.set_aside, shared=False)
    opener.condemn(fault(Kind.CORRUPT))
    disk.set_aside_leaves = Kind.LOCKED
    with pytest.raises(StoreFault, match="locked"):
        opener()
    disk.works()
    assert opener().anew


def test_a_corrupt_one_that_cannot_be_set_aside_stays_corrupt() -> None:
    disk = Disk()
    disk.fails("open", Kind.CORRUPT)
    with pytest.raises(StoreFault, match="the test says so"):
        Opener(disk.open, None, shared=False)()
    disk.fails("set_aside", OSError("no such directory"))
    with pytest.raises(StoreFault, match="cannot be set aside: no such directory") as raised:
        Opener(disk.open, disk.set_aside, shared=False)()
    assert raised.value.kind is Kind.CORRUPT
