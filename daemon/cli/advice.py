"""What is unwise, though not wrong: commands that will not be found, versions that move, open containers."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from daemon.cli import containers, runners
from daemon.cli.commands import started
from daemon.config.redaction import secrets
from daemon.config.trail import ROOT, below
from daemon.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daemon.config.model import Config, Server


def advice(config: Config, environ: Mapping[str, str]) -> list[Fault]:
    """Everything worth a warning, each at its place in the file. `environ` is where PATH is taken from."""
    hidden = secrets(config)
    found: list[Fault] = []
    for name, server in config.mcp_servers.items():
        if server.enabled and server.command:
            trail = below(below(ROOT, "mcpServers"), name)
            found += _missing_command(server, trail, environ)
            found += (fault for fault in _unwise(server, below(trail, "args")) if not _shows(fault, hidden))
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


def _unwise(server: Server, trail: str) -> Iterator[Fault]:
    """What a server fetches anew at each start, and what a container is let out to."""
    assert server.command is not None
    for words in started((server.command, *server.args)):
        for message in (*runners.moving(words), *containers.warnings(words)):
            yield Fault(path=trail, message=message)
