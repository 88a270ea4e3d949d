"""What servers take: the memory and the CPU of their trees of processes, and whether one wants more CPU.

On a machine that has more to do than it can, who works gets little CPU: so it also counts who is *ready* to
run, or waits for the disk. What is hidden from us (`processes.table`) looks as if it waited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daemon.processes import marks, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Effort(NamedTuple):
    """What a tree of processes did until a moment ago."""

    cpu: float
    """Seconds of CPU that it has used so far."""
    wants_more: bool
    """Whether a process of it runs, or only waits for a CPU or for the disk."""


def memory_by_mark() -> dict[int, int]:
    """Resident bytes of each server's tree, by its mark. Reads all of /proc: call it in a thread."""
    return {mark: sum(map(table.resident, pids)) for mark, pids in marks.find().trees.items()}


def memory_of(ceilings: Mapping[int, int]) -> dict[int, int]:
    """Bytes that some servers' trees take. Reads all of /proc: call it in a thread.

    Args:
        ceilings: bytes by mark: only these trees are measured, and closely only what seems to be above.
    """
    used: dict[int, int] = {}
    trees = marks.find().trees
    for mark in ceilings.keys() & trees.keys():
        pids = trees[mark]
        resident = sum(map(table.resident, pids))
        used[mark] = resident if resident <= ceilings[mark] else sum(map(table.proportional, pids))
    return used


def efforts(wanted: Iterable[int]) -> dict[int, Effort]:
    """The effort of each of these servers, by its mark. Reads all of /proc: call it in a thread.

    Raises:
        OSError: nobody can say, as we have no descriptor left.
    """
    trees = marks.find().trees
    return {mark: _effort(trees.get(mark, ())) for mark in wanted}


def _effort(pids: Iterable[int]) -> Effort:
    seen = [process for pid in pids if (process := table.read(pid)) is not None]
    return Effort(sum(each.ticks for each in seen) / table.TICKS, any(each.is_working for each in seen))
