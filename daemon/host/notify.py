"""The interface to systemd: signals, readiness, watchdog, sockets, kept bytes. Does nothing without systemd.

Sources: sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3), sd_pid_notify_with_fds(3).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from enum import Enum
from functools import partial
from typing import Any

import trio

ENDING = frozenset({signal.SIGTERM, signal.SIGINT})

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """Handles signals; create it in the main thread."""

    def __init__(self) -> None:
        self._pending: list[int] = []
        self._deliver: Callable[[int], None] = self._pending.append
        self._ends = 0
        self._before = {number: signal.signal(number, self._take) for number in HANDLED}

    def listen(self, deliver: Callable[[int], None]) -> None:
        """Deliver past and later signals; `deliver` runs in a signal handler, so it may only schedule work."""
        self._deliver = deliver
        pending, self._pending = self._pending, []
        for number in pending:
            deliver(number)

    def ignore(self) -> None:
        """Ignore signals from now on, so that none cuts short the interpreter's own shutdown."""
        for number in HANDLED:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Restore the previous handlers, for a process that continues without a daemon."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: object) -> None:
        if number in ENDING:
            self._ends += 1
            if self._ends > 1:
                for each in ENDING:
                    signal.signal(each, signal.SIG_IGN)
        self._deliver(number)


FIRST_FD = 3
"""The first inherited descriptor (SD_LISTEN_FDS_START)."""

SERVING = "READY=1\nSTATUS=serving"
"""The state to send when everything is up, after the start or a reload."""

UNIT_STOP_SECONDS = 15
"""Seconds of a stop without the drain: TimeoutStopSec= of the units."""

TOKENS, SWITCHES = "tokens", "switches"
"""Names of bytes that systemd keeps for the next daemon (FileDescriptorStoreMax= of the unit)."""

MAX_KEPT = 1 << 20
"""Most bytes kept under each name."""

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
"""Seals that make bytes unchangeable (memfd_create(2)), even for a server with the daemon's user."""

WATCHDOG_SHARE = 3
"""Signs of life per interval of systemd; sd_watchdog_enabled(3) recommends at least two."""


class Readiness(Enum):
    """Whether this daemon accepts new clients."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    """Only clients that are already connected are served."""


class Notifier:
    """Sends states to the service manager that started the daemon."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Remove NOTIFY_SOCKET from the environment, so that no child can notify in the daemon's name."""
        address = environ.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.handed_over: dict[str, bytes] = {}
        """Bytes that the previous daemon left with the service manager, by name (`listen_fds`)."""
        self._kept: dict[str, bytes] = {}
        self._ready = False

    def __call__(self, state: str) -> None:
        """Send a state such as `READY=1`; a missing receiver is not an error."""
        if not self._address:
            return
        self._send(state)
        if state.startswith("READY=1") and not self._ready:
            self._ready = True
            for name, content in self._kept.items():
                self.keep(name, content)

    def keep(self, name: str, content: bytes) -> None:
        """Make the service manager keep bytes for the next daemon, in place of earlier ones."""
        if not self._ready:
            self._kept[name] = content  # The first thing that is said is that we serve.
            return
        self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")
        with (
            contextlib.suppress(OSError),
            os.fdopen(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb") as memory,
        ):
            memory.write(content)
            memory.flush()
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
            self._send(f"FDSTORE=1\nFDNAME={name}", memory.fileno())

    def _send(self, state: str, *fds: int) -> None:
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel,
        ):
            channel.connect(self._address)
            socket.send_fds(channel, [state.encode()], fds)


def handover(notify: Callable[[str], None], name: str) -> dict[str, Any]:
    """Keyword arguments: the previous daemon's bytes of a name, and the function that passes bytes on."""
    if not isinstance(notify, Notifier):
        return {}
    return {"handed_over": notify.handed_over.get(name, b""), "hand_over": partial(notify.keep, name)}


def reloading() -> str:
    """The state to send before a reload, after which `SERVING` is sent. The clock distinguishes reloads."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nSTATUS=reading the configuration"


def stopping(drain: float) -> str:
    """The state to send when a stop begins, which may take `drain` seconds longer."""
    longer = f"\nEXTEND_TIMEOUT_USEC={int((drain + UNIT_STOP_SECONDS) * 1_000_000)}" if drain else ""
    return f"STOPPING=1\nSTATUS=stopping{longer}"


def watchdog_seconds(environ: MutableMapping[str, str]) -> float | None:
    """The interval in which systemd expects a sign of life; None if it expects none."""
    microseconds = environ.pop("WATCHDOG_USEC", "")
    pid = environ.pop("WATCHDOG_PID", "")
    if not microseconds.isdigit() or (pid and pid != str(os.getpid())):
        return None
    return int(microseconds) / 1_000_000


async def feed_watchdog(
    notify: Callable[[str], None], interval: float | None, live: Callable[[], Awaitable[None]]
) -> None:
    """Send signs of life until cancelled, if systemd expects any within `interval` seconds.

    `live` makes a round trip through the parts that must be alive; a mere timer would outlive them.
    """
    while interval is not None:
        await live()
        notify("WATCHDOG=1")
        await trio.sleep(interval / WATCHDOG_SHARE)


def listen_fds(
    environ: MutableMapping[str, str], kept: dict[str, bytes] | None = None
) -> dict[str, socket.socket]:
    """Listening sockets from systemd, by FileDescriptorName; `kept` receives the bytes of `Notifier.keep`."""
    count = environ.pop("LISTEN_FDS", "")
    pid = environ.pop("LISTEN_PID", "")
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    if not count.isdigit() or pid != str(os.getpid()):
        return {}
    found: dict[str, socket.socket] = {}
    for offset in range(int(count)):
        fd = FIRST_FD + offset
        os.set_inheritable(fd, False)
        name = (names[offset] if offset < len(names) else "") or "front"
        if name in {TOKENS, SWITCHES}:
            with os.fdopen(fd, "rb") as memory, contextlib.suppress(OSError):
                if kept is not None and fcntl.fcntl(memory, fcntl.F_GET_SEALS) & _SEALS == _SEALS:
                    kept[name] = os.pread(fd, MAX_KEPT, 0)
            continue
        listener = socket.socket(fileno=fd)
        listener.setblocking(False)
        found[f"{name} {fd}" if name in found else name] = listener
    return found
