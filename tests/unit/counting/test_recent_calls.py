"""The last calls, and the last errors of each server: bounded, whatever is called."""

from daemon.catalog.loaded import anonymous_key
from daemon.counting.recent_calls import (
    FAILURES,
    KEPT,
    NAME,
    TEXT,
    CallFailure,
    RecentCall,
    RecentCalls,
    named_key,
)
from daemon.counting.tally import MAX_SERVERS

NOW = 1_800_000_000.0


def call(tool: str = "echo") -> RecentCall:
    """A call that has ended."""
    return RecentCall(NOW, 1, None, "agent 1", "", "git", tool, 0.1, "ok")


def test_calls_are_numbered_and_the_newest_are_kept() -> None:
    recent = RecentCalls(lambda: NOW)
    recent.publish((1, [call("first")]))
    recent.publish((KEPT + 1, [call(str(number)) for number in range(KEPT)]))
    assert recent.newest.value == KEPT + 2
    found = recent.after(0)
    assert (len(found), found[0], found[-1]) == (KEPT, (3, call("0")), (KEPT + 2, call(str(KEPT - 1))))
    assert recent.after(KEPT + 1) == [(KEPT + 2, call(str(KEPT - 1)))]
    assert recent.after(KEPT + 2) == []


def test_the_last_errors_of_a_server_are_kept_and_cut() -> None:
    recent = RecentCalls(lambda: NOW)
    for number in range(FAILURES + 3):
        recent.failed("git", "x" * (NAME + 1), f"code{number}", "y" * (TEXT + 1))
    found = recent.failures("git")
    assert len(found) == FAILURES
    assert found[-1] == CallFailure(at=NOW, tool="x" * NAME, code=f"code{FAILURES + 2}", text="y" * TEXT)
    assert recent.failures("time") == ()


def test_errors_of_so_many_servers_are_kept() -> None:
    recent = RecentCalls(lambda: NOW)
    for number in range(MAX_SERVERS + 1):
        recent.failed(f"s{number}", "t", "c", "")
    assert not recent.failures("s0")
    assert recent.failures(f"s{MAX_SERVERS}")


def test_a_key_that_nobody_has_chosen_is_not_shown() -> None:
    assert named_key("project") == "project"
    assert anonymous_key("0123456789abcdef" * 2)
    assert named_key(None) is None
    assert named_key(anonymous_key("0123456789abcdef" * 2)) is None
