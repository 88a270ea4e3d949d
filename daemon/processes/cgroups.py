"""Control groups (cgroups(7), v2): a leaf for each child, in the tree that systemd delegates to the daemon.

A leaf holds limits, ends a tree at once, and counts memory and CPU. A child joins right after its exec, and the
processes that it forked before are moved by their mark; joining before the exec takes a `preexec_fn`, which
forbids vfork. A move takes 12 ms, but 0.1 ms soon after another, so the daemon first repeats its own move.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from loguru import logger

from daemon.config.labels import server_of
from daemon.config.tuning import ServerLimits
from daemon.processes import proc

MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
"""The mount points of cgroup v2: alone, or next to v1, which then has the controllers."""
CONTROLLERS = ("cpu", "memory", "pids")
PROCESSES = "cgroup.procs"
"""The file of each group that lists its processes, and takes those that join."""
OWN = "daemon"
"""The daemon's own group: where controllers are enabled, only leaves may contain processes."""
UNITS = (".service", ".scope", ".slice")
"""Suffixes of units' groups; a group below a unit with another name is the unit's `DelegateSubgroup=`."""
HIGH_SHARE = 0.98
"""memory.high as a share of memory.max: at 0.9, a leak of 512 MiB ran slowly for 30 s before it was killed."""
PERIOD, SHORTEST = 100_000, 1_000
"""Microseconds: the period of cpu.max, and the shortest quota that the kernel accepts."""
FETCHES = 200
"""Most rounds of moving processes that a child forked before it joined: a slow move needed 17."""
EMPTY_SECONDS = 0.5
"""Most seconds until a killed group is empty: SIGKILL takes effect when a process is next scheduled."""

REMEDY = (
    "mcpd was given no control groups with these controllers. Run it as a service of systemd with Delegate=, as"
    " `mcpd service install` does, on a machine with cgroup v2 alone"
)

_spent: defaultdict[str, float] = defaultdict(float)
"""Seconds of CPU used in leaves that have ended, by server."""
_leaves: dict[int, Leaf] = {}
"""The leaves of living children, by mark."""


class Delegation(msgspec.Struct, frozen=True):
    """A tree of control groups that systemd has delegated to the daemon."""

    root: Path
    own: Path
    """The group of the daemon itself."""

    @property
    def controllers(self) -> frozenset[str]:
        """The controllers enabled for leaves; empty if they cannot be read."""
        return frozenset(_words(self.root / "cgroup.subtree_control"))

    def leaf(self, mark: int, label: str, limits: ServerLimits | None) -> Leaf | None:
        """Create the leaf for a child that is about to start; None if that failed, which is logged."""
        path = self.root / f"{re.sub('[^A-Za-z0-9_-]', '_', label)[:64]}-{mark:x}"
        limits = limits or ServerLimits()
        ceiling = limits.memory_bytes if "memory" in self.controllers else None
        try:
            path.mkdir()
            for name, value in _settings(limits, self.controllers):
                (path / name).write_text(value)
        except OSError as error:
            logger.warning(
                "no control group for server {}: {}: limits.cpu and limits.pids do not apply", label, error
            )
            with contextlib.suppress(OSError):
                path.rmdir()
            return None
        with contextlib.suppress(OSError):  # a kernel without swap has no such file
            _move(self.own, os.getpid())  # makes the move of the child, soon after, a short one
            if ceiling is not None:
                (path / "memory.swap.max").write_text("0")
        _leaves[mark] = made = Leaf(path, mark, self.own, label, ceiling)
        return made

    def end_dead(self, series: int, bits: int) -> None:
        """Kill and remove the leaves of a dead daemon, whose marks are `series` followed by `bits` bits."""
        for path in self.root.iterdir() if self.root.is_dir() else ():
            with contextlib.suppress(ValueError):
                mark = int(path.name.rpartition("-")[2], 16)
                if mark >> bits == series and path.is_dir():
                    Leaf(path, mark, self.own).end()


class Leaf(msgspec.Struct, frozen=True):
    """The control group of one child and its descendants."""

    path: Path
    mark: int
    outside: Path
    """The daemon's own group, in which children are forked."""
    label: str = ""
    """The name of the server or instance."""
    ceiling: int | None = None
    """The kernel's limit in bytes; None for no limit."""

    def take(self, pid: int) -> None:
        """Move a just started child into the leaf, with its descendants; if that fails, end the leaf."""
        try:
            _move(self.path, pid)
            for _ in range(FETCHES):
                forked = [each for each in map(int, _words(self.outside / PROCESSES)) if self._marked(each)]
                if not forked:
                    return
                for each in forked:
                    _move(self.path, each)
        except OSError as error:
            logger.warning("pid {} cannot join its control group {}: {}", pid, self.path, error)
            self.end()
        else:
            logger.error("processes of pid {} stay outside of its control group {}", pid, self.path)

    def pids(self) -> list[int]:
        """The processes in the leaf and in groups below it."""
        folders = (self.path, *_below(self.path))
        return [int(pid) for folder in folders for pid in _words(folder / PROCESSES)]

    def memory(self) -> int | None:
        """Bytes in use, without cache that the kernel reclaims first; None if nothing counts them."""
        used = _number(self.path / "memory.current")
        if used is not None:
            used -= min(used, _number(self.path / "memory.stat", "inactive_file") or 0)
        return used

    def cpu(self) -> float:
        """Seconds of CPU used so far, including those of processes that have ended."""
        return (_number(self.path / "cpu.stat", "usage_usec") or 0) / 1e6

    def outgrown(self) -> tuple[int, int] | None:
        """Peak memory and limit in bytes, if the kernel killed the leaf for exceeding its limit; else None."""
        events = self.path / "memory.events"
        # `oom_kill` alone may be for want of memory in the unit, or in the machine.
        if self.ceiling is None or not (_number(events, "oom") and _number(events, "oom_kill")):
            return None
        return _number(self.path / "memory.peak") or self.ceiling, self.ceiling

    def end(self) -> None:
        """Kill everything in the leaf, and remove it. Blocks for at most `EMPTY_SECONDS`."""
        if _leaves.pop(self.mark, None) is not None:
            _spent[server_of(self.label)] += self.cpu()
        with contextlib.suppress(OSError):  # before Linux 5.14 the sweep of marks has to do it
            (self.path / "cgroup.kill").write_text("1")
        _wait_empty(self.path)
        try:
            for folder in (*_below(self.path), self.path):
                folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("cannot remove control group {}: {}", self.path, error.strerror)

    def _marked(self, pid: int) -> bool:
        limit = None if pid == os.getpid() else proc.limit(pid)  # ours has a mark while we fork
        return limit is not None and limit[0] == self.mark


def find(
    unit: str, listing: Path = Path("/proc/self/cgroup"), mounts: tuple[Path, ...] = MOUNTS
) -> Delegation | None:
    """The tree delegated to the process whose groups `listing`, a file of /proc, names; None without one.

    `unit`: a unit that claims to delegate (MCPD_DELEGATED), as a user's systemd does not mark the group.
    """
    mount = next((each for each in mounts if (each / "cgroup.controllers").exists()), None)
    try:
        names = [line[3:] for line in listing.read_text().splitlines() if line.startswith("0::/")]
    except OSError:
        return None
    if mount is None or not names:
        return None
    here = mount / names[0].lstrip("/")
    if _is_delegated(here, unit):
        return Delegation(here, here / OWN)
    below_unit = here != mount and not here.name.endswith(UNITS)
    return Delegation(here.parent, here) if below_unit and _is_delegated(here.parent, unit) else None


def claim(found: Delegation | None) -> Delegation | None:
    """Take over the tree that was found, once: the daemon moves into a leaf, and enables controllers."""
    if found is None:
        return None
    try:
        found.own.mkdir(exist_ok=True)
        _move(found.own, os.getpid())
        for name in set((found.root / "cgroup.controllers").read_text().split()).intersection(CONTROLLERS):
            with contextlib.suppress(OSError):  # each alone: one may be refused
                (found.root / "cgroup.subtree_control").write_text(f"+{name}")
    except OSError as error:
        logger.warning("cannot use the control group {}: {}: servers get none", found.root, error)
        return None
    return found


def void(limits: ServerLimits | None, found: Delegation | None) -> list[str]:
    """The limits that have no effect on a server: only a control group enforces them, and it has none."""
    held = frozenset[str]() if found is None else found.controllers
    named = {"cpu": limits.cpu, "pids": limits.pids} if limits is not None else {}
    return [f"limits.{key}" for key, value in named.items() if value is not None and key not in held]


def cpu_by_server() -> Mapping[str, float]:
    """Seconds of CPU that servers have used in leaves so far. Reads files: call it in a thread."""
    found = _spent.copy()
    for leaf in list(_leaves.values()):
        found[server_of(leaf.label)] += leaf.cpu()
    return found


def leaf_of(mark: int) -> Leaf | None:
    """The leaf of a living child."""
    return _leaves.get(mark)


def _settings(limits: ServerLimits, controllers: frozenset[str]) -> Iterator[tuple[str, str]]:
    if limits.memory_bytes is not None and "memory" in controllers:
        yield "memory.max", str(limits.memory_bytes)
        yield "memory.high", str(int(limits.memory_bytes * HIGH_SHARE))
        yield "memory.oom.group", "1"  # half a server answers nothing, and does not end
    if limits.cpu is not None and "cpu" in controllers:
        yield "cpu.max", f"{max(SHORTEST, round(limits.cpu * PERIOD))} {PERIOD}"
    if limits.pids is not None and "pids" in controllers:
        yield "pids.max", str(limits.pids)


def _is_delegated(folder: Path, unit: str) -> bool:
    """Whether systemd has delegated the group: being writable does not prove that it is mcpd's."""
    with contextlib.suppress(OSError):
        return folder.name == unit or os.getxattr(folder, "user.delegate") == b"1"
    return False


def _move(folder: Path, pid: int) -> None:
    """Move a process into a group, unless it has ended; raises `OSError`."""
    with contextlib.suppress(ProcessLookupError):
        (folder / PROCESSES).write_text(str(pid))


def _below(folder: Path) -> list[Path]:
    return [Path(top) for top, _, _ in os.walk(folder, topdown=False) if top != str(folder)]


def _words(path: Path) -> list[str]:
    """The words of a file; none if it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text().split()
    return []


def _number(path: Path, name: str = "") -> int | None:
    """The number in a file, or behind a name in a file of such rows; None without one."""
    words = _words(path)
    with contextlib.suppress(ValueError, IndexError):
        return int(words[words.index(name) + 1 if name else 0])
    return None


def _wait_empty(folder: Path) -> None:
    """Wait until a group has no living process; the kernel announces changes of cgroup.events (POLLPRI)."""
    until = time.monotonic() + EMPTY_SECONDS
    with contextlib.suppress(OSError), (folder / "cgroup.events").open() as events:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        while "populated 1" in events.read() and (rest := until - time.monotonic()) > 0:
            poll.poll(rest * 1000)
            events.seek(0)
