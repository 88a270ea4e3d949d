"""Which processes are a server's: what stands below the child that we started, and orphans with its mark.

A *mark* is a number that nobody else has as the soft RLIMIT_LOCKS, a limit that the kernel keeps, hands down
through fork, exec, setsid and a cleared environment, and has not looked at since 2.4.25 (getrlimit(2)). It
tells whose an orphan is that came to us when its parent ended (prctl(2), PR_SET_CHILD_SUBREAPER). A process can
take its mark off, but cannot choose its parents: so its place in the tree counts first, and a mark only where
that says nothing. An orphan without the mark of a living server is a *stray*: nobody's, and not left running.

What is kept here is of this process, as its children are.
"""

from __future__ import annotations

import itertools
import os
import secrets
from typing import TYPE_CHECKING, NamedTuple

from daemon.processes import proc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MARK_BITS = 60
"""Size of a mark: it must fit a signed 64-bit limit and never meet another's."""

COUNT_BITS = 20
"""Of these, such as count the starts of one daemon. The others are its *series*, drawn once: by it the next
daemon knows what this one has started, also what it had no time to write down (`starts`)."""

HIGHEST = 1 << (MARK_BITS + 1)
"""Above every mark. As our own hard limit (`own.take_charge`), which only root's processes can raise again, it
tells what stems from us from what does not."""

_STARTING = 0
"""Stands for the pid of a child that is just being started."""

_children: dict[int, int] = {}
"""The child that each living server was started as, by its mark."""

_unmarked: set[int] = set()
"""Marks that living servers could not be given: their orphans cannot be told from strays."""

_series: list[int] = []
"""Our series, once it is drawn."""

_counted = itertools.count()

_sweeping: list[bool] = []
"""Empty: nobody is a stray. Else whether children of ours may be none of mcpd's (`sweep_strays`)."""


class Found(NamedTuple):
    """The living processes that stem from us."""

    trees: dict[int, list[int]]
    """Process ids by the mark of their server."""
    strays: list[int]
    """Process ids of strays, and of what stands below them."""


def new() -> int:
    """The mark of a server that is just being started."""
    free = (series() << COUNT_BITS | number % (1 << COUNT_BITS) for number in _counted)
    mark = next(mark for mark in free if mark not in _children)
    _children[mark] = _STARTING
    return mark


def series() -> int:
    """What all marks of this process begin with, and nobody else's."""
    if not _series:
        bits = MARK_BITS - COUNT_BITS
        _series.append(1 << bits | secrets.randbits(bits))
    return _series[0]


def living() -> frozenset[int]:
    """The marks of living servers."""
    return frozenset(_children)


def started(mark: int, pid: int) -> None:
    """Remember which child has been started with a mark."""
    _children[mark] = pid


def not_given(mark: int) -> bool:
    """While this server lives nobody is a stray; whether that is new, where strays are looked for."""
    is_new = bool(_sweeping) and not _unmarked
    _unmarked.add(mark)
    return is_new


def forget(mark: int) -> None:
    """A server has ended: whoever still carries its mark is a stray."""
    _children.pop(mark, None)
    _unmarked.discard(mark)


def children() -> frozenset[int]:
    """The children that living servers were started as."""
    return frozenset(_children.values())


def sweep_strays(*, others: bool) -> None:
    """From now on, orphans without a living server's mark are strays.

    Args:
        others: we may have or adopt children that no server has started: as pid 1, or because whoever executed
            us had some. Then a stray is only what cannot be one of these.
    """
    _sweeping[:] = [others]


def find() -> Found:
    """Look at all processes of our user. Reads all of /proc: call it in a thread.

    What is hidden is not seen unless it is a child of ours: it will be one when its parent has ended.
    """
    alive, limits = proc.alive()
    servers = {pid: mark for mark, pid in dict(_children).items()}
    found = Found({}, [])
    for pid, process in alive.items():
        top, ours = _top(process, alive)
        mark = servers.get(top) if ours else None
        if mark is None:
            mark = _mark(limits[top if ours else pid])
        if ours and top not in servers and _is_stray(limits[top]):
            found.strays.append(pid)
        elif mark is not None:
            found.trees.setdefault(mark, []).append(pid)
    return found


def strays() -> list[int]:
    """Strays among our children, without what stands below them: quick, as only our children are looked at."""
    servers = children()
    found = []
    for pid in proc.own_children() - servers if _sweeping else ():
        limit, process = proc.limit(pid), proc.read_child(pid)
        if limit and process and not process.is_dead and process.parent == os.getpid() and _is_stray(limit):
            found.append(pid)
    return found


def may_stem_from_us(pid: int) -> bool | None:
    """What the limit that all have inherited who stem from us says of a process; None: nobody has inherited it.

    Another user's does not: nobody who stems from us becomes that without root's rights.
    """
    limit = proc.limit(pid)
    return (limit is not None and 0 <= limit[1] <= HIGHEST) if _sweeping else None


def is_a_servers(child: int) -> bool:
    """Whether a child of ours was started as a server, or came to us as one's orphan."""
    limit = proc.limit(child)
    return child in children() or (limit is not None and (limit[0] in _children or _is_stray(limit)))


def _top(process: proc.Process, alive: Mapping[int, proc.Process]) -> tuple[int, bool]:
    """The child of ours that a process stems from; or, with False, the first of its line that we can see."""
    own = os.getpid()
    # Bounded, because the table was not read in one moment: numbers may have changed hands, even in a ring.
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
    """What a tree of processes did until a moment ago."""

    cpu: float
    """Seconds of CPU that it has used so far."""
    wants_more: bool
    """Whether a process of it runs, or only waits for a CPU or for the disk."""


def memory_by_mark() -> dict[int, int]:
    """Resident bytes of each server's tree, by its mark. Reads all of /proc: call it in a thread."""
    return {mark: sum(map(proc.resident, pids)) for mark, pids in find().trees.items()}


def memory_of(ceilings: Mapping[int, int]) -> dict[int, int]:
    """Bytes that some servers' trees take. Reads all of /proc: call it in a thread.

    Args:
        ceilings: bytes by mark: only these trees are measured, and closely only what seems to be above.
    """
    used: dict[int, int] = {}
    trees = find().trees
    for mark in ceilings.keys() & trees.keys():
        pids = trees[mark]
        resident = sum(map(proc.resident, pids))
        used[mark] = resident if resident <= ceilings[mark] else sum(map(proc.proportional, pids))
    return used


def efforts(wanted: Iterable[int]) -> dict[int, Effort]:
    """The effort of each of these servers, by its mark. Reads all of /proc: call it in a thread.

    Raises:
        OSError: nobody can say, as we have no descriptor left.
    """
    trees = find().trees
    return {mark: _effort(trees.get(mark, ())) for mark in wanted}


def _effort(pids: Iterable[int]) -> Effort:
    seen = [process for pid in pids if (process := proc.read(pid)) is not None]
    return Effort(sum(each.ticks for each in seen) / proc.TICKS, any(each.is_working for each in seen))
