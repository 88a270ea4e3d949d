"""Waiting for what an answer depends on: bounded, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from daemon.clients.waits import (
    INDEX_PATIENCE,
    LISTING_PATIENCE,
    REPORT_SECONDS,
    wait_indexed,
    wait_listed,
    wait_up,
)
from daemon.kit.waiting import Watch
from daemon.search.index import Index
from daemon.surfaces.surface import AwaitListing
from tests.fakes_upstream import Stage

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_all_servers_are_woken_at_once_and_waited_for(nursery: trio.Nursery) -> None:
    stage = Stage(listed=False)
    done = trio.Event()

    async def wait() -> None:
        await wait_listed(AwaitListing(servers=("alpha", "beta")), stage.upstreams.values(), stage.catalog)
        done.set()

    with trio.fail_after(30):
        nursery.start_soon(wait)
        await stage.upstreams["alpha"].wait_woken()
        await stage.upstreams["beta"].wait_woken()
        stage.lists("beta", "x")
        await trio.testing.wait_all_tasks_blocked()
        assert not done.is_set()
        stage.fails_to_list("alpha", "nonsense")
        await done.wait()


async def test_nothing_to_wait_for_takes_no_time(autojump_clock: MockClock) -> None:
    stage = Stage(listed=False)
    began = trio.current_time()
    await wait_listed(AwaitListing(servers=()), (), stage.catalog)
    assert trio.current_time() == began


async def test_a_server_that_lists_nothing_is_given_up_after_its_patience(autojump_clock: MockClock) -> None:
    stage = Stage(listed=False)
    began = trio.current_time()
    await wait_listed(AwaitListing(servers=("alpha",)), [stage.alpha], stage.catalog)
    assert trio.current_time() - began == pytest.approx(LISTING_PATIENCE, abs=0.1)


async def test_the_index_is_waited_for_until_it_knows_the_catalog(nursery: trio.Nursery) -> None:
    stage = Stage()
    index = Watch(Index())
    done = trio.Event()

    async def wait() -> None:
        await wait_indexed(index, stage.catalog)
        done.set()

    with trio.fail_after(30):
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not done.is_set()
        index.set(index.value.updated(stage.catalog.value.servers))
        await done.wait()


async def test_an_index_that_does_not_come_is_given_up_after_its_patience(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    await wait_indexed(Watch(Index()), Stage().catalog)
    assert trio.current_time() - began == pytest.approx(INDEX_PATIENCE, abs=0.1)


@pytest.mark.parametrize("calling", [True, False])
async def test_only_who_calls_is_told_how_the_server_is(autojump_clock: MockClock, calling: bool) -> None:
    stage = Stage(listed=False)
    stage.alpha.up, stage.alpha.wake_seconds = False, 2.5 * REPORT_SECONDS
    told: list[str] = []
    awaited = AwaitListing(servers=("alpha",), calling=calling)
    await wait_listed(awaited, [stage.alpha], stage.catalog, told.append)
    line = "server alpha is starting (waiting for {:.0f} s)"
    each = [line.format(REPORT_SECONDS), line.format(2 * REPORT_SECONDS)]
    assert told == (each if calling else [])


async def test_reports_end_with_the_wait(autojump_clock: MockClock) -> None:
    stage = Stage()
    told: list[str] = []
    assert await wait_up(stage.alpha, told.append)
    stage.alpha.up, stage.alpha.wake_seconds = False, 1.5 * REPORT_SECONDS
    assert not await wait_up(stage.alpha, told.append)
    await trio.sleep(10 * REPORT_SECONDS)
    assert len(told) == 1
