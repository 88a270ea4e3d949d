"""A person at a terminal, for commands that ask: a pseudo terminal that is typed into and read."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import time
from typing import TYPE_CHECKING, Protocol, Self

from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

INTERRUPT = "\x03"
"""Ctrl-C: the terminal makes SIGINT of it."""

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Place(Protocol):
    """Where a command is given: by a running daemon (`harness.Daemon`), say."""

    @property
    def code(self) -> Path: ...

    @property
    def environ(self) -> Mapping[str, str]: ...

    def command(self, *words: str) -> list[str]: ...


class Typing:
    """`mcpd WORDS` with a terminal as stdin, stdout and stderr."""

    def __init__(self, place: Place, *words: str) -> None:
        self._here, there = pty.openpty()
        self._shown = ""
        self._read = 0
        # A session of its own, whose terminal this is: Ctrl-C reaches nobody else.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *place.command(*words)],
            cwd=place.code,
            env={**place.environ, "TERM": "xterm", "COLUMNS": "100"},
            stdin=there,
            stdout=there,
            stderr=there,
        )
        os.close(there)

    def until(self, text: str) -> str:
        """What is shown after what was waited for before, up to and with a text; without styles."""
        end = time.monotonic() + WAIT
        while (at := self._shown.find(text, self._read)) < 0:
            assert time.monotonic() < end, f"no {text!r} in {self._shown[self._read :]!r}"
            assert self._more(), f"no {text!r} in {self._shown[self._read :]!r}, and the end"
        found = self._shown[self._read : at + len(text)]
        self._read = at + len(text)
        return found

    def write(self, text: str) -> None:
        """Type a line."""
        os.write(self._here, text.encode() + b"\n")

    def press(self, key: str) -> None:
        """Press one key."""
        os.write(self._here, key.encode())

    def end(self) -> tuple[int, str]:
        """Wait for the command's end; its exit status, and what was shown last."""
        while self._more():
            pass
        return self.process.wait(WAIT), self._shown[self._read :]

    def _more(self) -> bool:
        """Read what is shown; False at the end."""
        ready, _, _ = select.select([self._here], [], [], WAIT)
        assert ready, f"nothing is shown after {self._shown!r}"
        try:
            data = os.read(self._here, 65536)
        except OSError:
            # EIO: nobody has the terminal open any more.
            return False
        self._shown += _STYLES.sub("", data.decode(errors="replace")).replace("\r\n", "\n")
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
