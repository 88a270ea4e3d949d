"""The daemon's own process: limits and attributes, its own and the children's, and unused memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress

from loguru import logger

from daemon.processes import marks, proc

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

OOM_SCORE = 500
"""The score of children: under memory pressure, the kernel kills a child before the daemon (proc(5),
oom_score_adj)."""

_score: list[int] = []
"""The open descriptor of the daemon's oom_score_adj; empty if it cannot be written."""


_soft_files: list[int] = []
"""The soft limit of descriptors with which the daemon was started; empty if it was not raised."""

OPEN = "MCPD_DUMPABLE"
"""The variable that, set to 1, keeps the daemon readable by its user: for debuggers and measurements."""


def take_charge(environ: Mapping[str, str], parent: int = 0) -> None:
    """Make this process the daemon: once, before any server starts; it ends with `parent` if given."""
    if parent:
        end_with(parent)
    others = os.getpid() == 1 or bool(proc.own_children())
    adopt_orphans()
    _open_score()
    hard = resource.prlimit(0, resource.RLIMIT_CORE)[1]
    _limit(resource.RLIMIT_CORE, 0, hard, "a crash may leave secrets in a core file")
    _raise_files()
    if environ.get(OPEN) == "1":
        logger.warning("{}=1 is set: servers can read the daemon's memory and environment", OPEN)
    elif not proc.hide():
        logger.warning(
            "prctl failed ({}): servers can read the daemon's memory", os.strerror(ctypes.get_errno())
        )
    if _limit(proc.RLIMIT_LOCKS, marks.HIGHEST, marks.HIGHEST, "processes may outlive their servers"):
        marks.sweep_strays(others=others)


def end_with(parent: int) -> None:
    """Make this process end with its `parent`, or now if that has ended (prctl(2), PR_SET_PDEATHSIG)."""
    if proc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM) and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    if not proc.prctl(PR_SET_CHILD_SUBREAPER, 1):
        logger.warning("cannot become a child subreaper: {}", os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def handing_down(mark: int) -> Iterator[None]:
    """Set a child's mark and oom_score_adj while it is forked: set later, they miss a process that detaches."""
    soft, hard = resource.prlimit(0, proc.RLIMIT_LOCKS)
    marked = _limit(proc.RLIMIT_LOCKS, mark, hard, "only the groups of servers can be killed")
    if not marked and marks.not_given(mark):
        logger.error(
            "a process has lowered the daemon's RLIMIT_LOCKS (now {}): servers get no mark, and mcpd cannot end"
            " processes that leave a running server. Remove the server at fault, then restart mcpd",
            hard,
        )
    before = _worsen_score()
    try:
        yield
    finally:
        if before is not None:
            os.pwrite(_score[0], b"%d" % before, 0)
        if marked:
            _limit(proc.RLIMIT_LOCKS, soft, hard, "the daemon itself carries a mark")


def _raise_files() -> None:
    """Raise the limit of descriptors as far as allowed: a shell gives 1,024, for programs with select(2)."""
    soft, hard = resource.prlimit(0, resource.RLIMIT_NOFILE)
    if soft != hard and _limit(resource.RLIMIT_NOFILE, hard, hard, f"the daemon has only {soft} descriptors"):
        _soft_files[:] = [soft]


def give_files(pid: int) -> None:
    """Give a child that was just forked the limit of descriptors with which the daemon was started."""
    kind = resource.RLIMIT_NOFILE
    with contextlib.suppress(OSError, ValueError):  # it has ended, or a sandbox forbids it
        for soft in _soft_files:
            hard = resource.prlimit(pid, kind)[1]
            resource.prlimit(pid, kind, (min(soft, hard), hard))


def _open_score() -> None:
    with contextlib.suppress(OSError):
        _score[:] = [os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)]


def _worsen_score() -> int | None:
    """Raise the daemon's oom_score_adj to a child's; return the old one, or None if it is unchanged."""
    if not _score:
        _open_score()
    try:
        before = int(os.pread(_score[0], 16, 0))
        if before < OOM_SCORE:
            os.pwrite(_score[0], b"%d" % OOM_SCORE, 0)
            return before
    except (OSError, IndexError):
        # A sandbox may forbid it: then the kernel chooses by size only.
        pass
    return None


def _limit(kind: int, soft: int, hard: int, otherwise: str) -> bool:
    """Set a limit by prlimit(2), which @system-service allows, unlike setrlimit(2); False in a sandbox."""
    try:
        resource.prlimit(0, kind, (soft, hard))
    except (OSError, ValueError) as error:
        logger.warning("cannot set a resource limit ({}): {}", error, otherwise)
        return False
    return True


class _Account(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def spare() -> int:
    """Releasable bytes at the heap's end; 0 if the C library does not tell. Takes up to 1 ms.

    glibc keeps up to twice the largest block ever freed (mallopt(3), M_MMAP_THRESHOLD).
    """
    with suppress(AttributeError, OSError):
        ask = ctypes.CDLL(None).mallinfo2
        ask.restype = _Account
        return int(ask().keepcost)
    return 0


def give_back() -> None:
    """Release free memory to the system (malloc_trim(3)); takes about a millisecond for 10 MB."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
