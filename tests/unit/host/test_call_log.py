"""A line per call, off the hot path, and never too many."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from loguru import logger

from daemon.clients.client import Client
from daemon.config.redaction import Redactors
from daemon.counting import recent_calls
from daemon.counting.recent_calls import EVERY_SECONDS, KEPT, CallLogger, RecentCall, RecentCalls
from daemon.host import logs
from daemon.surfaces.table import SURFACES
from tests.unit.config.reading import config_of
from tests.waiting import background, beside, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loguru import Message


NOW = 1_800_000_000.0


def caller(number: int) -> Client:
    """The client of a connection."""
    made = Client(config_of({"mcpServers": {}}), SURFACES)
    made.number, made.name = number, "agent 1"
    return made


@pytest.fixture
def lines() -> Iterator[list[str]]:
    found: list[str] = []

    def take(message: Message) -> None:
        for session, label, seconds, outcome, _at in message.record["extra"]["calls"]:
            found.append(f"{session} {label} {seconds} {outcome}")

    sink = logger.add(take, level="INFO", filter=lambda record: "calls" in record["extra"])
    yield found
    logger.remove(sink)


async def test_each_call_is_told_with_session_label_latency_and_outcome_the_last_when_the_daemon_ends(
    lines: list[str],
) -> None:
    log = CallLogger(RecentCalls(lambda: NOW))
    async with beside(log.run):
        log.note((caller(7), None, "fs/read_file", 0.0123, "ok", "", "", NOW, ""))
        log.note((caller(8), None, "git/git_log", 1.5, "UpstreamTimeout", "", "", NOW, ""))
        assert not lines, "noting only notes"
        await until(lambda: len(lines) == 2, every=EVERY_SECONDS / 10)
        log.note((caller(7), None, "a/b", 0.001, "ok", "", "", NOW, ""))
    assert lines == ["7 fs/read_file 0.0123 ok", "8 git/git_log 1.5 UpstreamTimeout", "7 a/b 0.001 ok"]


async def test_a_machine_without_a_thread_to_spare_costs_time_and_no_line(
    nursery: trio.Nursery, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [RuntimeError("can't start new thread")] * 2

    async def run_sync(function: Callable[[], object]) -> object:
        if refusals:
            raise refusals.pop()
        return function()

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
    log = CallLogger(RecentCalls(lambda: NOW))
    nursery.start_soon(log.run)
    log.note((caller(1), None, "a/b", 0.001, "ok", "", "", NOW, ""))
    await until(lambda: len(lines) == 1, every=EVERY_SECONDS / 10)
    assert not refusals


async def test_what_gathers_has_a_bound_and_the_newest_is_kept(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_calls, "GATHERED", 40)
    log = CallLogger(RecentCalls(lambda: NOW))
    for number in range(45):
        log.note((caller(number), None, "a/b", 0, "ok", "", "", NOW, ""))
    assert log.dropped == 5
    async with background() as nursery:
        nursery.start_soon(log.run)
    assert len(lines) == 40
    assert lines[0].startswith("5 ")
    assert lines[-1].startswith("44 ")


async def test_the_last_thousand_calls_are_handed_on_with_who_made_them_when_they_ended_and_where_they_went(
    nursery: trio.Nursery,
) -> None:
    recent = RecentCalls(lambda: NOW)
    log, one = CallLogger(recent), caller(7)
    nursery.start_soon(log.run)
    log.note((one, "project", "files/read", 0.5, "Busy", "fs", "read", NOW, "no"))
    log.note((one, None, "search-tools", 0.1, "ok", "", "", NOW + 0.1, ""))
    await recent.newest.wait_until(lambda number: number == 2)
    assert recent.after(0) == [
        (1, RecentCall(NOW, 7, "project", "agent 1", "", "fs", "read", 0.5, "Busy", "", "no")),
        (2, RecentCall(NOW + 0.1, 7, None, "agent 1", "", "", "search-tools", 0.1, "ok")),
    ]
    for number in range(KEPT + 5):
        log.note((one, None, str(number), 0, "ok", "", "", NOW, ""))
    await recent.newest.wait_until(lambda number: number == KEPT + 7)
    found = recent.after(0)
    assert [(number, call.tool) for number, call in found] == [(n + 3, str(n)) for n in range(5, KEPT + 5)]
    assert [number for number, _ in recent.after(KEPT + 5)] == [KEPT + 6, KEPT + 7]


CALL = "INFO    [session=7] call fs/read 12.3 ms ok"


@pytest.mark.parametrize(
    ("write", "form"),
    [
        (partial(logs._lines_of_calls, "text"), "%H:%M:%S.{:03} INFO    [session=7] call fs/read 12.3 ms ok"),
        (
            partial(logs._lines_of_calls, "dated"),
            "%Y-%m-%d %H:%M:%S.{:03} INFO    [session=7] call fs/read 12.3 ms ok",
        ),
        (logs._json_of_calls, '{{"time": "%Y-%m-%dT%H:%M:%S.{:03}'),
    ],
)
def test_a_line_has_the_time_of_its_call_not_of_its_batch(write: Callable[..., str], form: str) -> None:
    ends = (NOW, NOW + 61.25)
    lines = write(SimpleNamespace(level="INFO"), [(7, "fs/read", 0.0123, "ok", at) for at in ends], Redactors())
    for line, at in zip(lines.splitlines(), ends, strict=True):
        time = datetime.fromtimestamp(at, UTC).astimezone()
        assert line.startswith(time.strftime(form).format(time.microsecond // 1000))
