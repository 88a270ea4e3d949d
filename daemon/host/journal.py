"""Events as entries of systemd's journal, with fields to look them up by: `journalctl MCPD_SERVER=git`.

Source: "Native Journal Protocol" (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/): a datagram for each entry. It
is sent without waiting: an entry that the journal has no room for is dropped; `mcpd events` still has it.
"""

from __future__ import annotations

import os
import socket
import sys
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from daemon.history.wording import sentence
from daemon.safety.escape import json_line, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.history.event import Event

SOCKET = "/run/systemd/journal/socket"
"""Where journald takes entries."""

DETAILS_BYTES = 8 * 1024
"""The most bytes of an event's details in an entry: a datagram holds some hundred kilobytes at most, and `mcpd
events --json` has all of them."""

WARNING, INFO = 4, 6
"""Priorities (syslog(3))."""


class Journal:
    """Sends events to journald."""

    def __init__(self, address: str = SOCKET) -> None:
        """Make a socket; nobody need be at the address.

        Args:
            address: where journald takes entries.
        """
        self.dropped = 0
        """How many entries could not be sent."""
        self._address = address
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def __call__(self, event: Event) -> None:
        """Send an event; neither blocks nor raises."""
        try:
            self._channel.sendto(entry(event), self._address)
        except OSError:
            self.dropped += 1

    def close(self) -> None:
        """Give the socket back."""
        self._channel.close()


def is_journal(environ: Mapping[str, str], fd: int | None = None) -> bool:
    """Whether a descriptor (None: stderr) is the journal's, by JOURNAL_STREAM (systemd.exec(5))."""
    try:
        found = os.fstat(sys.stderr.fileno() if fd is None else fd)
    except (OSError, ValueError, AttributeError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def entry(event: Event) -> bytes:
    """An event in the journal's form."""
    fields = {
        "MESSAGE": visible(sentence(event)),
        "PRIORITY": str(WARNING if event.is_bad else INFO),
        "SYSLOG_IDENTIFIER": "mcpd",
        "MCPD_EVENT": str(event.kind),
        "MCPD_SERVER": event.server,
        "MCPD_INSTANCE": event.instance,
        "MCPD_SESSION": event.session,
        "MCPD_RUN": str(event.run or ""),
        "MCPD_CAUSE": str(event.cause or ""),
        "MCPD_DETAILS": _details(event),
    }
    return b"".join(_field(name, visible(value).encode()) for name, value in fields.items() if value)


def line_of(event: Event) -> str:
    """An event as a line of the log for programs, with the same data."""
    about = {"server": event.server, "instance": event.instance, "session": event.session, "run": event.run}
    fields: dict[str, object] = {
        "time": datetime.fromtimestamp(event.at).astimezone().isoformat(),
        "level": "warning" if event.is_bad else "info",
        "message": sentence(event),
        "event": str(event.kind),
        **{name: value for name, value in about.items() if value},
        "cause": None if event.cause is None else str(event.cause),
        "details": event.details,
    }
    return json_line(fields)


def _details(event: Event) -> str:
    encoded = msgspec.json.encode(event.details)
    return encoded.decode() if event.details and len(encoded) <= DETAILS_BYTES else ""


def _field(name: str, value: bytes) -> bytes:
    if b"\n" not in value:
        return f"{name}=".encode() + value + b"\n"
    return f"{name}\n".encode() + len(value).to_bytes(8, "little") + value + b"\n"
