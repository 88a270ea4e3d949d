"""What a session has loaded: replaced, never changed, and bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.catalog.loaded import MAX_LOADED, VALID, Loaded, LoadedStatus, Source, Verdict
from tests.unit.catalog.samples import tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.catalog.loaded import LoadedTool

READ = tool("fs", "read")
WRITE = tool("fs", "write")


def loading(loaded: Loaded, *names: str, source: Source = Source.MANUAL) -> Loaded:
    return loaded.adding([(tool("fs", name), 1) for name in names], source, at=5.0)


def test_a_tool_is_remembered_as_it_was_when_it_was_loaded() -> None:
    loaded = Loaded().adding([(READ, 3)], Source.AUTO, at=7.0)
    remembered = loaded.tools["fs", "read"]
    assert (remembered.schema_hash, remembered.epoch, remembered.source, remembered.at) == (
        READ.schema_hash,
        3,
        "auto",
        7.0,
    )
    assert ("fs", "read") in loaded
    assert ("fs", "write") not in loaded


def test_what_is_loaded_already_changes_nothing() -> None:
    loaded = loading(Loaded(), "read")
    assert loading(loaded, "read", source=Source.AUTO) is loaded
    assert loaded.adding([], Source.MANUAL, at=9.0) is loaded


def test_a_tool_that_changed_is_loaded_anew_and_stands_last() -> None:
    loaded = loading(Loaded(), "read", "write")
    changed = tool("fs", "read", description="another")
    again = loaded.adding([(changed, 2)], Source.MANUAL, at=9.0)
    assert list(again.tools) == [("fs", "write"), ("fs", "read")]
    assert again.tools["fs", "read"].schema_hash == changed.schema_hash
    assert loaded.tools["fs", "read"].schema_hash != changed.schema_hash


@pytest.mark.parametrize("first", [1, MAX_LOADED - 1, MAX_LOADED])
def test_beyond_the_bound_those_loaded_first_leave(first: int) -> None:
    names = [f"t{number}" for number in range(MAX_LOADED + first)]
    loaded = loading(loading(Loaded(), *names[:first]), *names[first:])
    assert len(loaded.tools) == MAX_LOADED
    assert [name for _, name in loaded.tools] == names[-MAX_LOADED:]


# --- verdicts ------------------------------------------------------------------------------------------------

GONE = Verdict(status=LoadedStatus.INVALID_DELETED, reason="gone")
OFF = Verdict(status=LoadedStatus.INVALID_DISABLED, reason="off")


def judging(**verdicts: Verdict) -> Callable[[LoadedTool], Verdict]:
    return lambda each: verdicts.get(each.key[1], VALID)


def test_what_is_loaded_is_valid_until_somebody_judges_otherwise() -> None:
    read = loading(Loaded(), "read").tools["fs", "read"]
    assert (read.verdict, read.judged_at) == (VALID, 0.0)
    assert read.verdict.valid


@pytest.mark.parametrize("status", LoadedStatus)
def test_only_the_valid_status_is_valid(status: LoadedStatus) -> None:
    assert Verdict(status=status).valid is (status == "valid")


def test_a_verdict_is_kept_with_its_time_in_the_same_place() -> None:
    judged = loading(Loaded(), "read", "write").judged(judging(read=GONE), at=9.0)
    assert list(judged.tools) == [("fs", "read"), ("fs", "write")]
    assert (judged.tools["fs", "read"].verdict, judged.tools["fs", "read"].judged_at) == (GONE, 9.0)
    assert (judged.tools["fs", "write"].verdict, judged.tools["fs", "write"].judged_at) == (VALID, 0.0)
    assert ("fs", "read") in judged


def test_the_same_verdicts_again_change_nothing() -> None:
    loaded = loading(Loaded(), "read", "write")
    assert loaded.judged(judging(), at=9.0) is loaded
    judged = loaded.judged(judging(read=GONE), at=9.0)
    assert judged.judged(judging(read=Verdict(status=GONE.status, reason=GONE.reason)), at=11.0) is judged
    assert Loaded().judged(judging(read=GONE), at=9.0) == Loaded()


@pytest.mark.parametrize(
    "verdict", [OFF, Verdict(status=GONE.status, reason="another"), Verdict(status=GONE.status, renamed_to="x")]
)
def test_another_verdict_or_reason_counts_from_its_own_time(verdict: Verdict) -> None:
    judged = loading(Loaded(), "read").judged(judging(read=GONE), at=9.0)
    again = judged.judged(judging(read=verdict), at=11.0).tools["fs", "read"]
    assert (again.verdict, again.judged_at) == (verdict, 11.0)


def test_what_can_be_used_again_is_valid_again() -> None:
    judged = loading(Loaded(), "read").judged(judging(read=OFF), at=9.0).judged(judging(), at=11.0)
    assert (judged.tools["fs", "read"].verdict, judged.tools["fs", "read"].judged_at) == (VALID, 11.0)


def test_an_invalid_tool_that_is_loaded_again_begins_anew() -> None:
    judged = loading(Loaded(), "read", "write").judged(judging(read=GONE), at=9.0)
    again = judged.adding([(READ, 4), (WRITE, 4)], Source.AUTO, at=12.0)
    assert list(again.tools) == [("fs", "write"), ("fs", "read")]
    read = again.tools["fs", "read"]
    assert (read.verdict, read.judged_at, read.at, read.epoch, read.source) == (VALID, 0.0, 12.0, 4, "auto")
    assert again.tools["fs", "write"] is judged.tools["fs", "write"]


def test_invalid_tools_count_against_the_bound_too() -> None:
    full = loading(Loaded(), *(f"t{number}" for number in range(MAX_LOADED)))
    judged = full.judged(judging(t0=GONE, t1=GONE), at=9.0)
    more = loading(judged, "new")
    assert len(more.tools) == MAX_LOADED
    assert ("fs", "t0") not in more
    assert ("fs", "t1") in more


# --- two that are put together -------------------------------------------------------------------------------


def test_what_was_loaded_later_stands_last_and_counts() -> None:
    earlier = loading(Loaded(), "read", "write").judged(judging(read=GONE), at=9.0)
    later = loading(Loaded(), "new", "read")
    assert list(earlier.joined(later).tools) == [("fs", "write"), ("fs", "new"), ("fs", "read")]
    assert earlier.joined(later).tools["fs", "read"].verdict == VALID


def test_nothing_joined_changes_nothing() -> None:
    loaded = loading(Loaded(), "read")
    assert loaded.joined(Loaded()) is loaded
    assert Loaded().joined(loaded) == loaded


def test_two_full_ones_are_as_bounded_as_one() -> None:
    one, other = (loading(Loaded(), *(f"{letter}{number}" for number in range(MAX_LOADED))) for letter in "ab")
    assert one.joined(other) == other
