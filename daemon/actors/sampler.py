"""The sampler: closes each minute of the measurements, of every server and of the daemon.

It wakes at the full minute of the wall clock, and counts the calls in flight when calls have ended, which the
log of calls reports four times a second at most. Memory is measured once a minute, in a worker thread, if a
server is a child.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import trio
from loguru import logger

from daemon.counting.recent_calls import RecentCalls
from daemon.counting.series import SECONDS, MinuteOfDaemon, MinuteOfServer, Series
from daemon.counting.tally import INSTEAD, SPARED, Tally, hourly
from daemon.processes.marks import memory_by_mark
from daemon.upstreams.servers import InstancedServer
from daemon.upstreams.upstream_access import UpstreamAccess

LEAST = 1.0
"""Fewest seconds until the next sample: clocks differ, and a minute must not be closed twice."""


class SampledDaemon(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of the measurements."""

    upstreams: Mapping[str, UpstreamAccess | InstancedServer]
    """The running servers by name."""
    actors: Mapping[str, UpstreamAccess | InstancedServer]
    """Shared servers, and the instances of the others, by their own names."""
    tally: Tally
    recent: RecentCalls


class Sampler:
    """The actor that measures; `run` never returns."""

    def __init__(
        self,
        sources: SampledDaemon,
        series: Series,
        wall: Callable[[], float],
        measure: Callable[[], Mapping[int, int]] = memory_by_mark,
    ) -> None:
        """Start without measurements; `measure` returns resident bytes by mark, and blocks."""
        self._sources = sources
        self._series = series
        self._wall = wall
        self._measure = measure
        self._most: dict[str, int] = {}
        self._counted = hourly(sources.tally)
        self._failing = False

    async def run(self) -> None:
        """Measure until cancelled; a measurement that fails is left out."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_calls)
            while True:
                left = SECONDS - self._wall() % SECONDS
                await trio.sleep(left if left >= LEAST else left + SECONDS)
                try:
                    await self._sample()
                except Exception as error:  # noqa: BLE001 - the boundary of the actor
                    if not self._failing:
                        logger.opt(exception=error).error("cannot measure the servers: charts will have gaps")
                    self._failing = True
                else:
                    self._failing = False

    async def _follow_calls(self) -> None:
        newest = self._sources.recent.newest
        while True:
            await newest.wait_changed(newest.value)
            self._look()

    def _look(self) -> None:
        """Note the calls in flight, if they are more than before in this minute."""
        for name, each in self._sources.upstreams.items():
            if each.in_flight > self._most.get(name, 0):
                self._most[name] = each.in_flight

    async def _sample(self) -> None:
        # Woken at its end, or a moment before or after.
        at = (round(self._wall() / SECONDS) - 1) * SECONDS
        self._look()
        most, self._most = self._most, {}
        resident = await self._resident()
        servers, now = self._sources.upstreams, trio.current_time()
        windows = {name: each.stats.turn(now) for name, each in servers.items()}
        shared = {id(each.stats) for each in servers.values()}
        for each in self._sources.actors.values():
            if id(each.stats) not in shared:
                each.stats.turn(now)
        measured = {
            name: MinuteOfServer(
                at,
                window.calls,
                window.errors,
                window.p50_ms,
                window.p95_ms,
                most.get(name, 0),
                resident.get(name),
            )
            for name, window in windows.items()
        }
        self._series.note(self._of_daemon(at), measured)

    async def _resident(self) -> dict[str, int]:
        """Resident bytes by server, of those that are children."""
        marks = {mark: each.of for each in self._sources.actors.values() for mark in each.children.values()}
        found: dict[str, int] = {}
        if marks:
            for mark, size in (await trio.to_thread.run_sync(self._measure)).items():
                if mark in marks:
                    found[marks[mark]] = found.get(marks[mark], 0) + size
        return found

    def _of_daemon(self, at: int) -> MinuteOfDaemon:
        now, before = hourly(self._sources.tally), self._counted
        self._counted = now
        more = {name: count - before.get(name, 0) for name, count in now.items()}
        return MinuteOfDaemon(
            at,
            more[SPARED] - more[INSTEAD],
            more["loads"],
            more["loadHits"],
            more["loadMisses"],
            more["invalidations"],
            more["extraRoundTrips"],
        )
