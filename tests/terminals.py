"""Terminals that a command runs in: one that a person types into, and one whose screen is looked at."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import pyte

from tests.e2e.forking import FORKS, ROOT, Life
from tests.unit.cli.daemons import environment
from tests.waiting import WAIT, eventually

INTERRUPT = "\x03"
"""Ctrl-C: the terminal makes SIGINT of it."""

PIECE = 32
"""Bytes after which the screen is looked at: a terminal may draw it after any."""

HISTORY = 1000
"""Lines that are kept of what scrolls away."""

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A command with a terminal as stdin, stdout and stderr; forked, where mcpd's commands are (`forking`)."""

    def __init__(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        *,
        cwd: Path | None = None,
        rows: int,
        columns: int,
    ) -> None:
        self._here, there = pty.openpty()
        self._size(rows, columns)
        code = environ.get("PYTHONPATH") or str(cwd)
        if FORKS.is_running and words[0] == sys.executable and code == str(ROOT):
            asked = [*words[words.index("daemon") + 1 :]]
            self.process: subprocess.Popen[bytes] | Life = FORKS.at_terminal(
                asked, environ, cwd or ROOT, os.ttyname(there)
            )
        else:
            # A session of its own, whose terminal this is: Ctrl-C reaches nobody else.
            self.process = subprocess.Popen(
                ["setsid", "--ctty", *words], cwd=cwd, env=environ, stdin=there, stdout=there, stderr=there
            )
        os.close(there)

    def press(self, *keys: str) -> None:
        """Press keys, or type a text."""
        for key in keys:
            if key == INTERRUPT:
                # Python loses a signal between its last look for one and the read; no person is so quick.
                eventually(self._sleeps)
            os.write(self._here, key.encode())

    def _sleeps(self) -> bool:
        stat = Path(f"/proc/{self.process.pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "S"

    def wait(self) -> int:
        """Read to the command's end; its exit status."""
        end = time.monotonic() + WAIT
        while self._more():
            assert time.monotonic() < end, f"the command goes on after {self._seen!r}"
        return self.process.wait(WAIT)

    def _take(self, data: bytes) -> None:
        """Show what was written."""
        raise NotImplementedError

    @property
    def _seen(self) -> object:
        """What a failure tells of what was shown."""
        raise NotImplementedError

    def _until(self, holds: Callable[[], object], what: str) -> None:
        end = time.monotonic() + WAIT
        while not holds():
            assert time.monotonic() < end, f"no {what} in {self._seen!r}"
            assert self._more(), f"no {what} in {self._seen!r}, and the end"

    def _size(self, rows: int, columns: int) -> None:
        # The kernel tells the foreground with SIGWINCH.
        fcntl.ioctl(self._here, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _more(self) -> bool:
        """Read what is written; False at the end."""
        ready, _, _ = select.select([self._here], [], [], WAIT)
        assert ready, f"nothing is written after {self._seen!r}"
        try:
            data = os.read(self._here, 65536)
        except OSError:
            # EIO: nobody has the terminal open any more.
            return False
        self._take(data)
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(WAIT)
        os.close(self._here)


class Place(Protocol):
    """Where a command is given: by a running daemon (`harness.Daemon`), say."""

    @property
    def code(self) -> Path: ...

    @property
    def environ(self) -> Mapping[str, str]: ...

    def command(self, *words: str) -> list[str]: ...


class Typing(Terminal):
    """`mcpd WORDS` before a person who reads and types, line by line."""

    def __init__(self, place: Place, *words: str) -> None:
        self._shown = ""
        self._read = 0
        environ = {**place.environ, "TERM": "xterm", "COLUMNS": "100"}
        super().__init__(place.command(*words), environ, cwd=place.code, rows=24, columns=100)

    def until(self, text: str) -> str:
        """What is shown after what was waited for before, up to and with a text; without styles."""
        self._until(lambda: text in self._seen, repr(text))
        begin, self._read = self._read, self._shown.index(text, self._read) + len(text)
        return self._shown[begin : self._read]

    def write(self, text: str) -> None:
        """Type a line."""
        self.press(f"{text}\n")

    def end(self) -> tuple[int, str]:
        """Wait for the command's end; its exit status, and what was shown last."""
        return self.wait(), self._seen

    @property
    def _seen(self) -> str:
        return self._shown[self._read :]

    def _take(self, data: bytes) -> None:
        self._shown += _STYLES.sub("", data.decode(errors="replace")).replace("\r\n", "\n")


class ScreenTerminal(Terminal):
    """`mcpd WORDS` on a screen in memory, which is looked at while it is being written."""

    def __init__(self, *words: str, rows: int = 24, columns: int = 80, **more: str) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=HISTORY)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""
        """All that the command wrote."""
        self.blanks = 0
        """How often the screen had less than three lines on it since it first had as many."""
        self._filled = False
        environ = {**environment(**more), "TERM": more.get("TERM", "xterm-256color")}
        super().__init__([sys.executable, "-m", "daemon", *words], environ, rows=rows, columns=columns)

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def _rows_with_something(self) -> int:
        """Looked at so often that drawing the lines would take most of a test's time."""
        return sum(any(char.data != " " for char in row.values()) for row in self._screen.buffer.values())

    @property
    def scrolled(self) -> int:
        """How many lines went out at the top."""
        return len(self._screen.history.top)

    @property
    def styles(self) -> set[str]:
        """The parameters of every SGR that was written: `1` is bold, `31` red."""
        found = re.findall(rb"\x1b\[([0-9;]*)m", self.written)
        return {part for each in found for part in each.decode().split(";")}

    def resize(self, rows: int, columns: int) -> None:
        """Give the window another size."""
        self._screen.resize(rows, columns)
        self._filled = False
        self._size(rows, columns)

    def until(self, holds: Callable[[list[str]], object]) -> list[str]:
        """The screen as soon as something holds of its lines."""
        self._until(lambda: holds(self.lines), "such lines")
        return self.lines

    def shows(self, text: str) -> list[str]:
        """The screen as soon as it has a text."""
        return self.until(lambda lines: any(text in line for line in lines))

    @property
    def _seen(self) -> list[str]:
        return self.lines

    def _take(self, data: bytes) -> None:
        self.written += data
        for at in range(0, len(data), PIECE):
            self._stream.feed(data[at : at + PIECE])
            filled = self._rows_with_something > 2
            self.blanks += self._filled and not filled
            self._filled = self._filled or filled
