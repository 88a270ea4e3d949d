"""Files of a chain: every line carries the digest of the one before, whatever day, size, crash or full disk."""

import os
from pathlib import Path

import msgspec
import pytest

from daemon.audit import audit_log
from daemon.audit.audit_files import chains, files
from daemon.audit.audit_log import Chain
from daemon.audit.record import ChainHead, digest

DAY = "2026-11-29"
BODY = b'{"at":"2026-11-29T00:00:00Z","daemon":"d","decision":"sent"}'


def lines(root: Path) -> list[bytes]:
    return [line for each in files(root) for line in each.read_bytes().splitlines()]


def closed(root: Path) -> Chain:
    """A chain of one record."""
    found = Chain(root)
    found.append([BODY], DAY)
    found.close()
    return found


def assert_chained(found: list[bytes], start: ChainHead) -> None:
    seq, prev = start.seq, start.digest
    for line in found:
        seq += 1
        read = msgspec.json.decode(line)
        assert (read["seq"], read["prev"]) == (seq, prev)
        prev = digest(line)


def test_a_chain_goes_on_over_days_sizes_and_daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "FILE_BYTES", 200)
    first = Chain(tmp_path)
    start = first.head
    for day in (DAY, DAY, "2026-11-30", DAY):  # the clock is set back at last
        first.append([BODY] * 2, day)
    first.close()
    second = Chain(tmp_path)
    assert (second.id, second.head) == (first.id, first.head)
    second.append([BODY], "2026-12-01")
    assert_chained(lines(tmp_path), start)
    names = ["2026-11-29.jsonl", "2026-11-29.1.jsonl", "2026-11-30.jsonl", "2026-11-30.1.jsonl"]
    assert [each.name for each in files(tmp_path)] == [*names, "2026-12-01.jsonl"]
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}


def test_two_daemons_write_two_chains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "CHAINS", 2)
    first, second = Chain(tmp_path), Chain(tmp_path)
    assert first.id != second.id
    for each in (first, second):
        each.append([BODY], DAY)
    assert chains(tmp_path) == [tmp_path, tmp_path / "2"]
    with pytest.raises(OSError, match="2 daemons write below"):
        Chain(tmp_path)
    first.close()
    assert Chain(tmp_path).id == first.id


def test_each_file_is_flushed_to_the_disk_once_before_the_next_or_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(os.fstat(fd).st_size))
    chain = Chain(tmp_path)
    chain.append([BODY] * 2, DAY)
    chain.append([BODY], "2026-11-30")
    for _ in range(2):
        chain.sync()
    chain.close()
    assert flushed == [each.stat().st_size for each in files(tmp_path)]


def test_an_empty_file_does_not_hide_the_one_before(tmp_path: Path) -> None:
    first = closed(tmp_path)
    (tmp_path / "2026-11-30.jsonl").touch(0o600)
    assert Chain(tmp_path).head == first.head


def test_half_a_line_of_a_killed_daemon_is_cut_off(tmp_path: Path) -> None:
    first = Chain(tmp_path)
    start = first.head
    first.append([BODY] * 3, DAY)
    first.close()
    path = tmp_path / f"{DAY}.jsonl"
    path.write_bytes(path.read_bytes() + b'{"seq":4,"pr')
    second = Chain(tmp_path)
    assert (second.torn, second.head) == (12, first.head)
    second.append([BODY], DAY)
    assert_chained(lines(tmp_path), start)


def test_an_edited_last_line_does_not_stop_the_next_daemon(tmp_path: Path) -> None:
    closed(tmp_path)
    (tmp_path / f"{DAY}.jsonl").write_bytes(b"\xff nonsense\n")
    second = Chain(tmp_path)
    second.append([BODY], DAY)
    assert second.head.seq == 1
    assert msgspec.json.decode(lines(tmp_path)[1])["prev"] == digest(b"\xff nonsense")


def test_a_full_disk_leaves_no_half_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Chain(tmp_path)
    start = found.head
    found.append([BODY], DAY)
    write = os.write

    def full(file: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", refuse)
        return write(file, bytes(data)[:30])

    def refuse(_file: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        found.append([BODY] * 5, DAY)
    monkeypatch.setattr(os, "write", write)
    found.append([BODY] * 5, DAY)
    assert_chained(lines(tmp_path), start)
    assert found.head.seq == 6


def test_a_deleted_file_does_not_swallow_what_comes(tmp_path: Path) -> None:
    found = Chain(tmp_path)
    found.append([BODY], DAY)
    (tmp_path / f"{DAY}.jsonl").unlink()
    found.append([BODY], DAY)
    assert [msgspec.json.decode(each)["seq"] for each in lines(tmp_path)] == [2]


@pytest.mark.parametrize(
    ("before", "most", "expected"),
    [("2026-11-02", 10**9, 1), ("2026-11-30", 10**9, 2), ("2026-10-01", 1000, 1), ("2026-10-01", 10**9, 0)],
)
def test_all_files_but_the_newest_can_expire(tmp_path: Path, before: str, most: int, expected: int) -> None:
    found, heads = Chain(tmp_path), []
    for day in ("2026-11-01", "2026-11-02", "2026-11-03"):
        found.append([BODY] * 3, day)
        heads.append(found.head)
    assert [head for _path, head in found.expired(before, most)] == heads[:expected]


def test_a_chain_that_cannot_be_opened_is_free_for_the_next_try(tmp_path: Path) -> None:
    (tmp_path / f"{DAY}.jsonl").mkdir()
    for _try in range(2):
        with pytest.raises(OSError, match="not a regular file"):
            Chain(tmp_path)
    (tmp_path / f"{DAY}.jsonl").rmdir()
    assert Chain(tmp_path).directory == tmp_path


def test_a_head_that_has_expired_is_not_missed_and_one_of_an_empty_chain_is(tmp_path: Path) -> None:
    first = Chain(tmp_path)
    first.append([BODY], DAY)
    known = first.head
    first.append([BODY], "2026-11-30")
    (tmp_path / f"{DAY}.jsonl").unlink()
    assert first.lacks([known]) is None
    (tmp_path / "2026-11-30.jsonl").unlink()
    first.close()
    assert Chain(tmp_path).lacks([known]) == known


@pytest.mark.parametrize("forged", [False, True])
def test_a_start_finds_that_records_were_changed_or_cut_off(tmp_path: Path, forged: bool) -> None:
    first = Chain(tmp_path)
    first.append([BODY] * 3, DAY)
    known = first.head
    first.append([BODY], DAY)
    first.close()
    second = Chain(tmp_path)
    assert second.lacks([known, ChainHead(chain="0" * 64, seq=9, digest="")]) is None
    second.close()
    path = tmp_path / f"{DAY}.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)
    if forged:
        path.unlink()
        (tmp_path / "lock").write_text(first.id)
        again = Chain(tmp_path)
        again.append([BODY.replace(b"sent", b"held")] * 4, DAY)
        again.close()
    else:
        path.write_bytes(b"".join(kept[:2]))
    assert Chain(tmp_path).lacks([known]) == known
