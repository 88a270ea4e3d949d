"""The daemon's own log: the journal where systemd runs it, else the file of one in the background."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.host import paths
from daemon.host.logs import LOG, previous
from daemon.safety.escape import visible
from daemon.setup.running.starting import listener
from daemon.setup.running.systemctl import SERVICE, installed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

LAST = 200
"""Lines that are shown if nobody says how many: the last start of the daemon, and what came of it."""

POLL_SECONDS = 0.5
"""Interval between two looks at the file of a log that is followed."""


def show(control: str, *, last: int | None, follow: bool) -> int:
    """Print the end of the log.

    Args:
        control: the operators' socket of the daemon.
        last: how many lines; None: `LAST`.
        follow: whether to go on with what is written next, until Ctrl-C.

    Returns:
        0: shown; 1: there is no log that could be shown here.
    """
    pid = listener(Path(control))
    manager = installed(os.environ)
    # systemd's is the daemon that runs or, if none does, the next one.
    if manager is not None and (pid is None or manager.pid() == pid):
        _read_journal(last or LAST, follow=follow)
    file = _written_by(pid)
    if not file.exists():
        where = (
            f"the daemon (pid {pid}) logs to the terminal, or the program, that it was started from"
            if pid
            else f"no daemon has written {file} yet"
        )
        print(f"mcpd: {where}", file=sys.stderr)
        return 1
    try:
        _print_end(file, last or LAST, follow=follow)
    except KeyboardInterrupt:
        pass
    except OSError as error:
        print(f"mcpd: {file} cannot be read: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _written_by(pid: int | None) -> Path:
    """The file that this process has as its stderr, if it is such a log; else where one would be by default."""
    try:
        stderr = Path(f"/proc/{pid}/fd/2").readlink()
    except OSError:
        stderr = Path()
    usual = paths.state_dir(os.environ) / LOG
    return stderr if stderr.name == LOG else usual


def _read_journal(last: int, *, follow: bool) -> None:
    """Become journalctl; returns if there is none."""
    program = shutil.which("journalctl")
    if program is not None:
        words = ["--user", "--no-pager", "-u", SERVICE, "-n", str(last), *(["-f"] if follow else [])]
        sys.stdout.flush()
        os.execv(program, [program, *words])  # noqa: S606


def _print_end(file: Path, last: int, *, follow: bool) -> None:
    kept = deque[str](maxlen=last)
    before = previous(file)
    if before.exists():
        with _opened(before) as lines:
            kept.extend(lines)
    log = _opened(file)
    try:
        kept.extend(log)
        _print(kept)
        while follow:
            time.sleep(POLL_SECONDS)
            _print(log)
            if file.exists() and not os.path.samestat(file.stat(), os.fstat(log.fileno())):
                log.close()
                log = _opened(file)
    finally:
        log.close()


def _opened(file: Path) -> TextIO:
    return file.open(encoding="utf-8", errors="replace")


def _print(lines: Iterator[str] | deque[str] | TextIO) -> None:
    for line in lines:
        print(visible(line.rstrip("\n")))
    sys.stdout.flush()
