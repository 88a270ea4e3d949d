"""The warden: watches the memory of servers, and ends servers that use too much.

A worker thread walks /proc once to measure the process tree of every server whose limit the kernel does not
enforce (`processes.cgroups`). Resident pages are cheap to count, but a shared page counts once for each
process. A tree that seems too large is measured again by its proportional share (proc(5), smaps_rollup). A
server is ended only if two measurements in a row are too high. Processes in containers are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs
import trio
from loguru import logger

from daemon.causes import Cause, Reason
from daemon.counting.measures import Ceiling
from daemon.kit.wording import bytes_in_words
from daemon.processes.cgroups import leaf_of
from daemon.processes.marks import memory_of
from daemon.upstreams.upstream_access import UpstreamAccess

WALK_SECONDS = 2.0
"""Seconds between walks: each takes milliseconds, and a leak of 100 MB a second is stopped within 500 MB."""

LOOKS = 2
"""Measurements in a row that must be too high before a server is ended."""


@attrs.define(eq=False, repr=False)
class Warden:
    """Ends servers that use more memory than their limit; `run` never returns."""

    _upstreams: Mapping[str, UpstreamAccess]
    _measure: Callable[[Mapping[int, int]], Mapping[int, int]] = memory_of
    """Returns bytes by mark; blocks."""
    _seconds: float = attrs.field(default=WALK_SECONDS, kw_only=True)
    _ceilings: dict[int, Ceiling] = attrs.field(factory=dict, init=False)
    _failing: bool = attrs.field(default=False, init=False)

    async def run(self) -> None:
        """Measure until cancelled; a failed measurement is skipped."""
        while True:
            await trio.sleep(self._seconds)
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - the boundary of the actor
                if not self._failing:
                    logger.opt(exception=error).error(
                        "cannot measure the memory of servers: mcpd enforces no memory limit"
                    )
                self._failing = True
            else:
                self._failing = False

    async def _look(self) -> None:
        watched = dict(_limited(self._upstreams.values()))
        most = {mark: each.server.limits.memory_bytes or 0 for mark, each in watched.items()}
        self._ceilings = {mark: self._ceilings.get(mark) or Ceiling(most[mark], LOOKS) for mark in watched}
        if not watched:
            return
        used = await trio.to_thread.run_sync(self._measure, most)
        for mark, each in watched.items():
            taken = used.get(mark, 0)
            # By now it may be another process, which starts from zero.
            if self._ceilings[mark].is_broken_by(taken) and mark in each.children.values():
                each.end(too_much(taken, most[mark]))


def too_much(used: int, most: int) -> Reason:
    """The reason for ending a server that uses `used` bytes and may use `most`."""
    text = (
        f"uses {bytes_in_words(used)} of memory, more than {bytes_in_words(most)} (limits.memoryBytes):"
        " mcpd ended it"
    )
    return Reason(text, Cause.MEMORY_CEILING, {"used": used, "limit": most})


def _limited(upstreams: Iterable[UpstreamAccess]) -> Iterator[tuple[int, UpstreamAccess]]:
    for each in upstreams:
        if each.server.limits.memory_bytes is not None:
            for mark in each.children.values():
                if (leaf := leaf_of(mark)) is None or leaf.ceiling is None:
                    yield mark, each
