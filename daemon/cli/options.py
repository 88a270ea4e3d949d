"""Options and help texts that command lines share. Standard library only."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Mapping
from typing import TextIO

_SOCKET = (
    "the daemon's socket for clients (default: $MCPD_SOCKET, else mcpd.sock in $XDG_RUNTIME_DIR/mcpd, or the"
    " system's)"
)

EXITS = {2: "usage", 3: "the daemon cannot be reached"}
"""Exit statuses of all commands that ask the daemon; 2 is every command's."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

ANSWER_SECONDS = 10.0
"""Seconds to wait for an answer: the daemon answers from memory in milliseconds unless it hangs."""


class _Wrapped(argparse.RawDescriptionHelpFormatter):
    """Wraps the sentences of a help text to the terminal, and leaves the examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        def wrapped(line: str) -> str:
            status = re.match(r"  [0-9]+ +", line)
            if line.startswith(" ") and not status:
                return line
            return textwrap.fill(line, width, subsequent_indent=" " * len(status[0]) if status else "")

        return "\n".join(map(wrapped, text.splitlines()))


def parser(
    command: str,
    description: str,
    *,
    examples: tuple[str, ...],
    exits: Mapping[int, str],
    asks: bool = True,
    reaches: bool = True,
) -> argparse.ArgumentParser:
    """A parser with `--socket`, and a help with examples and exit statuses.

    `asks`: an unreachable daemon is a failure. `reaches`: False hides `--socket`, which has no effect.
    """
    shown = "\n".join(f"  {example}" for example in examples)
    shared = EXITS if asks and reaches else {2: EXITS[2]}
    codes = "\n".join(f"  {code:<4}{meaning}" for code, meaning in sorted({**exits, **shared}.items()))
    made = argparse.ArgumentParser(
        prog=f"mcpd {command}",
        description=description,
        epilog=f"examples:\n{shown}\n\nexit status:\n{codes}",
        formatter_class=_Wrapped,
        allow_abbrev=False,
    )
    made.add_argument("--socket", metavar="P", help=_SOCKET if reaches else argparse.SUPPRESS)
    return made


def is_coloured(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether colours and bold text are wanted; respects NO_COLOR (https://no-color.org) and `TERM=dumb`."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def add_json(parsed: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parsed.add_argument("--json", action="store_true", help="print the data as JSON, for programs")


def add_session(parsed: argparse.ArgumentParser) -> None:
    """Add the argument SESSION."""
    parsed.add_argument("session", metavar="SESSION", help="the session's number or key, as in `mcpd sessions`")


def add_follow(parsed: argparse.ArgumentParser, meaning: str) -> None:
    """Add `-f`."""
    parsed.add_argument("-f", "--follow", action="store_true", help=f"{meaning}, until Ctrl-C")


def add_last(parsed: argparse.ArgumentParser, meaning: str) -> None:
    """Add `-n`."""
    parsed.add_argument("-n", "--last", "--tail", metavar="N", type=count, help=meaning)


def add_control(parsed: argparse.ArgumentParser, seconds: float = ANSWER_SECONDS) -> None:
    """Add `--control` and `--timeout`."""
    parsed.add_argument(
        "--control",
        metavar="P",
        help="the daemon's socket for commands (default: $MCPD_CONTROL, else control.sock next to the"
        " clients' socket)",
    )
    parsed.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=positive,
        default=seconds,
        help="seconds to wait for the answer (default: %(default)g)",
    )


def positive(text: str) -> float:
    """A number of seconds over 0, for argparse. Raises argparse.ArgumentTypeError: any other text."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds over 0")
    return value


def count(text: str) -> int:
    """A whole number over 0, for argparse. Raises argparse.ArgumentTypeError: any other text."""
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number over 0")
    return int(text)


def seconds_of(text: str) -> float:
    """The seconds in `90s`, `30m`, `1h` or `2d`, for argparse."""
    if not (seconds := length_in(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90s, 30m, 1h or 2d")
    return seconds


def length_in(text: str) -> float | None:
    """The seconds in `90s`, `30m`, `1h`, `2d` or `1w`; None for any other text."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    return None if found is None else float(int(found[1]) * _UNITS[found[2]])
