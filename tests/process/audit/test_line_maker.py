"""Lines of many records are made in a process of their own, and in the daemon whenever that process fails."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
import trio

from daemon.audit import audit_log
from daemon.audit.audit_files import files
from daemon.audit.audit_log import IDLE_SECONDS, MANY, Audit, LineMaker
from daemon.audit.inspection import verify
from daemon.audit.record import CallMembers, chained
from daemon.config.tuning import AuditKeys
from daemon.processes import marks
from daemon.processes.children import start_helper
from tests.waiting import PATIENCE, eventually

BODY = b'{"at":"2026-11-29T00:00:00Z","daemon":"d","decision":"held"}'
START = 7, "c0" * 32


def call(number: int) -> CallMembers:
    return b'"daemon":"d","decision":"sent"', b'{"n":%d}' % number, "ok", 0.0123, 1.7e9 + number / 7, number


CALLS: list[bytes | CallMembers] = [BODY, *map(call, range(MANY))]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "LINES_SECONDS", PATIENCE)


@pytest.fixture
def maker() -> Iterator[LineMaker]:
    made = LineMaker(start_helper)
    yield made
    made.end()


def has_started(maker: LineMaker) -> bool:
    """Have lines made, by the daemon until the process has started."""
    assert maker.lines(CALLS, *START) == chained(CALLS, *START)
    return bool(maker._running.connection.gettimeout())


@pytest.fixture
def pids() -> Callable[[], frozenset[int]]:
    before = marks.children()
    return lambda: marks.children() - before


def test_lines_of_many_records_are_those_of_few(maker: LineMaker, pids: Callable[[], frozenset[int]]) -> None:
    few = CALLS[: MANY - 1]
    assert maker.lines(few, *START) == chained(few, *START)
    assert not pids()
    eventually(lambda: has_started(maker))
    (pid,) = pids()
    assert maker.lines(CALLS, *START) == chained(CALLS, *START)
    assert pids() == {pid}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_was_killed_or_stopped_costs_no_record_and_is_not_replaced_at_once(
    number: signal.Signals, maker: LineMaker, pids: Callable[[], frozenset[int]]
) -> None:
    eventually(lambda: has_started(maker))
    (pid,) = pids()
    maker._running.connection.settimeout(0.01)
    os.kill(pid, number)
    for _each in range(2):
        assert maker.lines(CALLS, *START) == chained(CALLS, *START)
        assert not pids()
    maker.rests_at = 0.0
    eventually(lambda: has_started(maker))
    assert len(pids()) == 1


def test_a_process_that_cannot_be_started_costs_no_record(
    maker: LineMaker, pids: Callable[[], frozenset[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "LINE_PROCESS", ("/no/such/program",))
    assert maker.lines(CALLS, *START) == chained(CALLS, *START)
    assert not pids()


def test_other_processes_cannot_read_arguments(maker: LineMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    # 3: PR_GET_DUMPABLE, told as each digest.
    told = "SimpleNamespace(hexdigest=lambda: f'{ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)}')"
    patched = (
        f"import ctypes, hashlib, runpy\nfrom types import SimpleNamespace\nhashlib.sha256 = lambda _: {told}"
    )
    run = "runpy.run_module('daemon.audit.record', run_name='__main__')"
    monkeypatch.setattr(audit_log, "LINE_PROCESS", (sys.executable, "-P", "-c", f"{patched}\n{run}"))
    eventually(lambda: maker.lines(CALLS, *START)[2] in {"0", "1"})
    assert maker.lines(CALLS, *START)[2] == "0"


def test_the_process_ends_with_the_daemon(maker: LineMaker, pids: Callable[[], frozenset[int]]) -> None:
    eventually(lambda: has_started(maker))
    maker._running.connection.close()
    assert maker._running.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("last", [False, True])
async def test_a_chain_of_many_calls_is_intact_and_its_process_ends_when_idle_or_at_a_stop(
    last: bool, tmp_path: Path, pids: Callable[[], frozenset[int]]
) -> None:
    audit = Audit(tmp_path, AuditKeys(), "host/1/a", maker=LineMaker(start_helper))
    await audit.open()
    await trio.to_thread.run_sync(eventually, lambda: has_started(audit._maker))
    for number in range(3 * MANY + 100):
        audit.note(*call(number))
    assert await audit._round()
    assert len(pids()) == 1
    assert audit._next_look() <= IDLE_SECONDS
    if not last:
        audit._maker.rests_at = 0.0
        assert await audit._round()
        assert not pids()
    await audit.finish()
    assert not pids()
    assert audit._kept is not None
    ((chain,), _others) = verify(tmp_path, [audit._kept])
    assert (chain.faults, chain.last, chain.vouched) == ([], 3 * MANY + 102, 3 * MANY + 102)
    read = [msgspec.json.decode(line) for each in files(tmp_path) for line in each.read_bytes().splitlines()]
    calls = range(3 * MANY + 100)
    assert [each["bytes"] for each in read[1:-1]] == [*calls]
    ended = [datetime.fromisoformat(each["at"]).timestamp() for each in read[1:-1]]
    assert ended == pytest.approx([call(number)[4] for number in calls], rel=0, abs=2e-6)
