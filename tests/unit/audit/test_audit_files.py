"""The audit is read in order of time, from either end, in pieces, and whatever stands in its files."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.audit import audit_files
from daemon.audit.audit_files import AuditQuery, Entry, chains, entries, query, read
from daemon.audit.inspection import words
from daemon.audit.record import Decision
from daemon.safety.escape import visible
from tests.unit.audit.chaining import START, began, lines_of, record, some, written
from tests.unit.cases import cases

EVERYTHING = AuditQuery()
DAY_ONE, DAY_TWO = "2026-11-27.jsonl", "2026-11-28.jsonl"


def seqs(found: Iterator[Entry]) -> list[int | None]:
    """The numbers of records; None for malformed lines."""
    return [None if each.record is None else each.record.seq for each in found]


def test_records_are_read_from_either_end_over_files_and_parts(tmp_path: Path) -> None:
    lines = some(30)
    names = [DAY_ONE, "2026-11-27.1.jsonl", "2026-11-27.2.jsonl", "2026-11-27.10.jsonl", DAY_TWO]
    written(tmp_path, {name: lines[at * 6 : at * 6 + 6] for at, name in enumerate(names)})
    (tmp_path / "other.jsonl").write_bytes(b"x\n")
    assert seqs(read(tmp_path, EVERYTHING)) == [*range(1, 31)]
    assert seqs(read(tmp_path, EVERYTHING, newest_first=True)) == [*range(30, 0, -1)]


@pytest.mark.parametrize("name", ["9999-99-99", "0000-01-01", "2026-00-10", "2026-02-30", "٢٠٢٦-11-29"])
def test_a_file_whose_name_is_no_date_does_not_hide_records(tmp_path: Path, name: str) -> None:
    written(tmp_path, {DAY_ONE: some(2), f"{name}.jsonl": [b"x"]})
    assert [each for each in seqs(read(tmp_path, EVERYTHING)) if each] == [1, 2]
    assert [each for each in seqs(read(tmp_path, EVERYTHING, newest_first=True)) if each] == [2, 1]


some_lines = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20)


@given(some_lines, st.integers(1, 40))
def test_a_file_has_the_same_lines_from_both_ends_in_blocks_of_any_size(lines: list[bytes], block: int) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_files, "BLOCK", block)
        chain = written(Path(directory), {DAY_ONE: lines})
        whole = [line + b"\n" for line in lines]
        assert [each.line for each in entries(chain)] == whole
        assert [each.line for each in entries(chain, newest_first=True)] == whole[::-1]


def test_several_chains_are_merged_by_time(tmp_path: Path) -> None:
    for name, start in (("", 0), ("2", 1), ("3", 2)):
        each = [record(start + number, session=f"{start + number}") for number in range(1, 12, 3)]
        written(tmp_path / name, {DAY_ONE: lines_of(each)})
    written(tmp_path / "lost+found", {DAY_ONE: some(3)})
    assert [each.name for each in chains(tmp_path)] == [tmp_path.name, "2", "3"]
    found = [each.record and each.record.session for each in read(tmp_path, EVERYTHING)]
    assert found == [str(number) for number in range(1, 13)]
    backwards = [each.record and each.record.session for each in read(tmp_path, EVERYTHING, newest_first=True)]
    assert backwards == found[::-1]


RECORDS = [
    began(),
    record(2, session="#4"),
    record(3, session="4", tool="git_reset"),
    record(4, Decision.REFUSED, server="git", tool="git_reset", rule="permissions"),
    record(5, server="time", tool="now"),
    record(24 * 60, session="key"),
]


@cases("wanted", "found")
def test_a_query_finds_what_fits(tmp_path: Path, wanted: list[Any], found: list[int]) -> None:
    lines = lines_of(RECORDS)
    written(tmp_path, {DAY_ONE: lines[:5], DAY_TWO: lines[5:]})
    assert seqs(read(tmp_path, query(*wanted))) == found
    assert seqs(read(tmp_path, query(*wanted), newest_first=True)) == found[::-1]


def test_a_malformed_line_is_an_entry_next_to_its_neighbour(tmp_path: Path) -> None:
    lines = some(4)
    naive = lines[2].replace(b"Z", b"")
    deep = lines[2].replace(b"}", b',"details":{"a":' + b"[" * 100_000 + b"}")
    for broken in (b"", deep, b"\xff", b"[" * 100_000, b'{"seq":"1"}', b"null", naive, b"\r"):
        written(tmp_path, {DAY_ONE: [*lines[:2], broken, *lines[2:]]})
        assert seqs(read(tmp_path, query("git", "", "", ()))) == [2, None, 3, 4]
        assert seqs(read(tmp_path, EVERYTHING, newest_first=True)) == [4, 3, None, 2, 1]
    assert [*read(tmp_path, EVERYTHING)][2].at == (START + timedelta(minutes=2)).timestamp()


def test_half_a_line_is_not_read(tmp_path: Path) -> None:
    written(tmp_path, {DAY_ONE: some(3)})
    with (tmp_path / DAY_ONE).open("ab") as file:
        file.write(some(4)[3])
    assert seqs(read(tmp_path, EVERYTHING)) == [1, 2, 3]
    assert seqs(read(tmp_path, EVERYTHING, newest_first=True)) == [3, 2, 1]


class Counted(io.FileIO):
    """A file that counts what is read of it."""

    bytes_read = 0

    def read(self, *how: Any) -> bytes:
        """Read, and count."""
        found = super().read(*how)
        Counted.bytes_read += len(found)
        return found


def test_the_newest_of_many_records_cost_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = some(2)[1]
    with (written(tmp_path, {}) / DAY_ONE).open("wb") as file:
        for _ in range(200):
            file.write((line + b"\n") * 1000)
    monkeypatch.setattr(Counted, "bytes_read", 0)
    monkeypatch.setattr(audit_files, "open", lambda path, *_mode, **_how: Counted(path), raising=False)
    assert len([*islice(read(tmp_path, EVERYTHING, newest_first=True), 50)]) == 50
    assert 0 < Counted.bytes_read <= audit_files.BLOCK


def test_an_endless_line_is_taken_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_files, "LONGEST", 1000)
    monkeypatch.setattr(audit_files, "BLOCK", 100)
    written(tmp_path, {DAY_ONE: [b"x" * 10_000, *some(1)]})
    for newest_first in (False, True):
        pieces = [each.line for each in entries(tmp_path, newest_first=newest_first)]
        assert len(pieces) > 5
        assert max(map(len, pieces)) <= 1101


def test_days_before_the_wanted_time_are_not_opened(tmp_path: Path) -> None:
    written(tmp_path, {DAY_TWO: some(2)})
    (tmp_path / DAY_ONE).mkdir()
    since = datetime(2026, 11, 28, tzinfo=UTC).timestamp()
    assert [*read(tmp_path, AuditQuery(since=since))] == []
    with pytest.raises(IsADirectoryError):
        [*read(tmp_path, EVERYTHING)]


def test_a_file_that_expires_meanwhile_is_passed_over_and_a_link_is_not_followed(tmp_path: Path) -> None:
    lines = some(4)
    written(tmp_path, {DAY_ONE: lines[:2], DAY_TWO: lines[2:]})
    found = read(tmp_path, EVERYTHING)
    first = next(found)
    assert first.record is not None
    (tmp_path / DAY_TWO).unlink()
    assert seqs(found) == [2]
    written(tmp_path / "elsewhere", {DAY_ONE: some(2)})
    (tmp_path / DAY_TWO).symlink_to(tmp_path / "elsewhere" / DAY_ONE)
    with pytest.raises(OSError, match="symbolic links"):
        [*read(tmp_path, EVERYTHING)]


def test_words_name_subject_actor_reason_and_outcome() -> None:
    who = {"session": "#4", "client": "claude", "principal": "uid 1000"}
    told = record(2, Decision.SENT, **who, rule="ask", by="token ops", outcome="isError")
    assert words(told) == ("git/git_log", "uid 1000, claude, session #4", "ask; by token ops", "isError")
    assert words(began()) == ("mcpd", "mcpd", f"chain: {'c0' * 32}, version: 1.0", "")
    hidden = record(2, Decision.COMMAND, tool="x", method="y", details={"name": "\u202e\x1b", "of": ["\x7f"]})
    assert visible(words(hidden)[2]) == 'name: \\u202e\\x1b, of: ["\\u007f"]'
