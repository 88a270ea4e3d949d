"""Whether servers work or wait: the CPU that their trees of processes use, and whether one of them wants more.

On a machine that has more to do than it can, who works gets little CPU: so it also counts who is *ready* to
run, or waits for the disk. What is hidden from us (`processes.table`) looks as if it waited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daemon.processes import marks, table

if TYPE_CHECKING:
    from collections.abc import Iterable


class Effort(NamedTuple):
    """What a tree of processes did until a moment ago."""

    cpu: float
    """Seconds of CPU that it has used so far."""
    wants_more: bool
    """Whether a process of it runs, or only waits for a CPU or for the disk."""


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
