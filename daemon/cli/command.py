"""Builds commands that parse options, ask the daemon and print the answer; standard library only."""

from __future__ import annotations

import argparse
import fcntl
import importlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from daemon.cli.control import EX_FAULT, EX_UNREACHABLE, KINDS, Message, ask_with, guarded, note
from daemon.cli.options import CommandParser, count, interval, moment, positive, seconds_of
from daemon.host.paths import state_dir
from daemon.safety.escape import document, json_line, visible

Words = Callable[[Any], str | Iterable[str]]
"""Renders an answer for people: a drawn text, or lines that are still to be escaped."""

_YES = frozenset({"y", "yes"})


class UsageError(Exception):
    """Raised for options that exclude or need each other; the text says what to type."""


_TYPES: dict[str, Callable[[str], Any]] = {
    "-w,--watch": interval,
    "--log-level": str.lower,
    "SECONDS": positive,
    "TIME": seconds_of,
    "WHEN": moment,
    **dict.fromkeys(("CALL", "N"), count),
    **dict.fromkeys(("D", "DIR", "F", "FILE"), Path),
}
"""Parsers of values, by option or by the word that stands for the value."""

# `~`, `attribute=`, the options, `:`, the value, how often, `=` and the default (`table.COMMANDS`).
_ARGUMENT = re.compile(r"(~?)(?:(\w+)=)?(-[^:]*)?:?(.*?)([?+*]*)(?:=([\d.]+))?")

_REPEATED: dict[str, dict[str, Any]] = {
    "?": {"nargs": "?", "const": ""},
    "*": {"action": "append", "default": []},
    "+": {"action": "extend", "nargs": "+", "default": []},
    "+*": {"action": "append", "nargs": "+", "default": []},
}


def add_arguments(made: argparse.ArgumentParser, arguments: str) -> None:
    """Add arguments to a parser, as `daemon.cli.table` writes them."""
    for word in arguments.split():
        if word.startswith("("):
            group: Any = made.add_mutually_exclusive_group()
            for each in word[1:-1].split("|"):
                _add(group, each)
        else:
            _add(made, word)


def _add(made: argparse.ArgumentParser, argument: str) -> None:
    found = _ARGUMENT.fullmatch(argument)
    assert found is not None, argument
    hidden, attribute, names, value, many, default = found.groups()
    how: dict[str, Any] = {"help": argparse.SUPPRESS} if hidden else {}
    if value:
        how |= _value(value, _TYPES.get(names or "") or _TYPES.get(value), default)
    if names is None:
        how |= {"default": []} if many == "*" else {}  # Else argparse takes it for required.
        added = made.add_argument(attribute or value.lower(), nargs=many or None, **how)
        if value == "CLIENT":
            vars(added)["clients"] = _Clients()
        return
    if attribute:
        how["dest"] = attribute
    if not value:
        how["action"] = argparse.BooleanOptionalAction if "[no-]" in names else "store_true"
    made.add_argument(*names.replace("[no-]", "").split(","), **how, **_REPEATED.get(many, {}))
    if names == "--json":
        made.add_argument("-o", dest="json", choices=("json",), help=argparse.SUPPRESS)


class _Clients:
    def __str__(self) -> str:
        from daemon.setup.clients.programs import PROGRAMS  # noqa: PLC0415 - for the help of a few commands

        return ", ".join(PROGRAMS)


def _value(value: str, kind: Callable[[str], Any] | None, default: str | None) -> dict[str, Any]:
    how: dict[str, Any] = {} if kind is None else {"type": kind}
    if default is not None and kind is not None:
        how["default"] = kind(default)
    if value.islower():
        return {**how, "choices": value.split("|")}
    if value == "DECISION":
        from daemon.audit.record import Decision  # noqa: PLC0415 - for one command

        how["choices"] = [*map(str, Decision)]
    return {**how, "metavar": value}


class CommandLine(NamedTuple):
    """A command of `daemon.cli.table`."""

    name: str
    place: str
    """Gets the options and returns the exit status; may raise errors that `control.guarded` reports."""
    arguments: str
    """The arguments besides `--socket`, as `add_arguments` reads them."""
    synopsis: str = ""
    """The usage text after the command's name; if empty, argparse makes one."""
    needs: bool = True
    """Whether the command fails if no daemon answers."""
    reaches: bool = True
    """Whether `--socket` has an effect; if not, it is accepted for scripts that always pass it."""
    intermixed: bool = False
    """Whether options may stand between positional words."""
    rest: bool = False
    """Whether the words after `--` are another command line, `options.rest`."""
    changing: str | None = None
    """For commands that change files: a hint to print if the configuration is faulty (`guarded`)."""

    def make_parser(self) -> CommandParser:
        """The parser of the command line."""
        made = CommandParser(self.name, asks=self.needs, reaches=self.reaches)
        if self.synopsis:
            made.usage = f"mcpd {self.name} {self.synopsis}"
        add_arguments(made, self.arguments)
        return made

    def main(self, argv: list[str]) -> int:
        """Run the command with the words after its name, and return the exit status (2 for wrong usage)."""
        made = self.make_parser()
        words, rest = argv, list[str]()
        if self.rest and "--" in argv:
            words, rest = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
        options = made.parse_intermixed_args(words) if self.intermixed else made.parse_args(words)
        options.given = {name for name, value in vars(options).items() if value != made.get_default(name)}
        options.rest, options.change, options.changing = rest, self.name, self.changing
        follows = hasattr(options, "as_operator")
        if follows and options.profile is None and not options.as_operator:
            options.profile = os.environ.get("MCPD_PROFILE") or "default"
        if self.changing is not None:
            _end_as_by_ctrl_c()
        if self.changing is not None or self.name == "status":
            _tell_trials()
        run = _imported(f"daemon.{self.place}")
        try:
            return guarded(lambda: run(options), self.changing, KINDS if follows else None)
        except UsageError as error:
            made.error(str(error))


def _imported(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def check_flags(options: argparse.Namespace, actions_of: Mapping[str, tuple[str, ...]]) -> None:
    """Raise UsageError for an option that the action does not take; `actions_of` has each option's actions."""
    for name, actions in actions_of.items():
        if name in options.given and options.action not in actions:
            raise UsageError(f"--{name.replace('_', '-')} goes with `mcpd {options.change} {actions[-1]}`")


def _end_as_by_ctrl_c() -> None:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt, so that the command undoes its trial."""
    with suppress(ValueError):  # not in the main thread
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, signal.default_int_handler)


def trial_of(name: str) -> Path:
    """The file that tells of a change of a server; the process that tries the change holds a lock on it."""
    return state_dir(os.environ) / "trials" / name


@contextmanager
def on_trial(options: argparse.Namespace, name: str, undo: str) -> Iterator[None]:
    """Try a change of a server; after `kill -9`, the next commands tell how to `undo` the change."""
    mark, way = trial_of(name), f"undo: {undo}" if undo else "`mcpd edit` shows it"
    with ExitStack() as held:
        with suppress(OSError):  # Without a place for it, nobody is told.
            mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark.unlink(missing_ok=True)
            file = held.enter_context(mark.open("x"))
            fcntl.flock(file, fcntl.LOCK_EX)  # until this process ends
            file.write(f"{name}: `mcpd {options.change}` was killed while it tried a change; {way}")
            file.flush()
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)


def _tell_trials() -> None:
    for mark in trial_of("").glob("*"):
        with suppress(OSError, ValueError), mark.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if warning := file.read():  # else its trial begins at this moment
                note(warning)


def for_each(options: argparse.Namespace, names: Iterable[str], one: Callable[[str], int]) -> int:
    """Call `one` for each name, even after a failure, and return the worst exit status."""
    worst = 0
    for name in names:
        worst = max(worst, status := guarded(partial(one, name), options.changing))
        if status == EX_UNREACHABLE:  # as for all others
            break
    return worst


def ask_each(
    options: argparse.Namespace,
    names: Sequence[str],
    method: str,
    params: Callable[[str], Message],
    words: Words,
) -> int:
    """Ask the daemon once for each name and print the answers, one per line for programs."""
    encode = document if len(names) == 1 else json_line

    def one(name: str) -> int:
        answer = ask_with(options, method, params(name))
        print(encode(answer) if options.json else _printed(words(answer)), flush=True)
        return 0

    return for_each(options, names, one)


def asking(
    method: str,
    params: str | Callable[[argparse.Namespace], Message],
    words: Words,
    failed: Callable[[Any], object] = lambda _answer: False,
) -> Callable[[argparse.Namespace], int]:
    """Make a command that asks the daemon once; `params` may name options. `failed` makes the exit status 1."""

    def run(options: argparse.Namespace) -> int:
        wish = params(options) if callable(params) else {key: getattr(options, key) for key in params.split()}
        answer = ask_with(options, method, wish)
        show(options, answer, words)
        return EX_FAULT if failed(answer) else 0

    return run


def show(options: argparse.Namespace, answer: object, words: Words) -> None:
    """Print an answer, with `--json` for programs and else in words."""
    print(document(answer) if options.json else _printed(words(answer)))


def drawn(view: str, **more: object) -> Callable[..., str]:
    """Make a renderer that calls `module:name`, which imports rich, with the answer and stdout's screen."""

    def draw(*answer: object) -> str:
        from daemon.cli.terminal import Screen  # noqa: PLC0415 - imports rich

        return str(_imported(view)(*answer, screen=Screen.of(sys.stdout, os.environ), **more))

    return draw


def _printed(said: str | Iterable[str]) -> str:
    return said if isinstance(said, str) else lines(*said)


def lines(*texts: str) -> str:
    """Join lines, after escaping the servers' words in them."""
    return "\n".join(map(visible, texts))


def has_terminal() -> bool:
    """Whether a person at stdin can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def has_display(environ: Mapping[str, str]) -> bool:
    """Whether a graphical browser can open a window; a text browser would take over the terminal."""
    return any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def browse(url: str) -> bool:
    """Open a page in a browser. Returns False without a browser, or if $BROWSER cannot be read."""
    import webbrowser  # noqa: PLC0415 - 20 ms, and rarely needed

    try:
        return webbrowser.open(url)
    except (IndexError, ValueError, OSError):
        return False


def agreed(question: str, *, yes: bool, default: bool = True) -> bool:
    """Ask a question, for which Enter means `default`; `yes` agrees unasked. False without a terminal."""
    if yes:
        return True
    if not has_terminal():
        note("there is no terminal to ask in: pass --yes to agree")
        return False
    print(f"{question} [{'Y/n' if default else 'y/N'}] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    # An empty read means that the terminal is gone.
    return bool(answer) and (answer.strip().lower() in _YES if answer.strip() else default)
