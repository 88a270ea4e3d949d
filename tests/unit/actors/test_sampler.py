"""Each minute is closed once, with what was measured in it, whatever the clocks and the machine do."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from daemon.actors.sampler import Sampler
from daemon.counting.recent_calls import MinuteOfDaemon, MinuteOfServer, RecentCall, RecentCalls, Series
from daemon.counting.tally import CallStats
from tests.tallies import new_tally

pytestmark = pytest.mark.usefixtures("autojump_clock")

START = 1_800_000_000 // 60 * 60 + 10.0
"""Ten seconds after a full minute."""

FIRST = int(START) // 60 * 60


@attrs.define
class Fake:
    """A server, or an instance."""

    of: str
    children: dict[int, int] = attrs.field(factory=dict)
    in_flight: int = 0
    stats: CallStats = attrs.field(factory=CallStats)


class Daemon:
    """A daemon with a server that is shared and one that has an instance, and a sampler at work."""

    def __init__(self, nursery: trio.Nursery) -> None:
        servers: tuple[Any, ...] = Fake("git", children={1: 7}), Fake("web"), Fake("web", children={1: 8})
        self.git, self.web, self.instance = servers
        self.tally = new_tally(["git", "web"])
        self.recent, self.series = RecentCalls(self.wall), Series()
        self.ahead = 0.0
        self.resident: Mapping[int, int] | None = {7: 10 << 20, 8: 20 << 20, 99: 1}
        self.began = trio.current_time()
        sampler = Sampler(
            {"git": self.git, "web": self.web},
            {"git": self.git, "web#1": self.instance},
            self.tally,
            self.recent,
            self.series,
            self.wall,
            self.measure,
        )
        nursery.start_soon(sampler.run)

    def wall(self) -> float:
        """The wall clock."""
        return START + self.ahead + (trio.current_time() - self.began)

    def measure(self) -> Mapping[int, int]:
        """As told."""
        if self.resident is None:
            raise OSError("no /proc here")
        return self.resident


async def test_a_minute_is_closed_when_it_is_over(nursery: trio.Nursery) -> None:
    daemon = Daemon(nursery)
    daemon.git.stats.record([0.5], ok=False)
    daemon.tally.loaded("auto", 3)
    daemon.tally.spared("search", 4000)
    await trio.sleep(49)
    assert not daemon.series.daemon()
    await trio.sleep(62)
    assert daemon.series.server("git") == [
        MinuteOfServer(FIRST, 1, 1, 500.0, 500.0, 0, 10 << 20),
        MinuteOfServer(FIRST + 60, rss_bytes=10 << 20),
    ]
    assert daemon.series.server("web")[0].rss_bytes == 20 << 20
    tokens = daemon.series.daemon()[0].tokens_not_sent
    assert tokens > 0
    assert daemon.series.daemon() == [
        MinuteOfDaemon(FIRST, tokens_not_sent=tokens, loads=3),
        MinuteOfDaemon(FIRST + 60),
    ]


async def test_the_most_calls_in_flight_are_seen_whenever_a_call_ends(nursery: trio.Nursery) -> None:
    daemon = Daemon(nursery)
    await trio.testing.wait_all_tasks_blocked()
    daemon.git.in_flight = 5
    daemon.recent.publish((1, [RecentCall(START, 1, None, "", "", "git", "t", 1.0, "ok")]))
    await trio.testing.wait_all_tasks_blocked()
    daemon.git.in_flight = 2
    await trio.sleep(111)
    assert [each.in_flight for each in daemon.series.server("git")] == [5, 2]


async def test_a_measurement_that_fails_leaves_a_gap(nursery: trio.Nursery) -> None:
    daemon = Daemon(nursery)
    daemon.resident = None
    await trio.sleep(55)
    daemon.resident = {}
    await trio.sleep(60)
    assert [each.at for each in daemon.series.server("git")] == [FIRST + 60]


async def test_a_clock_that_is_set_back_a_moment_moves_no_minute(nursery: trio.Nursery) -> None:
    daemon = Daemon(nursery)
    await trio.sleep(1)
    daemon.ahead = -0.4
    await trio.sleep(120)
    assert [each.at for each in daemon.series.server("git")] == [FIRST, FIRST + 60]


async def test_a_clock_that_jumps_costs_a_minute_at_most(nursery: trio.Nursery) -> None:
    daemon = Daemon(nursery)
    await trio.sleep(55)
    daemon.ahead = 3600.0
    await trio.sleep(60)
    daemon.ahead = -3600.0
    await trio.sleep(60)
    assert [each.at for each in daemon.series.server("git")] == [FIRST - 3600 + 120]
    daemon.ahead = 59.5
    await trio.sleep(180)
    minutes = [each.at for each in daemon.series.server("git")]
    assert minutes == sorted(set(minutes))
