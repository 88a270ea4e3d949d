"""What is unwise, though not wrong, about a configuration: commands that will not be found, versions that move.

A package runner (npx, uvx and their like) without an exact version runs whatever is newest at that start: a
crash and a restart can then bring another program than the one that was looked at, or fail for want of a
network. That is how tools change behind their user's back (MCP03, "rug pull").
"""

from __future__ import annotations

import re
import shutil
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from daemon.config.redaction import secrets
from daemon.config.trail import ROOT, below
from daemon.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daemon.config.model import Config, Server


class Runner(NamedTuple):
    """A command line that fetches a package and runs it."""

    words: tuple[str, ...]
    """How it begins."""
    named_by: tuple[str, ...]
    """Options whose value is the package; without one, it is the first word that is no option."""
    valued: tuple[str, ...]
    """Other options that take the next word as their value."""
    example: str
    """How an exact version is written after the package's name."""


_NPM_VALUED = ("--prefix", "--cache", "--registry", "--userconfig", "-c", "--call", "-w", "--workspace")
_UV_VALUED = (
    "--with", "--python", "-p", "--index", "--index-url", "-i", "--extra-index-url", "--default-index",
    "--with-requirements", "--with-editable", "--directory", "--env-file", "--cache-dir", "--constraints",
    "--overrides", "--project", "--config-file", "--exclude-newer",
)  # fmt: skip

RUNNERS = (
    Runner(("npx",), ("-p", "--package"), _NPM_VALUED, "@1.2.3"),
    Runner(("pnpx",), ("--package",), _NPM_VALUED, "@1.2.3"),
    Runner(("bunx",), ("-p", "--package"), (), "@1.2.3"),
    Runner(("uvx",), ("--from",), _UV_VALUED, "==1.2.3"),
    Runner(("uv", "tool", "run"), ("--from",), _UV_VALUED, "==1.2.3"),
    Runner(("pipx", "run"), ("--spec",), ("--python", "--index-url", "-i", "--pip-args"), "==1.2.3"),
)

_PACKAGE = re.compile(r"(@?[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?)(\[[\w,.-]*\])?(.*)", re.ASCII)
"""Name (with npm's scope), extras, and what is said about the version."""

_EXACT = re.compile(r"(?:@|==)\s*v?\d+(?:\.\d+)+[\w.+!-]*", re.ASCII)
_VERSIONED = re.compile(r"(?:[@=<>~!^].*)?", re.ASCII)


def advice(config: Config, environ: Mapping[str, str]) -> list[Fault]:
    """Everything worth a warning, each at its place in the file. `environ` is where PATH is taken from."""
    hidden = secrets(config)
    found: list[Fault] = []
    for name, server in config.mcp_servers.items():
        if server.enabled and server.command:
            trail = below(below(ROOT, "mcpServers"), name)
            found += _missing_command(server, trail, environ)
            found += (fault for fault in _unpinned(server, trail) if not _shows(fault, hidden))
    return found


def _shows(fault: Fault, hidden: frozenset[str]) -> bool:
    return any(word in fault.message for word in hidden)


def _missing_command(server: Server, trail: str, environ: Mapping[str, str]) -> Iterator[Fault]:
    assert server.command is not None
    if "/" in server.command and not server.command.startswith("/"):
        return  # relative to the directory that the server is started in
    if shutil.which(server.command, path=server.env.get("PATH", environ.get("PATH"))) is None:
        where = "there is no such program" if "/" in server.command else "it is not on PATH"
        message = f"'{server.command}' cannot be started: {where}. Install it, or write its absolute path"
        yield Fault(path=below(trail, "command"), message=message)


def _unpinned(server: Server, trail: str) -> Iterator[Fault]:
    assert server.command is not None
    words = (PurePath(server.command).name, *server.args)
    for runner in RUNNERS:
        if words[: len(runner.words)] != runner.words:
            continue
        rest = words[len(runner.words) :]
        # Offline, a runner takes what it has: nothing moves.
        if "--offline" not in rest and (package := _package(rest, runner)) is not None:
            yield from _moving(package, runner, below(trail, "args"))


def _package(words: Sequence[str], runner: Runner) -> str | None:
    """The package that a runner is told to run; None if there is none."""
    skip = False
    for word, following in pairwise((*words, "")):
        option, equals, value = word.partition("=")
        if skip:
            skip = False
        elif option in runner.named_by:
            return value if equals else following
        elif word.startswith("-"):
            skip = not equals and word in runner.valued
        else:
            return word
    return None


def _moving(package: str, runner: Runner, trail: str) -> Iterator[Fault]:
    match = _PACKAGE.fullmatch(package)
    if match is None or not _VERSIONED.fullmatch(match[3]) or _EXACT.fullmatch(match[3]):
        return
    name = match[1] + (match[2] or "")
    message = (
        f"'{package}' has no exact version: every start may run another release, and needs the network to find"
        f" out. Write the one you have looked at, as in '{name}{runner.example}'"
    )
    yield Fault(path=trail, message=message)
