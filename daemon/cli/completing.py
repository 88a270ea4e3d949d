"""The parsers of whole command lines, and what a shell is answered that completes one (`mcpd completions`).

Names of servers, tools, sessions and so on come from the running daemon; where there is none, nothing is said.
"""

from __future__ import annotations

import argparse
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import argcomplete
from argcomplete.completers import FilesCompleter, SuppressCompleter
from argcomplete.shell_integration import shellcode

from daemon.cli.command import CommandLine, argument
from daemon.cli.control import DaemonUnreachable, RemoteFault, ask
from daemon.cli.table import COMMANDS, implementation
from daemon.host.paths import control_socket
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Names = Callable[[argparse.Namespace], Iterator[str]]

LONGEST_SECONDS = 1.0
"""How long the daemon may take: somebody waits at a prompt, and it answers from memory in milliseconds."""

MOST_NAMES = 2_000
"""Names that a shell is given: more than anybody reads, and bash takes seconds to sort them."""

_FILES = re.compile(r"F|D|DIR|FILE|P")
"""The words for values that are files."""


def complete() -> int:
    """Answer the shell that asks through the environment (argcomplete's protocol). Returns 0."""
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
    """Give an argument what completes it, by the word that `--help` has for it."""
    word = action.metavar if isinstance(action.metavar, str) else ""
    names = _BY_OPTION.get(action.dest) if action.option_strings else None
    names = names or _BY_WORD.get(word)
    if names is not None:
        completer: Any = _Live(names)
    elif action.choices is None and _FILES.fullmatch(word):
        completer = FilesCompleter()
    else:
        return
    vars(action)["completer"] = completer


class _Live:
    """Names of the running daemon's, as argcomplete asks for them."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def __call__(self, *, prefix: str, parsed_args: argparse.Namespace, **_more: object) -> list[str]:
        """The names that begin with `prefix`.

        Left out are those that no terminal can show: a server must not write what is run at a prompt.
        """
        with suppress(DaemonUnreachable, RemoteFault):
            found = (
                name for name in self._names(parsed_args) if name.startswith(prefix) and visible(name) == name
            )
            return [name for name, _ in zip(dict.fromkeys(found), range(MOST_NAMES), strict=False)]
        return []


def _ask(options: argparse.Namespace, method: str) -> dict[str, Any]:
    named = getattr(options, "control", None)
    path = named or str(control_socket(os.environ, getattr(options, "socket", None)))
    return ask(method, {}, path=path, timeout=LONGEST_SECONDS)


def _servers(options: argparse.Namespace) -> Iterator[str]:
    yield from _ask(options, "status")["servers"]


def _instances(options: argparse.Namespace) -> Iterator[str]:
    for name, server in _ask(options, "status")["servers"].items():
        yield name
        yield from (instance["name"] for instance in server.get("instances", ()))


def _tools(options: argparse.Namespace) -> Iterator[str]:
    for category in _ask(options, "tools")["categories"].values():
        yield from (f"{tool['server']}/{tool['tool']}" for tool in category["tools"].values())


def _servers_and_tools(options: argparse.Namespace) -> Iterator[str]:
    yield from _servers(options)
    yield from _tools(options)


def _categories(options: argparse.Namespace) -> Iterator[str]:
    yield from _ask(options, "tools")["categories"]


def _prompts(options: argparse.Namespace) -> Iterator[str]:
    for prompt in _ask(options, "prompts")["prompts"]:
        yield f"{prompt['server']}/{prompt['name']}"


def _resources(options: argparse.Namespace) -> Iterator[str]:
    for resource in _ask(options, "resources")["resources"]:
        yield resource["uri"]


def _sessions(options: argparse.Namespace) -> Iterator[str]:
    for session in _ask(options, "sessions")["sessions"]:
        yield session["key"]


def _calls(options: argparse.Namespace) -> Iterator[str]:
    for call in _ask(options, "calls")["inFlight"]:
        yield str(call["id"])


def _profiles(options: argparse.Namespace) -> Iterator[str]:
    yield from _ask(options, "status")["daemon"]["surfaces"]


def _surfaces(_options: argparse.Namespace) -> Iterator[str]:
    from daemon.surfaces.table import SURFACES  # noqa: PLC0415 - they are what a daemon imports

    yield from ("auto", *SURFACES)


def _clients(_options: argparse.Namespace) -> Iterator[str]:
    from daemon.setup.clients.known_programs import PROGRAMS  # noqa: PLC0415 - with their formats

    yield from PROGRAMS


_BY_WORD: dict[str, Names] = {
    "SERVER": _servers,
    "SERVER|INSTANCE": _instances,
    "SERVER/TOOL": _tools,
    "SERVER[/TOOL]": _servers_and_tools,
    "SERVER/NAME": _prompts,
    "URI|SERVER/URI": _resources,
    "SESSION": _sessions,
    "KEY": _sessions,
    "CLIENT": _clients,
    "CALL": _calls,
}
"""What completes an argument, by the word that `--help` shows for it (`metavar`)."""

_BY_OPTION: dict[str, Names] = {
    "profile": _profiles,
    "surface": _surfaces,
    "servers": _servers,
    "category": _categories,
}
"""What completes the value of an option, by its name, where that says more than the word."""


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    made: argparse.ArgumentParser = implementation(command).make_parser()
    return made


def whole_parser(command: str | None) -> argparse.ArgumentParser:
    """A parser of whole command lines, which knows the words of every command and the options of one.

    Args:
        command: the one whose module is imported; None or an unknown word: no module is.
    """
    made = argparse.ArgumentParser(
        prog="mcpd", description="The init system for MCP servers.", allow_abbrev=False
    )
    made.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = made.add_subparsers(metavar="COMMAND")
    for name, (purpose, _example) in COMMANDS.items():
        own = [parser_of(name)] if name == command else []
        commands.add_parser(name, help=purpose, parents=own, add_help=not own)
    return made


SHELLS = ("bash", "zsh", "fish")
"""The shells that argcomplete's protocol is spoken by."""


def _completions(options: argparse.Namespace) -> int:
    print(shellcode(["mcpd"], shell=options.shell).strip())
    return 0


COMPLETIONS = CommandLine(
    "completions",
    "Print a script that makes a shell complete mcpd's command lines: commands, options and, from the"
    " daemon that runs, the names of servers, tools, prompts, resources, sessions and profiles. The"
    " examples are lines for ~/.bashrc, ~/.zshrc (below `compinit`) and ~/.config/fish/config.fish.",
    examples=(
        'eval "$(mcpd completions bash)"',
        'eval "$(mcpd completions zsh)"',
        "mcpd completions fish | source",
    ),
    exits={0: "printed"},
    arguments=(argument("shell", choices=SHELLS, help="for which shell"),),
    json=False,
    seconds=None,
    reaches=False,
    run=_completions,
)
