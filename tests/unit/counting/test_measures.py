"""Small memories: bounded, whatever is thrown at them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.counting import measures
from daemon.safety.redact import CUT, Redactor

cut = Redactor(()).cut

ALL = measures.STDERR_LINES + 1


def tail_of(*lines: str) -> measures.StderrTail:
    tail = measures.StderrTail()
    for line in lines:
        tail.add(line)
    return tail


def test_the_tail_gives_the_newest_lines_oldest_first_and_numbers_them() -> None:
    tail = tail_of("a", "b", "c")
    assert tail.last(2) == ["b", "c"]
    assert tail.last(10) == ["a", "b", "c"]
    assert tail.last(0) == []
    assert [line[:2] for line in tail.after(0)] == [(1, "a"), (2, "b"), (3, "c")]
    assert [line.text for line in tail.after(2)] == ["c"]
    assert tail.after(3) == tail.after(99) == []
    assert (tail.newest.value, len(tail)) == (3, 3)


def test_notices_of_npm_do_not_hide_the_last_words() -> None:
    tail = tail_of("Fatal: no licence", "npm notice", "npm notice New minor version of npm available!")
    assert tail.last(1) == ["Fatal: no licence"]
    assert len(tail.after(0)) == 3


def test_long_lines_push_old_ones_out() -> None:
    tail = measures.StderrTail()
    tail.add("old")
    tail.add("x" * (measures.STDERR_BYTES - 2))
    assert [line[:3] for line in tail.last(ALL)] == ["xxx"]
    tail.add("no")
    assert tail.last(ALL)[-1] == "no"


@pytest.mark.parametrize("character", ["a", "é", "深", "🙂"])
def test_the_tail_never_holds_more_bytes_than_it_may(character: str) -> None:
    tail = measures.StderrTail()
    for length in (0, 9000, 1, measures.STDERR_BYTES // 4, measures.STDERR_BYTES, *range(0, 2000, 7)):
        tail.add(character * length)
        assert sum(len(line.encode()) for line in tail.last(ALL)) <= measures.STDERR_BYTES


def test_lines_have_times_and_the_runs_that_wrote_them() -> None:
    tail = measures.StderrTail()
    for run, line in ((1, "FATAL: no licence"), (2, "starting"), (2, "serving")):
        tail.add(line, at=100.0 + run, run=run)
    assert [(line.at, line.run) for line in tail.after(1)] == [(102.0, 2), (102.0, 2)]
    assert tail.last(10, run=1) == ["FATAL: no licence"]
    assert tail.last(1, run=2) == ["serving"]
    assert tail.last(10, run=3) == []


def test_numbers_go_on_when_old_lines_make_room() -> None:
    tail = measures.StderrTail()
    for number in range(1, measures.STDERR_LINES + 11):
        tail.add(str(number))
    kept = tail.after(3)
    assert (kept[0][:2], kept[-1][:2]) == (
        (11, "11"),
        (measures.STDERR_LINES + 10, str(measures.STDERR_LINES + 10)),
    )
    assert len(tail) == len(kept) == measures.STDERR_LINES
    assert tail.after(measures.STDERR_LINES + 8) == kept[-2:]
    assert measures.StderrTail().birth != measures.StderrTail().birth


LINE = "x" * (1024 - measures.LOG_LINE_COSTS)
BURST = measures.LOG_BURST_BYTES // 1024
"""Lines of a KiB, all told, that fit at once."""


def test_a_burst_goes_to_the_log_whole_and_what_is_left_out_until_there_is_room_is_counted() -> None:
    share = measures.LogShare()
    said = [share.lines(LINE, 1e6) for _ in range(BURST + 100)]
    assert said[:BURST] == [(f"stderr: {LINE}",)] * BURST
    assert [len(each) for each in said[BURST:]] == [1, *[0] * 99]
    assert "left out" in said[BURST][0]
    opens = measures.LOG_RESUMES_BYTES / measures.LOG_BYTES_PER_SECOND
    assert share.lines(LINE, 1e6 + opens - 0.01) == ()
    assert share.lines("again", 1e6 + opens) == (
        "101 lines of its stderr were left out (101 KiB)",
        "stderr: again",
    )
    assert share.lines("and again", 1e6 + opens) == ("stderr: and again",)


@given(sizes=st.lists(st.integers(0, 8 * 1024), max_size=50), pause=st.floats(0, 5))
def test_whatever_a_server_writes_the_log_gets_its_share_and_no_more(sizes: list[int], pause: float) -> None:
    share, now, logged, said = measures.LogShare(), 0.0, 0, 0
    for size in sizes * 20:
        now += pause
        lines = share.lines("ä" * (size // 2), now)
        said += sum("left out" in line for line in lines)
        logged += sum(
            len(line.encode()) - len("stderr: ") + measures.LOG_LINE_COSTS
            for line in lines
            if line.startswith("stderr: ")
        )
    assert logged <= measures.LOG_BURST_BYTES + now * measures.LOG_BYTES_PER_SECOND
    assert said <= 2 + 2 * now * measures.LOG_BYTES_PER_SECOND / measures.LOG_RESUMES_BYTES


def test_noise_is_too_much_past_a_thousand_lines_in_ten_seconds() -> None:
    noise = measures.Noise()
    verdicts = [noise.add(b"junk", 50.0, cut) for _ in range(measures.NOISE_LINES + 3)]
    # Said once: what each further line costs is paid by everybody else.
    assert verdicts == [False] * measures.NOISE_LINES + [True, False, False]
    later = [noise.add(b"junk", 51.0 + measures.NOISE_SECONDS, cut) for _ in range(measures.NOISE_LINES + 1)]
    assert later == verdicts[:-2]


def test_noise_that_trickles_is_never_too_much() -> None:
    noise = measures.Noise()
    step = measures.NOISE_SECONDS / (measures.NOISE_LINES - 2)
    assert not any(noise.add(b"junk", 50.0 + number * step, cut) for number in range(measures.NOISE_LINES * 5))
    assert noise.count == measures.NOISE_LINES * 5


def test_the_first_line_of_noise_is_kept_short_and_readable() -> None:
    noise = measures.Noise()
    noise.add(b"\xff" + b"x" * 1000, 0.0, cut)
    noise.add(b"second", 0.0, cut)
    assert noise.first == "\ufffd" + "x" * (measures.NOISE_CHARACTERS - 1) + CUT


def test_a_ceiling_is_broken_by_several_measurements_in_a_row() -> None:
    ceiling = measures.Ceiling(100, 3)
    measured = [101, 101, 100, 101, 500, 101, 101, 7]
    assert [ceiling.is_broken_by(each) for each in measured] == [False] * 5 + [True, True, False]
