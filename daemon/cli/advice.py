"""What is unwise, though not wrong: files that will not be found, versions that move, open containers."""

from __future__ import annotations

import os.path
import shutil
from typing import TYPE_CHECKING

from daemon import paths
from daemon.cli import commands, runners
from daemon.cli.runners import known
from daemon.config.redaction import secrets_of
from daemon.config.trail import ROOT, below
from daemon.errors import Fault
from daemon.surfaces.table import shows_summaries
from daemon.wording import camel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from daemon.config.model import Config, Server


def advice(config: Config, environ: Mapping[str, str], beside: Path | None = None) -> list[Fault]:
    """Everything worth a warning, each at its place in the file.

    Args:
        config: what is judged.
        environ: where PATH and HOME are taken from.
        beside: the configuration's directory, for paths that were meant to begin there; None to pass over them.
    """
    found: list[Fault] = [*_keyless(config, environ)]
    for name, server in config.mcp_servers.items():
        if server.enabled and server.command:
            trail = below(below(ROOT, "mcpServers"), name)
            found += _missing_command(server, trail, environ)
            told = [*_unwise(server, below(trail, "args")), *_beyond(server, below(trail, "limits"))]
            if beside is not None and not server.cwd:
                told += _astray(server, trail, beside, paths.home(environ))
            hidden, _ = secrets_of(server)
            found += (fault for fault in told if not _shows(fault, hidden))
    return found


def missing_key(config: Config, environ: Mapping[str, str]) -> str | None:
    """The variable that summaries take their key from, if it is not set; None if nothing is missing."""
    wanted = None if config.summaries is None else config.summaries.api_key_env
    return wanted if wanted and shows_summaries(config) and not environ.get(wanted, "").strip() else None


def _keyless(config: Config, environ: Mapping[str, str]) -> Iterator[Fault]:
    if variable := missing_key(config, environ):
        message = (
            f"the environment variable {variable} is not set in this shell; the daemon's environment may be"
            " another one. Where it is not set, no model is asked: set it where the daemon is started"
        )
        yield Fault(path=below(below(ROOT, "summaries"), "apiKeyEnv"), message=message)


def _beyond(server: Server, trail: str) -> Iterator[Fault]:
    """Limits that are higher than a server is known to bear."""
    found = known(server)
    if found is None:
        return
    for limit, most in found.limits.items():
        if getattr(server.limits, limit) > most:
            key = camel(limit)
            message = f'this server {found.why}. Write "limits": {{"{key}": {most}}}'
            yield Fault(path=below(trail, key), message=message)


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


def _astray(server: Server, trail: str, beside: Path, home: Path) -> Iterator[Fault]:
    """Paths that begin at home, where nothing is, and were meant to begin at the configuration."""
    command = server.command or ""
    places = [(below(trail, "command"), command)] if "/" in command else []
    for at, word in enumerate(server.args):
        name, _, value = word.partition("=")
        places.append((below(below(trail, "args"), at), value if name.startswith("-") else word))
    for place, word in places:
        # Other arguments are paths only if they are files: `serve` and `.` mean something else.
        meant = word.startswith(("./", "../")) or word == command or os.path.isfile(beside / word)  # noqa: PTH113
        if word and not word.startswith("/") and meant and not os.path.exists(home / word):  # noqa: PTH110
            message = (
                f"'{word}' begins in the home directory, for there is no `cwd`, and is not there. Write its"
                ' absolute path, or "cwd": "." to begin beside this configuration'
            )
            yield Fault(path=place, message=message)


def _unwise(server: Server, trail: str) -> Iterator[Fault]:
    """What a server fetches anew at each start, and what a container is let out to."""
    assert server.command is not None
    for words in commands.started((server.command, *server.args)):
        for message in (*runners.moving(words), *commands.warnings(words)):
            yield Fault(path=trail, message=message)
