"""Shell completion (`mcpd completions`): options from the parsers, and names from a running daemon."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import argcomplete
from argcomplete.completers import FilesCompleter, SuppressCompleter
from argcomplete.shell_integration import shellcode

from daemon.cli.control import DaemonUnreachable, RemoteFault, ask
from daemon.cli.options import CommandParser
from daemon.cli.table import help_table, implementation, purposes
from daemon.host.paths import control_socket
from daemon.safety.escape import visible

Answer = Mapping[str, Any]
Names = tuple[str, Callable[[Answer], Iterable[str]]]
"""A request to the daemon, and a function that gets the names from its answer."""

LONGEST_SECONDS = 1.0
"""Seconds that completion waits for the daemon: a person waits at a prompt."""

MOST_NAMES = 2_000
"""Names passed to a shell: a person does not read more, and bash takes seconds to sort them."""

_FILES = re.compile(r"F|D|DIR|FILE|P")


def complete() -> int:
    """Answer the shell's request in the environment (argcomplete's protocol). Returns 0."""
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT") or 0)]
    # The command is known once something follows it.
    _program, *words = line.split(" ")
    command = next((word for word in words[:-1] if not word.startswith("-")), None)
    parser = whole_parser(command)
    for action in _actions(parser):
        _set_completer(action)
    argcomplete.autocomplete(parser, always_complete_options=False, default_completer=SuppressCompleter())
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list of them
        yield action
        choices = action.choices
        if isinstance(choices, dict):
            for inner in choices.values():
                yield from _actions(inner)


def _set_completer(action: argparse.Action) -> None:
    word = action.metavar if isinstance(action.metavar, str) else ""
    completer: Any = _BY_OPTION.get(action.dest) if action.option_strings else None
    completer = completer or _BY_WORD.get(word)
    if completer is None and action.choices is None and _FILES.fullmatch(word):
        completer = FilesCompleter()
    if completer is not None:
        vars(action)["completer"] = completer


class _Live:
    def __init__(self, *lists: Names) -> None:
        self._lists = lists

    def __call__(self, *, prefix: str, parsed_args: argparse.Namespace, **_more: object) -> list[str]:
        """The printable names that begin with `prefix`: a server's name must not put commands into a shell."""
        control, socket = (getattr(parsed_args, name, None) for name in ("control", "socket"))
        path = control or str(control_socket(os.environ, socket))
        found = list[str]()
        with suppress(DaemonUnreachable, RemoteFault):
            for method, names in self._lists:
                found += names(ask(method, {}, path=path, timeout=LONGEST_SECONDS))
        shown = (name for name in found if name.startswith(prefix) and visible(name) == name)
        return list(islice(dict.fromkeys(shown), MOST_NAMES))


def _instances(answer: Answer) -> Iterator[str]:
    for name, server in answer["servers"].items():
        yield name
        yield from (instance["name"] for instance in server.get("instances", ()))


def _holding(answer: Answer) -> Iterator[str]:
    for name, server in answer["servers"].items():
        yield name
        yield from (f"{name}/{word}" for word in server.get("held", ()))


def _tools(answer: Answer) -> Iterator[str]:
    for category in answer["categories"].values():
        yield from (f"{tool['server']}/{tool['tool']}" for tool in category["tools"].values())


def _surfaces(**_asked: object) -> Iterator[str]:
    from daemon.surfaces.table import SURFACES  # noqa: PLC0415 - heavy

    yield from ("auto", *SURFACES)


def _clients(**_asked: object) -> Iterator[str]:
    from daemon.setup.clients.programs import PROGRAMS  # noqa: PLC0415 - with their formats

    yield from PROGRAMS


_SERVERS: Names = ("status", lambda answer: answer["servers"])
_TOOLS: Names = ("tools", _tools)
_SESSIONS = _Live(("sessions", lambda answer: (each["key"] for each in answer["sessions"])))

_BY_WORD = {
    "SERVER": _Live(_SERVERS),
    "SERVER|.": _Live(_SERVERS),
    "SERVER|INSTANCE": _Live(("status", _instances)),
    "SERVER/TOOL": _Live(_TOOLS),
    "SERVER[/TOOL]": _Live(_SERVERS, _TOOLS),
    "SERVER[/TOOL]|verify": _Live(("", lambda _answer: ("verify",)), _SERVERS, _TOOLS),
    # The answer to `approve` would count as shown.
    "SERVER[/NAME]": _Live(("status", _holding)),
    "SERVER/NAME": _Live(
        ("prompts", lambda answer: (f"{each['server']}/{each['name']}" for each in answer["prompts"]))
    ),
    "URI|SERVER/URI": _Live(("resources", lambda answer: (each["uri"] for each in answer["resources"]))),
    "SESSION": _SESSIONS,
    "KEY": _SESSIONS,
    "CLIENT": _clients,
    "CALL": _Live(("calls", lambda answer: (str(each["id"]) for each in answer["inFlight"]))),
}

_BY_OPTION = {
    "profile": _Live(("status", lambda answer: answer["daemon"]["surfaces"])),
    "surface": _surfaces,
    "servers": _BY_WORD["SERVER"],
    "category": _Live(("tools", lambda answer: answer["categories"])),
}
"""Completers by option, where the option says more about the value than its metavar."""


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of one command, with the texts of `help.toml`."""
    made: argparse.ArgumentParser = implementation(command).make_parser()
    if isinstance(made, CommandParser):
        made.explain()
    return made


def whole_parser(command: str | None) -> argparse.ArgumentParser:
    """A parser of whole command lines, which imports only the module of `command`."""
    made = argparse.ArgumentParser(
        prog="mcpd", description="The init system for MCP servers.", allow_abbrev=False
    )
    made.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = made.add_subparsers(metavar="COMMAND")
    for name, (purpose, _example) in purposes(help_table()).items():
        own = [parser_of(name)] if name == command else []
        commands.add_parser(name, help=purpose, parents=own, add_help=not own)
    return made


def completions(options: argparse.Namespace) -> int:
    """Print the script that completes command lines in a shell."""
    print(shellcode(["mcpd"], shell=options.shell).strip())
    return 0
