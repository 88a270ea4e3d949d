"""The audit while it runs: nothing blocks the loop, what is lost is counted, and calls are refused."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from daemon.audit import audit_log
from daemon.audit.audit_files import files
from daemon.audit.audit_log import HEAD_SECONDS, STALLED_SECONDS, SYNC_SECONDS, Audit, Chain
from daemon.audit.record import ChainHead, Decision
from daemon.config.tuning import AuditFailure, AuditKeys
from tests.waiting import in_time

FULL = OSError(28, "No space left on device")


@attrs.define
class Audited:
    """An audit below a directory, and the heads that it has copied."""

    audit: Audit
    heads: list[ChainHead]

    def records(self) -> list[dict[str, Any]]:
        found = files(self.audit.root)
        return [msgspec.json.decode(line) for each in found for line in each.read_bytes().splitlines()]

    def decisions(self) -> list[str]:
        return [each["decision"] for each in self.records()]

    def note(self, count: int = 1) -> None:
        for _each in range(count):
            self.audit.note(self.audit.made, Decision.SENT)


def audited(root: Path, **keys: Any) -> Audited:
    heads: list[ChainHead] = []

    async def keep(head: ChainHead) -> None:
        heads.append(head)

    return Audited(Audit(root / "audit", AuditKeys(**keys), "host/1/a", keep, "1.0", lambda: 1.8e9), heads)


async def opened(root: Path, **keys: Any) -> Audited:
    found = audited(root, **keys)
    await found.audit.open()
    return found


@contextmanager
def disk(monkeypatch: pytest.MonkeyPatch, answer: Any) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setattr(Chain, "append", answer)
        yield


def refuse(*_args: object) -> None:
    raise FULL


async def test_a_life_begins_and_ends_with_a_record_and_copies_the_head(tmp_path: Path) -> None:
    found = await opened(tmp_path)
    found.note(300)
    assert await found.audit._round()
    await found.audit.finish()
    found.note()  # the files are closed
    assert await found.audit._round()
    assert found.decisions() == ["began", *["sent"] * 300, "ended"]
    assert found.records()[0]["details"] == {"chain": found.heads[0].chain, "version": "1.0"}
    assert found.heads[-1].seq == 302


async def test_the_head_is_copied_once_a_minute_if_there_is_news(tmp_path: Path, mock_clock: MockClock) -> None:
    found = await opened(tmp_path)
    assert found.heads == []
    assert found.audit._next_look() == 0
    assert await found.audit._round()
    assert [each.seq for each in found.heads] == [1]
    found.note()
    assert await found.audit._round()
    assert found.audit._next_look() == pytest.approx(SYNC_SECONDS)
    for _minute in range(3):
        mock_clock.jump(HEAD_SECONDS)
        assert await found.audit._round()
    assert [each.seq for each in found.heads] == [1, 2]
    assert found.audit._next_look() == inf


async def test_records_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    found, written, append = audited(tmp_path), trio.Event(), Chain.append
    await found.audit.open()

    def appending(chain: Chain, bodies: Sequence[bytes], day: str) -> None:
        append(chain, bodies, day)
        trio.from_thread.run_sync(written.set)

    with disk(monkeypatch, appending):
        nursery.start_soon(found.audit.run)
        found.note()
        await in_time(written.wait())
    assert found.decisions() == ["began", "sent"]


async def test_a_full_disk_is_tried_again_now_and_then_at_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    found, tries = await opened(tmp_path), [*range(100)]
    with disk(monkeypatch, lambda *_args: refuse(tries.pop())), trio.move_on_after(60):
        found.note(3)
        await found.audit.run()
    assert 20 < len(tries) < 80
    # Calls go on by default.
    assert (found.audit.problem, found.audit.refuses) == ("No space left on device", "")
    found.note()
    assert await found.audit._round()
    assert (found.audit.problem, found.audit.lost) == ("", 0)
    assert found.decisions() == ["began", *["sent"] * 4]


async def test_what_is_lost_is_counted_in_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "WAITING", 10)
    found = await opened(tmp_path)
    with disk(monkeypatch, refuse):
        for _round in range(3):
            found.note(15)
            assert not await found.audit._round()
    for _round in range(2):
        assert await found.audit._round()
    # While the disk refuses, no further record of losses waits.
    assert found.decisions() == ["began", *["sent"] * 10, "lost", *["sent"] * 20, "lost"]
    assert found.records()[-1]["details"] == {"count": 10, "because": "the disk was too slow"}
    assert found.audit.lost == 15


async def test_a_fault_of_one_record_costs_that_record(tmp_path: Path) -> None:
    found = await opened(tmp_path)
    found.audit.note(lambda: 1 / 0)
    found.note()
    assert await found.audit._round()
    assert found.decisions() == ["began", "lost", "sent"]
    assert found.records()[1]["details"]["because"] == "internal error: ZeroDivisionError"


async def test_fail_closed_refuses_with_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = audited(tmp_path, fail=AuditFailure.CLOSED)
    with disk(monkeypatch, refuse):
        await found.audit.open()
        assert found.audit.refuses == "No space left on device"
    assert await found.audit._round()
    assert not found.audit.refuses


async def test_fail_closed_refuses_once_the_disk_has_not_answered_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    found = await opened(tmp_path, fail=AuditFailure.CLOSED)
    answers = threading.Event()
    with disk(monkeypatch, lambda *_args: answers.wait(30)):
        found.note()
        nursery.start_soon(found.audit._round)
        await wait_all_tasks_blocked()
        assert not found.audit.refuses
        mock_clock.jump(STALLED_SECONDS + 1)
        assert "has not answered" in found.audit.refuses
        answers.set()


@pytest.mark.parametrize("enabled", [True, False])
async def test_a_reload_switches_it_off_and_on(tmp_path: Path, enabled: bool) -> None:
    found = await opened(tmp_path, enabled=enabled)
    for each in (not enabled, enabled):
        found.audit.configure(AuditKeys(enabled=each))
        found.note()
        await found.audit._round()
    expected = ["began", "ended", "began", "sent"] if enabled else ["began", "sent", "ended"]
    assert found.decisions() == expected


def old_chain(root: Path) -> Chain:
    (root / "audit").mkdir(mode=0o700)
    before = Chain(root / "audit")
    before.append([b'{"at":"2026-01-01T00:00:00Z","daemon":"d","decision":"sent"}'] * 2, "2026-01-01")
    before.close()
    return before


async def test_without_a_place_it_stays_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    audit = Audit()
    await audit.open()
    audit.configure(AuditKeys(days=7))
    audit.note(audit.made, Decision.SENT)
    assert await audit._round()
    await audit.finish()
    assert (audit.on, audit.chain) == (False, None)


async def test_a_record_vouches_for_what_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = old_chain(tmp_path)
    found, unlink = audited(tmp_path), Path.unlink

    def unlinking(path: Path, *, missing_ok: bool) -> None:
        assert found.audit.chain is not None
        assert found.audit.chain.is_synced, "it is on disk before the file is gone"
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlinking)
    await found.audit.open()
    expired = found.records()[-1]
    head = {"file": "2026-01-01.jsonl", "through": 2, "head": before.head.digest}
    assert (expired["decision"], expired["details"]) == ("expired", head)
    assert found.records()[0]["prev"] == before.head.digest


async def test_what_cannot_be_deleted_is_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_chain(tmp_path)
    monkeypatch.setattr(Path, "unlink", lambda _path, *, missing_ok: refuse(missing_ok))
    found = await opened(tmp_path)
    assert found.audit.problem == "No space left on device"
    assert await found.audit._round()
    assert found.decisions() == ["sent", "sent", "began", "expired"]


async def test_fail_closed_refuses_before_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "WAITING", 10)
    found = await opened(tmp_path, fail=AuditFailure.CLOSED)
    found.note(6)
    assert found.audit.refuses == "the disk is too slow"
    assert await found.audit._round()
    assert (found.audit.refuses, found.audit.lost) == ("", 0)
