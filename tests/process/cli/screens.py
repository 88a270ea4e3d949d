"""A terminal in memory that a command runs in: what it shows is looked at while it is being written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Self

import pyte

from tests.unit.cli.daemons import environment
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

PIECE = 32
"""Bytes after which the screen is looked at: a terminal may draw it after any."""

HISTORY = 1000
"""Lines that are kept of what scrolls away."""


class ScreenTerminal:
    """`mcpd WORDS` in a terminal of a size."""

    def __init__(self, *words: str, rows: int = 24, columns: int = 80, **more: str) -> None:
        self._here, there = pty.openpty()
        self._size(rows, columns)
        self._screen = pyte.HistoryScreen(columns, rows, history=HISTORY)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""
        """All that the command wrote."""
        self.blanks = 0
        """How often the screen had less than three lines on it since it first had as many."""
        self._filled = False
        self.process = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-m", "daemon", *words],
            env={**environment(**more), "TERM": more.get("TERM", "xterm-256color")},
            stdin=there,
            stdout=there,
            stderr=there,
        )
        os.close(there)

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def scrolled(self) -> int:
        """How many lines went out at the top."""
        return len(self._screen.history.top)

    @property
    def styles(self) -> set[str]:
        """The parameters of every SGR that was written: `1` is bold, `31` red."""
        found = re.findall(rb"\x1b\[([0-9;]*)m", self.written)
        return {part for each in found for part in each.decode().split(";")}

    def press(self, *keys: str) -> None:
        """Press keys, or type a text."""
        for key in keys:
            os.write(self._here, key.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Give the window another size."""
        self._screen.resize(rows, columns)
        self._filled = False
        self._size(rows, columns)

    def until(self, holds: Callable[[list[str]], object]) -> list[str]:
        """The screen as soon as something holds of its lines."""
        end = time.monotonic() + WAIT
        while not holds(self.lines):
            assert time.monotonic() < end, self.lines
            assert self._more(), self.lines
        return self.lines

    def shows(self, text: str) -> list[str]:
        """The screen as soon as it has a text."""
        return self.until(lambda lines: any(text in line for line in lines))

    def end(self) -> int:
        """Wait for the command's end; its exit status."""
        while self._more():
            pass
        return self.process.wait(WAIT)

    def _size(self, rows: int, columns: int) -> None:
        # The kernel tells the foreground with SIGWINCH.
        fcntl.ioctl(self._here, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _more(self) -> bool:
        ready, _, _ = select.select([self._here], [], [], WAIT)
        assert ready, f"nothing is written after {self.lines}"
        try:
            data = os.read(self._here, 65536)
        except OSError:
            # EIO: nobody has the terminal open any more.
            return False
        self.written += data
        for at in range(0, len(data), PIECE):
            self._stream.feed(data[at : at + PIECE])
            filled = sum(bool(line) for line in self.lines) > 2
            self.blanks += self._filled and not filled
            self._filled = self._filled or filled
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT)
        os.close(self._here)
