"""Finds the processes of each server: the descendants of its child, and orphans with its mark.

A *mark* is a unique number set as the soft RLIMIT_LOCKS, which the kernel passes on through fork, exec and
setsid, and has ignored since 2.4.25 (getrlimit(2)). A process can remove its mark, but cannot choose its
parents: so the mark counts only where the process tree does not tell the server. An orphan without a living
server's mark is a *stray*, and is killed.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from daemon.processes import cgroups, proc

MARK_BITS = 60
"""Bits of a mark, which makes it unique and a valid signed 64-bit limit."""

COUNT_BITS = 20
"""The bits that count one daemon's starts. The others are its *series*, drawn once, by which the next daemon
recognises its processes even if they were not recorded in time (`leftovers.Starts`)."""

HIGHEST = 1 << (MARK_BITS + 1)
"""A number above every mark. As the daemon's own hard limit (`own.take_charge`), which only root can raise
again, it identifies all descendants of the daemon."""

_STARTING = 0
"""Stands for the pid of a child that is being started."""

ELSEWHERE = -1
"""Stands for the unknown pid of a process that a library is starting for mcpd; strays live meanwhile."""

_children: dict[int, int] = {}
"""The pid of each living server's child, by mark."""

_helpers: set[int] = set()
"""Marks of processes that do mcpd's own work: they belong to no server, and have no leaf."""

_unmarked: set[int] = set()
"""Marks that could not be set: mcpd cannot distinguish orphans of these servers from strays."""

_series: list[int] = []
"""The series of this process, once it is drawn."""

_counted = itertools.count()

_sweeping: list[bool] = []
"""Empty while strays are not swept; else whether the daemon may have children of no server (`sweep_strays`)."""


class Found(NamedTuple):
    """The daemon's living descendants: pids by the mark of their server, and strays with descendants."""

    trees: dict[int, list[int]]
    strays: list[int]


def new() -> int:
    """Draw the mark for a server about to start."""
    free = (series() << COUNT_BITS | number % (1 << COUNT_BITS) for number in _counted)
    mark = next(mark for mark in free if mark not in _children)
    _children[mark] = _STARTING
    return mark


def series() -> int:
    """The unique prefix of all marks of this process."""
    if not _series:
        bits = MARK_BITS - COUNT_BITS
        _series.append(1 << bits | secrets.randbits(bits))
    return _series[0]


def living() -> frozenset[int]:
    """The marks of living servers."""
    return frozenset(_children)


def started(mark: int, pid: int) -> None:
    """Record the pid of the child started with a mark."""
    if pid == ELSEWHERE:
        _helpers.add(mark)
    _children[mark] = pid


def not_given(mark: int) -> bool:
    """Record that a mark could not be set, which suspends the sweep of strays; True if it was active."""
    is_new = bool(_sweeping) and not _unmarked
    _unmarked.add(mark)
    return is_new


def forget(mark: int) -> None:
    """Record the end of a server; any process that still has its mark is a stray."""
    _children.pop(mark, None)
    _unmarked.discard(mark)
    _helpers.discard(mark)


def children() -> frozenset[int]:
    """The pids of the living servers' children."""
    return frozenset(_children.values())


def sweep_strays(*, others: bool) -> None:
    """Treat orphans without a living server's mark as strays from now on.

    `others`: the daemon may have or adopt children that belong to no server, as pid 1 or after an exec: then
    only processes that cannot be one of these are strays.
    """
    _sweeping[:] = [others]


def find() -> Found:
    """Find the daemon's descendants among its user's processes. Reads all of /proc: call it in a thread."""
    alive, limits = proc.alive()
    servers = {pid: mark for mark, pid in dict(_children).items()}
    found = Found({}, [])
    for pid, process in alive.items():
        top, ours = _top(process, alive)
        mark = servers.get(top) if ours else None
        if mark is None:
            mark = _mark(limits[top if ours else pid])
        if ours and not {top, ELSEWHERE} & servers.keys() and _is_stray(limits[top]):
            found.strays.append(pid)
        elif mark is not None:
            found.trees.setdefault(mark, []).append(pid)
    return found


def strays() -> list[int]:
    """Strays among the daemon's children, without their descendants; quick: it reads only the children."""
    found = []
    born = proc.own_children() if _sweeping else set()
    servers = children()  # read now: who is born and not among them is a stray, or one from elsewhere
    for pid in born - servers if ELSEWHERE not in servers else ():
        limit, process = proc.limit(pid), proc.read_child(pid)
        if limit and process and not process.is_dead and process.parent == os.getpid() and _is_stray(limit):
            found.append(pid)
    return found


def may_stem_from_us(pid: int) -> bool | None:
    """Whether a process of this user may descend from the daemon, by its inherited limit; None if unset."""
    limit = proc.limit(pid)
    return (limit is not None and 0 <= limit[1] <= HIGHEST) if _sweeping else None


def is_a_servers(child: int) -> bool:
    """Whether a child of mcpd was started as a server, or adopted as a server's orphan."""
    limit = proc.limit(child)
    return child in children() or (limit is not None and (limit[0] in _children or _is_stray(limit)))


def is_starting(child: int) -> bool:
    """Whether a child of mcpd is a server's, and its pid is not recorded yet."""
    limit = None if child in children() else proc.limit(child)
    return limit is not None and _children.get(limit[0]) == _STARTING


def _top(process: proc.Process, alive: Mapping[int, proc.Process]) -> tuple[int, bool]:
    """The child of mcpd that a process descends from, and True; or its topmost visible ancestor, and False."""
    own = os.getpid()
    # Bounded, because the table is not a snapshot: pids may have been reused, even in a ring.
    for _ in alive:
        if process.parent == own:
            return process.pid, True
        above = alive.get(process.parent)
        if above is None:
            break
        process = above
    return process.pid, False


def _mark(limit: tuple[int, int]) -> int | None:
    return limit[0] if limit[0] >> MARK_BITS == 1 else None


def _is_stray(limit: tuple[int, int]) -> bool:
    if not _sweeping or _unmarked or limit[0] in _children:
        return False
    others = _sweeping[0]
    return not others or 0 <= limit[1] <= HIGHEST


class Effort(NamedTuple):
    """The activity of a tree; waiting for a CPU or the disk counts as activity, on a busy machine."""

    cpu: float
    """Seconds of CPU used so far."""
    wants_more: bool
    """Whether a process runs, or waits only for a CPU or the disk."""


def memory_by_mark() -> dict[int, int]:
    """Memory of each server's tree in bytes, by mark: its leaf's, else resident. Call it in a thread."""
    leaves = {mark: leaf.memory() for mark in living() if (leaf := cgroups.leaf_of(mark))}
    counted = {mark: used for mark, used in leaves.items() if used is not None}
    if counted.keys() >= living() - _helpers:
        return counted
    return {mark: sum(map(proc.resident, pids)) for mark, pids in find().trees.items()} | counted


def memory_of(ceilings: Mapping[int, int]) -> dict[int, int]:
    """Memory in bytes by mark, exact only for trees above `ceilings`. Reads /proc: call it in a thread."""
    used: dict[int, int] = {}
    trees = find().trees
    for mark in ceilings.keys() & trees.keys():
        pids = trees[mark]
        resident = sum(map(proc.resident, pids))
        used[mark] = resident if resident <= ceilings[mark] else sum(map(proc.proportional, pids))
    return used


def efforts(wanted: Iterable[int]) -> dict[int, Effort]:
    """Activity by mark. Reads all of /proc: call it in a thread. Raises `OSError`: no descriptor is left."""
    leaves = {mark: cgroups.leaf_of(mark) for mark in wanted}
    trees = find().trees if None in leaves.values() else {}
    return {
        mark: _effort(trees.get(mark, ())) if leaf is None else _effort(leaf.pids(), leaf.cpu())
        for mark, leaf in leaves.items()
    }


def _effort(pids: Iterable[int], cpu: float | None = None) -> Effort:
    seen = [process for pid in pids if (process := proc.read(pid)) is not None]
    used = sum(each.ticks for each in seen) / proc.TICKS if cpu is None else cpu
    return Effort(used, any(each.is_working for each in seen))
