"""The daemon's own log: the journal under systemd, else the file of a background daemon."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from daemon.host import paths
from daemon.host.logs import LOG, previous
from daemon.safety.escape import visible
from daemon.setup.running.starting import listener
from daemon.setup.running.systemctl import SERVICE, installed

LAST = 200
"""Lines shown by default: the daemon's last start and its outcome."""

POLL_SECONDS = 0.5
"""Seconds between two polls of a followed file."""


def show(control: str, *, last: int | None, follow: bool) -> int:
    """Print the end of the log (default: `LAST` lines), and follow it; returns 1 if there is no log."""
    pid = listener(Path(control))
    manager = installed(os.environ)
    # systemd's journal belongs to the running daemon or, without one, to the next.
    if manager is not None and (pid is None or manager.pid() == pid):
        _read_journal(last or LAST, follow=follow)
    file = _written_by(pid)
    if not file.exists():
        where = (
            f"the daemon (pid {pid}) logs to the terminal or program from which it was started: look there"
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
    """The log file that is the process's stderr, or else the default one."""
    try:
        stderr = Path(f"/proc/{pid}/fd/2").readlink()
    except OSError:
        stderr = Path()
    usual = paths.state_dir(os.environ) / LOG
    return stderr if stderr.name == LOG else usual


def _read_journal(last: int, *, follow: bool) -> None:
    """Become journalctl; returns if it is not installed."""
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
