"""Switches count when they came over the control socket: who edits the store does not switch himself on."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from daemon.config.state_url import parse
from daemon.facts import Switched
from daemon.state.faults import StoreCause
from daemon.state.store import Store
from daemon.state.store_access import TrustedSwitches
from tests.unit.actors.recording import Stage, begin, life
from tests.unit.state.places import SLACK
from tests.unit.state.scripted_store import Disk
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trio.testing import MockClock

OFF = frozenset({("a", ""), ("b", "write")})


async def switch(stage: Stage, off: frozenset[tuple[str, str]]) -> None:
    """An operator has exactly these switched off."""
    stage.tell(Switched(off=off))
    await stage.registry.settle()
    await stage.written()


async def retried(clock: MockClock, done: Callable[[], bool]) -> None:
    """Until that holds, with the store tried again and again."""

    def holds() -> bool:
        clock.jump(60)
        return done()

    await until(holds)


def on_file(path: Path, trusted: TrustedSwitches) -> Stage:
    """A daemon with its store in a file."""
    return begin(lambda: Store.open(parse(f"sqlite:///{path}"), writer="one", slack=SLACK), trusted=trusted)


def switches_in(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as file:
        return set(file.execute("SELECT server, tool FROM switches WHERE switched_off = 1"))


@pytest.mark.parametrize("cause", [StoreCause.UNAVAILABLE, StoreCause.LOST])
async def test_a_store_that_is_edited_behind_a_running_daemon_switches_nothing(
    mock_clock: MockClock, cause: StoreCause
) -> None:
    disk = Disk()
    async with life(begin(disk.open), disk) as stage:
        await switch(stage, OFF)
        disk.off = {("b", "")}
        disk.fails_once("check", cause)
        mock_clock.jump(10.1)
        await until(lambda: not disk.open_stores or disk.off == OFF)
        await retried(mock_clock, lambda: disk.off == OFF or not stage.entry("a").switched_off)
        assert stage.registry.catalog.value.switched == OFF


async def test_a_file_that_is_edited_between_two_daemons_switches_nothing_where_one_hands_over(
    tmp_path: Path,
) -> None:
    path, handed = tmp_path / "state.db", list[bytes]()
    async with life(on_file(path, TrustedSwitches(hand_over=handed.append))) as stage:
        await switch(stage, OFF)
    assert switches_in(path) == OFF
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE switches SET switched_off = 0 WHERE server = 'a'")
        file.execute("UPDATE switches SET tool = 'read' WHERE server = 'b'")
    async with life(on_file(path, TrustedSwitches(handed[-1]))) as stage:
        assert stage.registry.catalog.value.switched == OFF
        await stage.written()
        assert switches_in(path) == OFF
        await switch(stage, frozenset())
    assert switches_in(path) == set()


@pytest.mark.parametrize("with_another", [True, False])
async def test_another_file_or_none_in_its_place_switches_nothing_where_a_daemon_hands_over(
    tmp_path: Path, with_another: bool
) -> None:
    path, handed = tmp_path / "state.db", list[bytes]()
    if with_another:
        async with life(on_file(tmp_path / "other.db", TrustedSwitches())) as stage:
            await stage.written()
    async with life(on_file(path, TrustedSwitches(hand_over=handed.append))) as stage:
        await switch(stage, OFF)
    path.unlink()
    if with_another:
        shutil.move(tmp_path / "other.db", path)
    else:
        path.mkdir()
    async with life(on_file(path, TrustedSwitches(handed[-1]))) as stage:
        assert stage.registry.catalog.value.switched == OFF


async def test_what_an_operator_switches_on_while_no_store_can_be_opened_stays_on(
    mock_clock: MockClock,
) -> None:
    disk = Disk()
    disk.off = {*OFF}
    disk.fails("open", StoreCause.LOCKED)
    async with life(begin(disk.open, trusted=TrustedSwitches(b'[["a",""],["b","write"]]')), disk) as stage:
        assert stage.registry.catalog.value.switched == OFF
        stage.tell(Switched(off=OFF - {("a", "")}))
        await stage.registry.settle()
        disk.works()
        await retried(mock_clock, lambda: disk.off == OFF - {("a", "")})
        assert stage.registry.catalog.value.switched == OFF - {("a", "")}


async def test_without_anything_that_was_handed_over_the_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with life(on_file(path, TrustedSwitches())) as stage:
        await switch(stage, OFF)
    async with life(on_file(path, TrustedSwitches())) as stage:
        assert stage.registry.catalog.value.switched == OFF
