"""A day of minutes: bounded, compact, and without garbage when the clock jumps."""

from daemon.counting.recent_calls import MINUTES, MinuteOfDaemon, MinuteOfServer, Series
from daemon.counting.tally import MAX_SERVERS

START = 1_800_000_000 // 60 * 60


def minute(number: int, **measured: int) -> tuple[MinuteOfDaemon, dict[str, MinuteOfServer]]:
    """What is measured in a minute."""
    at = START + number * 60
    return MinuteOfDaemon(at, loads=number), {"git": MinuteOfServer(at, **measured)}


def test_what_was_measured_is_read_back() -> None:
    series = Series()
    daemon = MinuteOfDaemon(START, -5, 1, 2, 3, 4, 5)
    git = MinuteOfServer(START, 10, 2, 1.5, 20.25, 3, 50 << 20)
    idle = MinuteOfServer(START)
    series.note(daemon, {"git": git, "time": idle})
    assert series.daemon() == [daemon]
    assert (series.server("git"), series.server("time"), series.server("none")) == ([git], [idle], [])


def test_a_day_is_kept_and_the_oldest_minute_goes_first() -> None:
    series = Series()
    for number in range(MINUTES + 10):
        series.note(*minute(number))
    assert [each.at for each in series.server("git")] == [
        START + number * 60 for number in range(10, MINUTES + 10)
    ]
    assert [each.loads for each in series.daemon()] == list(range(10, MINUTES + 10))


def test_minutes_that_the_machine_slept_through_are_left_out() -> None:
    series = Series()
    for number in (0, 1, 700, MINUTES + 200):
        series.note(*minute(number, calls=1))
    assert [each.at for each in series.server("git")] == [START + 700 * 60, START + (MINUTES + 200) * 60]


def test_a_clock_that_is_set_back_shows_nothing_of_the_future() -> None:
    series = Series()
    for number in (100, 101, 50, 51, 100):
        series.note(*minute(number, calls=number))
    assert [(each.at - START) // 60 for each in series.server("git")] == [50, 51, 100]


def test_a_server_that_is_gone_is_forgotten_and_so_many_are_kept() -> None:
    series = Series()
    series.note(*minute(0))
    many = {f"s{number}": MinuteOfServer(START + 60) for number in range(MAX_SERVERS + 5)}
    series.note(MinuteOfDaemon(START + 60), many)
    assert not series.server("git")
    assert series.server(f"s{MAX_SERVERS - 1}")
    assert not series.server(f"s{MAX_SERVERS}")


def test_numbers_that_are_too_large_are_bounded() -> None:
    series = Series()
    series.note(
        MinuteOfDaemon(START, tokens_not_sent=-(2**40), loads=2**40),
        {"git": MinuteOfServer(START, calls=2**40, p50_ms=1.0, p95_ms=1.0, rss_bytes=2**50)},
    )
    (daemon,), (git,) = series.daemon(), series.server("git")
    assert (daemon.tokens_not_sent, daemon.loads) == (-(2**31), 2**32 - 1)
    assert (git.calls, git.rss_bytes) == (2**32 - 1, (2**32 - 1) << 10)
