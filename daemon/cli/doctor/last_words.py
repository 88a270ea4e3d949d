"""The last words of servers that are not well, which tell more than their causes do (`operators.remedies`)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from daemon.cli.control import DaemonUnreachable, RemoteFault
from daemon.operators.remedies import LINES, needs_words
from daemon.states import WELL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Ask = Callable[[str, dict[str, Any]], dict[str, Any]]


def last_words(servers: Mapping[str, Any], ask: Ask) -> dict[str, list[str]]:
    """The last lines of stderr of every server that is not well, by name, oldest first.

    Args:
        servers: as in a status, which shows five lines of each; a stack trace has more.
        ask: asks the daemon a question, by method and params.
    """
    return {name: _words(name, server, ask) for name, server in servers.items() if server["state"] not in WELL}


def _words(name: str, server: Mapping[str, Any], ask: Ask) -> list[str]:
    shown: list[str] = server["stderr"]
    if shown and needs_words(server) and not server.get("instances"):
        # An older daemon may not know the method, or the server was just removed from the configuration.
        with contextlib.suppress(RemoteFault, DaemonUnreachable):
            return [line["text"] for line in ask("logs", {"server": name, "last": LINES})["lines"]]
    return shown
