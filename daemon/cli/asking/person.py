"""The person at the terminal: what is said to them on stderr, and the lines that they type."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_LINE = 64 * 1024
"""Bytes of one typed line: more than a terminal hands over at once."""


class Declined(Exception):
    """The person declines to answer."""


class Interrupted(Exception):
    """The person breaks a question off, with Ctrl-C or the end of the input."""


class Person(Protocol):
    """The person at the terminal."""

    def say(self, text: str) -> None:
        """Show a text, which is safe to show."""

    def loud(self, text: str) -> str:
        """A safe text as it is shown when it must not be overlooked."""

    def line(self, prompt: str) -> str:
        """Ask for a line.

        Raises:
            Interrupted: there is none.
        """


class Terminal:
    """A terminal that is read line by line, while something else may happen meanwhile."""

    def __init__(
        self,
        stdin: TextIO,
        stderr: TextIO,
        *,
        colour: bool,
        meanwhile: tuple[int, Callable[[], None]] | None = None,
    ) -> None:
        """Begin.

        Args:
            stdin: where lines are typed: a terminal.
            stderr: where everything is shown: stdout belongs to the result.
            colour: whether what must not be overlooked may be bold.
            meanwhile: a descriptor, and what is called when it is readable while a line is waited for; that
                may raise to end the wait.
        """
        self._stdin = stdin.fileno()
        self._stderr = stderr
        self._colour = colour
        self._meanwhile = meanwhile

    def say(self, text: str) -> None:
        """Show a text (`Person.say`)."""
        print(text, file=self._stderr, flush=True)

    def loud(self, text: str) -> str:
        """The text in bold (`Person.loud`)."""
        return f"\x1b[1m{text}\x1b[0m" if self._colour else text

    def line(self, prompt: str) -> str:
        """Ask for a line (`Person.line`); Ctrl-C and Ctrl-D break it off."""
        try:
            # In here: whoever presses Ctrl-C as soon as the prompt is there means the prompt.
            print(prompt, end="", file=self._stderr, flush=True)
            typed = self._read()
        except KeyboardInterrupt:
            self.say("")
            raise Interrupted from None
        if not typed:
            self.say("")
            raise Interrupted
        return typed.decode(errors="replace").rstrip("\r\n")

    def _read(self) -> bytes:
        others = () if self._meanwhile is None else (self._meanwhile[0],)
        while True:
            ready, _, _ = select.select([self._stdin, *others], [], [])
            if self._meanwhile is not None and self._meanwhile[0] in ready:
                self._meanwhile[1]()
            if self._stdin in ready:
                # A terminal in its usual mode hands over one line at a time.
                return os.read(self._stdin, MAX_LINE)


def forget_typed(stdin: TextIO) -> None:
    """Drop what was typed before anything was asked: it is the answer to nothing."""
    import termios  # noqa: PLC0415 - only with a terminal

    try:
        termios.tcflush(stdin.fileno(), termios.TCIFLUSH)
    except termios.error:
        return


def is_coloured(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether bold text is wanted: https://no-color.org and `TERM=dumb` are respected."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
