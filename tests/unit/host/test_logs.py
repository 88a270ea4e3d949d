"""A line per call, off the hot path, and never too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from loguru import logger

from daemon.host.logs import EVERY_SECONDS, GATHERED, CallLogger
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loguru import Message


@pytest.fixture
def lines() -> Iterator[list[str]]:
    found: list[str] = []

    def take(message: Message) -> None:
        for session, label, seconds, outcome in message.record["extra"]["calls"]:
            found.append(f"{session} {label} {seconds} {outcome}")

    sink = logger.add(take, level="INFO", filter=lambda record: "calls" in record["extra"])
    yield found
    logger.remove(sink)


async def test_each_call_is_told_with_session_label_latency_and_outcome(
    nursery: trio.Nursery, lines: list[str]
) -> None:
    log = CallLogger()
    nursery.start_soon(log.run)
    log.note(7, "fs/read_file", 0.0123, "ok")
    log.note(8, "git/git_log", 1.5, "UpstreamTimeout")
    assert not lines, "noting only notes"
    await until(lambda: len(lines) == 2, every=EVERY_SECONDS / 10)
    assert lines == ["7 fs/read_file 0.0123 ok", "8 git/git_log 1.5 UpstreamTimeout"]
    log.note(7, "fs/write_file", 0, "ok")
    await until(lambda: len(lines) == 3, every=EVERY_SECONDS / 10)


async def test_the_last_calls_are_written_when_the_daemon_ends(lines: list[str]) -> None:
    log = CallLogger()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)
        await trio.testing.wait_all_tasks_blocked()
        log.note(1, "a/b", 0.001, "ok")
        nursery.cancel_scope.cancel()
    assert lines == ["1 a/b 0.001 ok"]


async def test_a_machine_without_a_thread_to_spare_costs_time_and_no_line(
    nursery: trio.Nursery, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [RuntimeError("can't start new thread")] * 2

    async def run_sync(function: Callable[[], None]) -> None:
        if refusals:
            raise refusals.pop()
        function()

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
    log = CallLogger()
    nursery.start_soon(log.run)
    log.note(1, "a/b", 0.001, "ok")
    await until(lambda: len(lines) == 1, every=EVERY_SECONDS / 10)
    assert not refusals


async def test_what_gathers_has_a_bound_and_the_newest_is_kept(lines: list[str]) -> None:
    log = CallLogger()
    for number in range(GATHERED + 5):
        log.note(number, "a/b", 0, "ok")
    assert log.dropped == 5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)
        nursery.cancel_scope.cancel()
    assert len(lines) == GATHERED
    assert lines[0].startswith("5 ")
    assert lines[-1].startswith(f"{GATHERED + 4} ")
