"""A command of the command line: what it takes, what it asks of the daemon, how it shows the answer.

Most commands ask the daemon one question and print what it answers (`asking`). Standard library only: what
draws tables for people is named by its path, and loaded when there is something to draw.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from daemon.cli.control import EX_FAULT, ask_with, guarded, note
from daemon.cli.options import ANSWER_SECONDS, add_control, add_json, parser
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    Answer = dict[str, Any]
    AddArgument = Callable[[Any], object]

_YES = frozenset({"", "y", "yes"})


class UsageError(Exception):
    """Options that do not go together; the text says what to write."""


class CommandLine(NamedTuple):
    """A command, as `daemon.cli.table` names it."""

    name: str
    description: str
    """What it does, as its help says."""
    examples: tuple[str, ...]
    """CommandLine lines."""
    exits: Mapping[int, str]
    """What each exit status means, except those that many commands share (`EXITS`)."""
    run: Callable[[argparse.Namespace], int]
    """Does it, and returns the exit status. Raises `UsageError`, and what `control.guarded` reports."""
    usage: str = ""
    """The usage line behind the command's name, where argparse's own would mislead."""
    arguments: tuple[AddArgument, ...] = ()
    """Each adds an option, or some, besides those of `json` and `seconds`."""
    json: bool = True
    """Whether it can print data for programs."""
    seconds: float | None = ANSWER_SECONDS
    """How long it waits for the daemon unless told otherwise; None if it asks none."""
    needs: bool = True
    """Whether it fails where the daemon that it asks cannot be reached."""
    reaches: bool = True
    """Whether it concerns a daemon at all; if not, `--socket` is accepted and has no effect."""
    intermixed: bool = False
    """Whether options may stand between the words of a list."""
    rest: bool = False
    """Whether what stands after `--` is a command of its own, which `run` gets as `options.rest`."""
    changing: str | None = None
    """For a command that changes files: what helps where the configuration is faulty (`guarded`)."""

    def make_parser(self) -> argparse.ArgumentParser:
        """Reads its command line."""
        made = parser(
            self.name,
            self.description,
            examples=self.examples,
            exits=self.exits,
            asks=self.needs and self.seconds is not None,
            reaches=self.reaches,
        )
        if self.usage:
            made.usage = f"mcpd {self.name} {self.usage}"
        for add in self.arguments:
            add(made)
        if self.json:
            add_json(made)
        if self.seconds is not None:
            add_control(made, self.seconds)
        return made

    def main(self, argv: list[str]) -> int:
        """Run it with the words after its name; returns its exit status, of which 2 is wrong usage."""
        made = self.make_parser()
        words, rest = argv, list[str]()
        if self.rest and "--" in argv:
            words, rest = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
        options = made.parse_intermixed_args(words) if self.intermixed else made.parse_args(words)
        options.rest = rest
        try:
            return guarded(lambda: self.run(options), self.changing)
        except UsageError as error:
            made.error(str(error))


def argument(*names: str, **how: Any) -> AddArgument:
    """An argument or option, as `argparse` takes it."""
    return lambda made: made.add_argument(*names, **how)


def flag(name: str, meaning: str) -> AddArgument:
    """An option without a value."""
    return argument(name, action="store_true", help=meaning)


def either(*options: AddArgument) -> AddArgument:
    """Options of which one at most is given."""

    def add(made: argparse.ArgumentParser) -> None:
        only = made.add_mutually_exclusive_group()
        for option in options:
            option(only)

    return add


def asking(
    method: str,
    params: Callable[[argparse.Namespace], dict[str, Any]],
    words: Callable[[Answer], str],
    failed: Callable[[Answer], object] = lambda _answer: False,
) -> Callable[[argparse.Namespace], int]:
    """What a command does that puts one question to the daemon and prints the answer.

    Args:
        method: the operator's command (`daemon.operators.command_table`).
        params: its parameters, given the command line.
        words: the answer as a person reads it.
        failed: whether the answer says that not all was done, which makes the exit status 1.
    """

    def run(options: argparse.Namespace) -> int:
        answer = ask_with(options, method, params(options))
        print(document(answer) if options.json else words(answer))
        return EX_FAULT if failed(answer) else 0

    return run


def drawn(view: str, **more: object) -> Callable[..., str]:
    """Draws an answer on the screen of stdout, by a function `module:name` that imports rich."""

    def draw(*answer: object) -> str:
        from daemon.cli.terminal import Screen  # noqa: PLC0415 - imports rich

        module, _, name = view.partition(":")
        render: Callable[..., str] = getattr(importlib.import_module(module), name)
        return render(*answer, screen=Screen.of(sys.stdout, os.environ), **more)

    return draw


def lines(*said: str) -> str:
    """Lines with the words of servers, safe to show."""
    return "\n".join(map(visible, said))


def has_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def has_screen(environ: Mapping[str, str]) -> bool:
    """Whether a page that is opened can be seen: text browsers would take the terminal."""
    return any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def browse(url: str) -> bool:
    """Open a page; returns whether there is a browser to do it."""
    import webbrowser  # noqa: PLC0415 - 20 ms, and rarely needed

    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False


def agreed(question: str, *, yes: bool) -> bool:
    """Whether the user agrees; without a terminal nobody is asked, which is said, and nobody agrees.

    Args:
        question: a question that Enter answers with yes.
        yes: whether the user has agreed on the command line (`--yes`).
    """
    if yes:
        return True
    if not has_terminal():
        note("there is no terminal to ask in: --yes agrees")
        return False
    print(f"{question} [Y/n] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    # Without a line there is no answer: the terminal is gone.
    return bool(answer) and answer.strip().lower() in _YES
