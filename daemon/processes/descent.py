"""Whether a process stems from us: a server's must not give its own daemon orders.

Everything that a server starts stays below us, as orphans come to us (prctl(2), PR_SET_CHILD_SUBREAPER): so the
way up from a process says it. Numbers of processes are used again: a parent that is younger than its child is
none, and the way is then walked anew.
"""

from __future__ import annotations

import os

from daemon.processes import marks, table

GENERATIONS = 64
"""Processes on the way up, at most: nobody's client stands so deep, and each step takes 15 µs of the loop."""

WALKS = 5
"""Times that a way is walked which changes under our feet: a process that ends hands its children on."""


class Untraceable(Exception):
    """Nobody can say where a process stems from: it is gone, or the way up has no end."""


def child_above(pid: int) -> int | None:
    """The child of ours that a process is or stems from; None if it does not stem from us.

    With the first process that is hidden from us (hidepid, systemd's ProtectProc=) the way ends: unless
    that is a child of ours, what the process has inherited decides.

    Raises:
        Untraceable: that cannot be said.
    """
    for _ in range(WALKS):
        try:
            return _climb(pid)
        except _Changed:
            continue
    raise Untraceable(f"the parents of pid {pid} change too fast")


class _Changed(Exception):
    """A process on the way has ended meanwhile."""


def _climb(pid: int) -> int | None:
    own = os.getpid()
    below = table.read(pid)
    if below is None:
        if not table.exists(pid):
            raise Untraceable(f"pid {pid} is gone")
        return _hidden(pid, pid)
    for _ in range(GENERATIONS):
        if below.parent in {0, below.pid}:
            return None
        if below.parent == own:
            return below.pid
        above = table.read(below.parent)
        if above is None and table.exists(below.parent):
            return _hidden(below.parent, pid)
        if above is None or above.started > below.started:
            raise _Changed
        below = above
    raise Untraceable(f"pid {pid} stands more than {GENERATIONS} processes deep")


def _hidden(above: int, pid: int) -> int | None:
    """What can be said of a process whose way up ends at one that is hidden: maybe at itself.

    Hidden is another user's, as the login's above each of his programs, and any of ours that has chosen to be.
    """
    if above in table.own_children():
        return above
    ours = marks.may_stem_from_us(pid)
    if ours or (ours is None and table.may_signal(above)):
        raise Untraceable(f"pid {above} on its way up is hidden, and it may stem from us")
    return None
