"""Nobody edits the audit unseen: each change to the files is found, by the chain alone or by a head."""

import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.audit.inspection import NAMED, CheckedChain, heads_in, verify
from daemon.audit.record import ChainHead, Decision, digest
from tests.unit.audit.chaining import CHAIN, began, head_of, lines_of, record, some, written

FILES = ("2026-11-27.jsonl", "2026-11-28.jsonl", "2026-11-28.1.jsonl")
COUNT = 12
LINES = some(COUNT)
HEAD = head_of(LINES)

places = st.integers(0, COUNT - 1)
cuts = st.lists(st.integers(0, COUNT), min_size=2, max_size=2).map(sorted)


def one(
    lines: Sequence[bytes], heads: Sequence[ChainHead] = (HEAD,), at: Sequence[int] = (4, 8)
) -> CheckedChain:
    """The outcome for lines that are written as three files."""
    first, second = at
    parts = dict(zip(FILES, (lines[:first], lines[first:second], lines[second:]), strict=True))
    with TemporaryDirectory() as directory:
        ((chain,), _others) = verify(written(Path(directory), parts), heads)
    return chain


@given(cuts)
def test_a_chain_is_intact_wherever_its_files_end(at: list[int]) -> None:
    chain = one(LINES, at=at)
    assert (chain.faults, chain.torn, chain.first, chain.last, chain.id) == ([], "", 1, COUNT, CHAIN)
    assert (chain.vouched, chain.digest) == (COUNT, HEAD.digest)


@given(st.data())
def test_an_edit_of_any_byte_is_found(data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in LINES)
    at = data.draw(st.integers(0, len(whole) - 1))
    edited = bytes([data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[at]))])
    with TemporaryDirectory() as directory:
        Path(directory, FILES[0]).write_bytes(whole[:at] + edited + whole[at + 1 :])
        ((chain,), _others) = verify(Path(directory), [HEAD])
    assert chain.faults


@given(places, cuts)
def test_a_deleted_record_is_found(place: int, at: list[int]) -> None:
    assert one(LINES[:place] + LINES[place + 1 :], at=at).faults


@given(st.integers(1, COUNT - 2))
def test_a_record_deleted_in_the_middle_is_found_without_a_head(place: int) -> None:
    assert "removed" in "".join(one(LINES[:place] + LINES[place + 1 :], ()).faults)


@given(st.integers(0, COUNT), st.one_of(st.binary(max_size=40), st.sampled_from([*LINES, *some(3, "ee" * 32)])))
def test_an_inserted_line_is_found(place: int, line: bytes) -> None:
    assert one([*LINES[:place], line.replace(b"\n", b""), *LINES[place:]], ()).faults


@given(places, places)
def test_two_swapped_records_are_found(one_place: int, other: int) -> None:
    lines = [*LINES]
    lines[one_place], lines[other] = lines[other], lines[one_place]
    assert bool(one(lines, ()).faults) is (one_place != other)


@given(st.integers(1, COUNT - 1), cuts)
def test_a_cut_end_is_found_with_a_head_and_not_without(left: int, at: list[int]) -> None:
    assert one(LINES[:left], (), at=at).faults == []
    assert "cut off" in "".join(one(LINES[:left], at=at).faults)


@given(st.integers(2, COUNT), st.integers(1, COUNT))
def test_a_chain_that_was_computed_again_is_found_with_a_later_head(place: int, seq: int) -> None:
    tools = {place: "git_reset"}
    lines = lines_of([began(), *(record(each, tool=tools.get(each, "git_log")) for each in range(2, 13))])
    assert one(lines, ()).faults == []
    head = head_of(LINES, seq)
    assert bool(one(lines, (head,)).faults) is (seq >= place)


def test_a_chain_that_was_replaced_by_another_is_missing(tmp_path: Path) -> None:
    written(tmp_path, {FILES[0]: some(COUNT, "ee" * 32)})
    ((chain,), others) = verify(tmp_path, [HEAD])
    assert (chain.faults, chain.id, chain.vouched, others) == ([], "ee" * 32, 0, [HEAD])


def test_each_of_several_chains_is_checked_and_has_heads_of_its_own(tmp_path: Path) -> None:
    written(tmp_path, {FILES[0]: LINES})
    other = some(5, "ee" * 32)
    written(tmp_path / "2", {FILES[0]: other})
    heads = [HEAD, head_of(other, 4, "ee" * 32), ChainHead(chain="", seq=5, digest=digest(other[4]))]
    chains, others = verify(tmp_path, heads)
    found = [(each.directory, each.faults, each.vouched) for each in chains]
    assert (found, others) == ([(tmp_path, [], COUNT), (tmp_path / "2", [], 5)], [])
    written(tmp_path / "2", {FILES[0]: other[:3]})
    chains, _others = verify(tmp_path, heads[:2])
    assert [bool(each.faults) for each in chains] == [False, True]


def expired() -> tuple[list[bytes], ChainHead]:
    """A chain whose first file has expired, and a head of that file."""
    note = record(6, Decision.EXPIRED, details={"file": FILES[0], "through": 4, "head": digest(LINES[3])})
    lines = LINES[:5] + lines_of([note, record(7)], digest(LINES[4]), 6)
    return lines, head_of(LINES, 3)


def test_files_that_have_expired_are_not_missed_and_their_heads_are_too_old(tmp_path: Path) -> None:
    lines, old = expired()
    heads = [old, ChainHead(chain=CHAIN, seq=7, digest=digest(lines[6]))]
    # The daemon's first record has expired, too: its lock has the chain's id.
    (written(tmp_path, {FILES[1]: lines[4:]}) / "lock").write_text(f"123 {CHAIN}\n")
    ((chain,), others) = verify(tmp_path, heads)
    assert (chain.faults, chain.first, chain.last, chain.vouched, others) == ([], 5, 7, 7, [])
    (tmp_path / FILES[1]).write_bytes(b"\n".join(lines[4:6]) + b"\n")
    ((chain,), others) = verify(tmp_path, heads)
    assert (bool(chain.faults), chain.vouched, others) == (True, 0, [])


@pytest.mark.parametrize("left", [1, 2, 3, 5])
def test_another_beginning_than_the_one_that_expired_is_found(left: int) -> None:
    lines, _head = expired()
    assert "begins with record" in "".join(one(lines[left:], (), at=(0, 1)).faults)


def test_a_deleted_first_file_is_found_and_a_fault_names_its_file_and_line() -> None:
    assert "begins with record 5" in one(LINES[4:], (), at=(0, 3)).faults[0]
    lines = [*LINES]
    lines[5] = lines[5].replace(b"git_log", b"git_lag")
    (fault,) = one(lines, ()).faults
    assert fault.endswith(
        f"{FILES[1]} line 3: does not contain the digest of record 6: one of the two was changed"
    )


def test_half_a_line_at_the_end_is_no_fault_and_anywhere_else_is_one(tmp_path: Path) -> None:
    written(tmp_path, dict(zip(FILES, (LINES[:6], LINES[6:], ()), strict=True)))
    with (tmp_path / FILES[1]).open("ab") as file:
        file.write(b'{"seq":13,"prev"')
    ((chain,), _others) = verify(tmp_path, [HEAD])
    assert (chain.faults, chain.torn) == ([], f"{tmp_path / FILES[1]} line 7")
    written(tmp_path, {FILES[0]: LINES[:5], FILES[2]: LINES[:1]})
    ((chain,), _others) = verify(tmp_path, [])
    assert ["an incomplete line" in each for each in chain.faults[:2]] == [False, True]


@pytest.mark.parametrize("lines", [LINES, expired()[0][4:]], ids=["first", "expired"])
@pytest.mark.parametrize("seq", [0, -1])
def test_a_record_put_before_the_first_one_is_found(lines: list[bytes], seq: int) -> None:
    forged = lines_of([record(1, tool="git_reset")], seq=seq)
    assert "not a record" in one([*forged, *lines], (), at=(0, 0)).faults[0]


def test_a_chain_that_begins_after_all_copied_records_is_a_fault() -> None:
    """As if all of them had expired before another head was copied."""
    note = record(30, Decision.EXPIRED, details={"file": FILES[0], "through": COUNT, "head": HEAD.digest})
    forged = lines_of([note, record(31)], HEAD.digest, COUNT + 1)
    chain_id = began(at=note.at)
    lines = [*forged, *lines_of([chain_id], digest(forged[-1]), COUNT + 3)]
    (fault,) = one(lines, at=(0, 0)).faults
    assert "record 12 differs from its copy" in fault
    assert one(lines, (), at=(0, 0)).faults == []


def test_a_file_renamed_to_an_earlier_day_is_found(tmp_path: Path) -> None:
    """Otherwise `--since` would not look into it."""
    written(tmp_path, {"2026-11-26.jsonl": LINES})
    ((chain,), _others) = verify(tmp_path, [HEAD])
    assert chain.faults[0].endswith("line 1: later than the day of its file: the file was renamed")


def test_only_the_first_faults_are_kept() -> None:
    lines = [b"x"] * (NAMED * 2)
    assert len([each for each in one(lines, ()).faults if "not a record" in each]) == NAMED


def test_a_line_of_any_bytes_is_a_fault_and_no_crash() -> None:
    noise = random.Random(34).randbytes(999).replace(b"\n", b"")
    for hostile in (b"[" * 100_000, b'{"seq":1}', b"\xff\xfe", b'{"at":5}', noise):
        assert one([*LINES[:6], hostile, *LINES[6:]], ()).faults


def test_heads_are_read_from_messages_of_the_journal_and_from_words() -> None:
    message = f'{{"MESSAGE":"audit head 7 {"a" * 64} of {CHAIN}"}}\n'
    assert heads_in(f"{message}9:{'b' * 64}") == [
        ChainHead(chain=CHAIN, seq=7, digest="a" * 64),
        ChainHead(chain="", seq=9, digest="b" * 64),
    ]
    assert heads_in("audit head 7 of nothing") == []


def test_a_daemon_that_found_records_changed_says_so_for_ever_after() -> None:
    found = record(2, Decision.BEGAN, details={"chain": CHAIN, "lacks": 7, "digest": "ab"})
    (fault,) = one(lines_of([began(), found, record(3)]), heads=()).faults
    assert fault.endswith("line 2: its daemon found record 7 changed or removed when it started")
