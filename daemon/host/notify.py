"""Talking to systemd: readiness, watchdog, inherited sockets.

Sources: sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3). Outside systemd every function does nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

FIRST_FD = 3
"""SD_LISTEN_FDS_START."""

SERVING = "READY=1\nSTATUS=serving"
"""All is up, or up again."""

WATCHDOG_SHARE = 3
"""A sign of life is given three times within the interval that systemd asks for (sd_watchdog_enabled(3))."""


class Notifier:
    """Sends states to the service manager that started us."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Take NOTIFY_SOCKET out of the environment: no child may speak in our name."""
        self._address = environ.pop("NOTIFY_SOCKET", "")

    def __call__(self, state: str) -> None:
        """Send a state such as `READY=1`; a service manager that is gone is no reason to fail."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel,
        ):
            channel.sendto(state.encode(), address)


def reloading() -> str:
    """The configuration is being read anew; `SERVING` follows. The clock tells one reload from the next."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nSTATUS=reading the configuration"


def watchdog_seconds(environ: MutableMapping[str, str]) -> float | None:
    """The interval within which systemd wants a sign of life; None if it does not."""
    microseconds = environ.pop("WATCHDOG_USEC", "")
    pid = environ.pop("WATCHDOG_PID", "")
    if not microseconds.isdigit() or (pid and pid != str(os.getpid())):
        return None
    return int(microseconds) / 1_000_000


async def feed_watchdog(
    notify: Callable[[str], None], interval: float | None, live: Callable[[], Awaitable[None]]
) -> None:
    """Give signs of life until cancelled, if any are wanted.

    Args:
        notify: tells the service manager.
        interval: seconds within which it wants a sign; None: it does not.
        live: a round trip through what must be alive: a timer alone would outlive it.
    """
    while interval is not None:
        await live()
        notify("WATCHDOG=1")
        await trio.sleep(interval / WATCHDOG_SHARE)


def listen_fds(environ: MutableMapping[str, str]) -> dict[str, socket.socket]:
    """Sockets that systemd listens on for us, by their FileDescriptorName."""
    count = environ.pop("LISTEN_FDS", "")
    pid = environ.pop("LISTEN_PID", "")
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    if not count.isdigit() or pid != str(os.getpid()):
        return {}
    found: dict[str, socket.socket] = {}
    for offset in range(int(count)):
        fd = FIRST_FD + offset
        os.set_inheritable(fd, False)
        listener = socket.socket(fileno=fd)
        listener.setblocking(False)
        found[names[offset] if offset < len(names) and names[offset] else "front"] = listener
    return found
