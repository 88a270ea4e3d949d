"""The sampler: closes each minute of the measurements by the wall clock; a worker thread measures memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import trio
from loguru import logger

from daemon.counting.recent_calls import SECONDS, MinuteOfDaemon, MinuteOfServer, RecentCalls, Series
from daemon.counting.tally import INSTEAD, SPARED, Tally, hourly
from daemon.processes.marks import memory_by_mark
from daemon.upstreams.servers import InstancedServer
from daemon.upstreams.upstream_access import UpstreamAccess

LEAST = 1.0
"""Fewest seconds until the next sample: clocks differ, and no minute may be closed twice."""


@attrs.define(eq=False, repr=False)
class Sampler:
    """Measures calls and memory; `run` never returns."""

    _upstreams: Mapping[str, UpstreamAccess | InstancedServer]
    _actors: Mapping[str, UpstreamAccess | InstancedServer]
    """Shared servers, and the instances of divided servers, by their own names."""
    _tally: Tally
    _recent: RecentCalls
    _series: Series
    _wall: Callable[[], float]
    _measure: Callable[[], Mapping[int, int]] = memory_by_mark
    """Returns resident bytes by mark; blocks."""
    _most: dict[str, int] = attrs.field(factory=dict, init=False)
    _counted: Mapping[str, int] = attrs.field(init=False)
    _failing: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._counted = hourly(self._tally)

    async def run(self) -> None:
        """Measure until cancelled; a failed measurement is left out."""
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
        newest = self._recent.newest
        while True:
            await newest.wait_changed(newest.value)
            self._look()

    def _look(self) -> None:
        """Record the calls in flight, if they are more than before in this minute."""
        for name, each in self._upstreams.items():
            if each.in_flight > self._most.get(name, 0):
                self._most[name] = each.in_flight

    async def _sample(self) -> None:
        # Woken at its end, or a moment before or after.
        at = (round(self._wall() / SECONDS) - 1) * SECONDS
        self._look()
        most, self._most = self._most, {}
        resident = await self._resident()
        servers, now = self._upstreams, trio.current_time()
        windows = {name: each.stats.turn(now) for name, each in servers.items()}
        shared = {id(each.stats) for each in servers.values()}
        for each in self._actors.values():
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
        marks = {mark: each.of for each in self._actors.values() for mark in each.children.values()}
        found: dict[str, int] = {}
        if marks:
            for mark, size in (await trio.to_thread.run_sync(self._measure)).items():
                if mark in marks:
                    found[marks[mark]] = found.get(marks[mark], 0) + size
        return found

    def _of_daemon(self, at: int) -> MinuteOfDaemon:
        now, before = hourly(self._tally), self._counted
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
