"""Processes that killed daemons have left: whose they are, how old, how large; and their end, if asked for."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli.checkup import kernel
from daemon.cli.checkup.scene import fault, fine, note, warning
from daemon.processes import leftovers, starts, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.cli.checkup.scene import Finding, Scene
    from daemon.processes.leftovers import Leftover
    from daemon.processes.table import Process

TICKS = os.sysconf("SC_CLK_TCK")
"""Of the kernel's clock, in a second."""


def check(scene: Scene) -> Iterator[Finding]:
    """What is left of daemons that were killed."""
    folder = scene.state / starts.FOLDER
    if folder.exists() and folder.stat().st_uid != os.geteuid():
        yield warning(
            f"What killed daemons may have left is known to uid {folder.stat().st_uid} alone.",
            do="Run this as that user.",
        )
        return
    found = list(_end(scene) if scene.end_leftovers else _look(scene))
    yield from found
    if not found:
        yield fine("Nothing is left of a daemon that was killed.")


def _look(scene: Scene) -> Iterator[Finding]:
    for each in leftovers.look(scene.state):
        yield warning(
            f"{_whose(each)} was left running by a killed daemon (pid {each.daemon}): {_processes(each)}.",
            "They may hold a port, a lock or memory that the server wants when it is started again.",
            "`mcpd doctor --end-leftovers` ends them; so does the next start of the daemon.",
        )


def _end(scene: Scene) -> Iterator[Finding]:
    ended, left = leftovers.end(scene.state)
    for each in ended:
        numbers = ", ".join(str(process.pid) for process in each.processes)
        yield note(f"Ended {_whose(each)}, pid {numbers}, left running by a killed daemon (pid {each.daemon}).")
    for each in left:
        yield fault(
            f"{_whose(each)} was left running by a killed daemon (pid {each.daemon}), and survives SIGKILL:"
            f" {_processes(each)}.",
            "It hangs in the kernel, as with a file system that does not answer, or belongs to another user.",
            "Mend the file system, or start the machine again.",
        )


def _whose(each: Leftover) -> str:
    return f"server {each.server}" if each.server else "a server"


def _processes(each: Leftover) -> str:
    return "; ".join(map(_process, each.processes))


def _process(process: Process) -> str:
    from daemon.cli.terminal import duration, size  # noqa: PLC0415 - brings rich, which nobody needs if all is well

    # Not its arguments: they may hold a secret that no configuration names any more.
    program = Path(kernel.command_line(process.pid)[0]).name or "?"
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - process.started / TICKS
    return f"pid {process.pid} ({program}, {duration(age)} old, {size(table.resident(process.pid))})"
