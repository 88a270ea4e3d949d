"""The parser of command lines, and parsers for values of options. Standard library only."""

from __future__ import annotations

import argparse
import re
import textwrap
import time
from collections.abc import Mapping
from typing import Any, NoReturn, TextIO

from daemon.cli.table import help_table

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

WATCH_SECONDS = 2.0
"""Seconds between two pictures of `mcpd status --watch` by default."""

UNREACHABLE = "3"
"""The exit status of commands that find no daemon."""


class _Wrapped(argparse.RawDescriptionHelpFormatter):
    def _format_usage(self, *given: Any, **more: Any) -> str:
        # argparse breaks neither a usage that it is given nor a group of options.
        lines = super()._format_usage(*given, **more).splitlines()
        indents = (" " * (len(each) - len(each.lstrip()) or len("usage: ")) for each in lines)
        pairs = zip(lines, indents, strict=True)
        return "".join(textwrap.fill(each, self._width, subsequent_indent=to) + "\n" for each, to in pairs)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        def wrapped(line: str) -> str:
            status = re.match(r"  [0-9]+ +", line)
            if line.startswith(" ") and not status:
                return line
            return textwrap.fill(line, width, subsequent_indent=" " * len(status[0]) if status else "")

        return "\n".join(map(wrapped, text.splitlines()))


class CommandParser(argparse.ArgumentParser):
    """A parser that reads the command's texts (`help.toml`) only to print them, since reading takes time."""

    def __init__(self, command: str, *, asks: bool = True, reaches: bool = True) -> None:
        """`asks` says that the command fails without a daemon; without `reaches`, `--socket` is hidden."""
        super().__init__(prog=f"mcpd {command}", formatter_class=_Wrapped, allow_abbrev=False)
        self._command, self._asks = command, asks and reaches
        self.add_argument("--socket", metavar="P", help=None if reaches else argparse.SUPPRESS)

    def format_help(self) -> str:
        """The help, with the command's texts."""
        self.explain()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print the fault, with the line's positional words for a wrong option, and end with 2."""
        formatter = self.formatter_class(prog=f"{self.prog} [OPTIONS]")
        formatter.add_usage(None, [each for each in self._actions if not each.option_strings], [])
        self.exit(2, f"{formatter.format_help()}{self.prog}: error: {message}\n")

    def explain(self) -> None:
        """Take description, arguments, examples and exit statuses from `help.toml`."""
        own, shared = (help_table()[each] for each in (self._command, "shared"))
        meanings = {**shared["arguments"], **own.get("arguments", {})}
        for action in self._actions:
            name = next((each for each in action.option_strings if each.startswith("--")), action.dest)
            if action.help is None and name in meanings:
                action.help = " ".join(meanings[name].split())
        exits = {**own["exits"], **shared["exits"]}
        if not self._asks:
            del exits[UNREACHABLE]
        statuses = [f"  {code:<4}{exits[code]}" for code in sorted(exits, key=int)]
        examples = [f"  {each}" for each in own["examples"]]
        self.description = " ".join(own["text"].split())
        self.epilog = "\n".join(["examples:", *examples, "", "exit status:", *statuses])


def is_coloured(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether to use colours and bold text; respects NO_COLOR (https://no-color.org) and `TERM=dumb`."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def positive(text: str) -> float:
    """Parse a positive number of seconds for argparse. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds over 0")
    return value


def interval(text: str) -> float:
    """Parse the seconds of `--watch` for argparse, or take its default. Raises argparse.ArgumentTypeError."""
    try:
        return positive(text) if text else WATCH_SECONDS
    except argparse.ArgumentTypeError as error:
        why = f"{error}; a server's name comes before it: mcpd status NAME --watch"
        raise argparse.ArgumentTypeError(why) from None


def count(text: str) -> int:
    """Parse a positive whole number for argparse. Raises argparse.ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number over 0")
    return int(text)


def moment(text: str) -> float:
    """Parse an age, a local ISO time, a day's name or a past time of day for argparse, into epoch seconds."""
    from datetime import datetime, timedelta  # noqa: PLC0415 - few commands need it

    now = time.time()
    if (ago := length_in(text)) is not None:
        return now - ago
    today = datetime.fromtimestamp(now).astimezone().date()
    clock = re.fullmatch(r"[0-9]{1,2}(:[0-9]{2}){1,2}", text)
    written = {"today": str(today), "yesterday": str(today - timedelta(days=1))}.get(text, text)
    if clock:
        written = f"{today} {text.zfill(3 * text.count(':') + 2)}"
    try:
        at = datetime.fromisoformat(written)
        return (at - timedelta(days=1) if clock and at.timestamp() > now else at).timestamp()
    except (ValueError, OverflowError):
        why = f"{text!r} is not a time: write 90s, 30m, 1h, 2d, today, yesterday, 22:00, or 2026-11-22T22:00"
        raise argparse.ArgumentTypeError(why) from None


def seconds_of(text: str) -> float:
    """Parse `90s`, `30m`, `1h` or `2d` into seconds, for argparse."""
    if not (seconds := length_in(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write 90s, 30m, 1h or 2d")
    return seconds


def length_in(text: str) -> float | None:
    """Parse `90s`, `30m`, `1h`, `2d` or `1w` into seconds; None for any other text."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    return None if found is None else float(int(found[1]) * _UNITS[found[2]])
