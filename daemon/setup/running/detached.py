"""A daemon in the background without a service manager: `mcpd run --detached`, in a session of its own.

No terminal, directory or descriptor of whoever starts it is kept; its log is a file.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from daemon.host import paths
from daemon.setup.running.presence import (
    EX_CONFIG,
    EX_FAULT,
    EX_NOT_FOR_WINDOW,
    SHOW_LOG,
    NotForWindow,
    NotStarted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

LAST_WORDS = 64 * 1024
"""Bytes that are kept of what a daemon says before it has a log; a faulty configuration takes some hundred."""

READY_BYTES = 4096
"""The longest message of a daemon's to its service manager."""

NOT_HANDED_ON = frozenset(
    {
        *("MCPD_SESSION", "MCPD_WORKSPACE", "MCPD_NO_START"),
        *("PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES"),
        *("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"),
        *("JOURNAL_STREAM", "INVOCATION_ID", "MANAGERPID", "SYSTEMD_EXEC_PID", "MAINPID"),
    }
)
"""Variables that a daemon is not given: they belong to one window, terminal or unit. What is left of a client's
own does not reach servers, which are given a few variables and what their `env` says."""


def launch(front: Path, options: Sequence[str], environ: Mapping[str, str], deadline: float) -> int:
    """Start a daemon, and wait until it serves. Returns its pid.

    Args:
        front: the clients' socket, beside which it says that it serves.
        options: of `mcpd run`.
        environ: the environment of whoever asks for it.
        deadline: on the clock `time.monotonic`.

    Raises:
        NotStarted: it has ended, and what it said; or it does not serve yet.
    """
    # -P: a client's directory must not be where its modules come from.
    command = [sys.executable, "-P", "-m", "daemon", "run", "--detached", *options]
    with _readiness(front.with_name(front.name + ".ready")) as ready:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Not the directory of whoever asks: it may be removed, or unmounted.
            cwd=paths.home(environ),
            env={**handed_on(environ), "NOTIFY_SOCKET": ready.getsockname()},
            start_new_session=True,
            umask=0o077,
        )
        _wait_ready(process, ready, deadline)
    # It is not waited for: it outlives this process.
    process.returncode = 0
    return process.pid


def handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a daemon that is started from this one."""
    return {name: value for name, value in environ.items() if name not in NOT_HANDED_ON}


@contextlib.contextmanager
def _readiness(path: Path) -> Iterator[socket.socket]:
    """A socket that takes what a daemon tells its service manager (sd_notify(3))."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as ready:
        old = os.umask(0o177)
        try:
            ready.bind(str(path))
        finally:
            os.umask(old)
        try:
            yield ready
        finally:
            path.unlink(missing_ok=True)


def _wait_ready(process: subprocess.Popen[bytes], ready: socket.socket, deadline: float) -> None:
    """Wait until a daemon serves; its stderr holds what it says until it has a log."""
    assert process.stderr is not None
    pidfd = os.pidfd_open(process.pid)
    try:
        with process.stderr as stderr:
            watched, said = {ready.fileno(), stderr.fileno()}, b""
            while seen := select.select(watched, [], [], max(0.0, deadline - time.monotonic()))[0]:
                if ready.fileno() in seen:
                    if b"READY=1" in ready.recv(READY_BYTES).split(b"\n"):
                        return
                elif pidfd in seen:
                    process.wait()
                    raise _ended(process.returncode, said)
                elif chunk := os.read(stderr.fileno(), LAST_WORDS):
                    said = (said + chunk)[-LAST_WORDS:]
                else:
                    # It has a log now, or has ended.
                    watched = {ready.fileno(), pidfd}
    finally:
        os.close(pidfd)
    raise NotStarted(f"the daemon (pid {process.pid}) does not serve yet, and goes on starting: `{SHOW_LOG}`")


def _ended(returned: int, said: bytes) -> NotStarted:
    text = said.decode(errors="replace").strip().removeprefix("mcpd: ")
    if returned == EX_NOT_FOR_WINDOW:
        return NotForWindow(text)
    if returned == EX_CONFIG and text:
        return NotStarted(text, EX_CONFIG)
    text = f"the daemon ended with status {returned} before it served: {text or f'see `{SHOW_LOG}`'}"
    return NotStarted(text, EX_CONFIG if returned == EX_CONFIG else EX_FAULT)
