"""`mcpd status`: shows the state of every server; the exit status is a health check. Starts nothing."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from daemon.cli.command import drawn, for_each
from daemon.cli.control import EX_UNREACHABLE, ask_with, guarded
from daemon.safety.escape import document, json_line
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    import argparse

    from daemon.operators.reports import PersistenceReport, ServerReport

EX_UNAVAILABLE = 1
"""Exit status if a server or persistence is degraded or unavailable."""


def status(options: argparse.Namespace) -> int:
    """Show the status of all servers or of some, perhaps repeatedly."""
    return _show_each(options) if options.watch is None else _watch(options)


def _watch(options: argparse.Namespace) -> int:
    """Show the status repeatedly, even while the daemon is away: it may be restarting."""
    # Imports prompt_toolkit.
    from daemon.cli.watch import StatusPoll, has_screen, watch, watch_screen  # noqa: PLC0415

    several = len(options.servers) > 1
    if options.json or several or not has_screen(os.environ, sys.stdin, sys.stdout):
        return watch(partial(guarded, lambda: _show_each(options, compact=True)), options.watch)
    last = watch_screen(StatusPoll(partial(_look, options), options.watch), *options.servers)
    if last.problem or last.status is None:
        return EX_UNREACHABLE
    return exit_status(last.status["servers"], last.status["daemon"]["persistence"])


def _look(options: argparse.Namespace, server: str | None) -> tuple[Any, Any]:
    everything = ask_with(options, "status", {})
    # The selected server may be gone; the others still count.
    if server is None or server not in everything["servers"]:
        return everything, None
    return everything, ask_with(options, "status", {"server": server})


def _show_each(options: argparse.Namespace, *, compact: bool = False) -> int:
    names = options.servers
    if len(names) < 2:  # noqa: PLR2004 - the servers, or one
        return _show(options, *(names or [None]), compact=compact)
    return for_each(options, names, partial(_show, options, compact=True))


def _show(options: argparse.Namespace, name: str | None, *, compact: bool) -> int:
    answer = ask_with(options, "status", {} if name is None else {"server": name})
    if options.json:
        # A document per line, so that programs can split them.
        print(json_line(answer) if compact else document(answer))
    else:
        view = "daemon.cli.status_view:" + ("render" if name is None else "render_one")
        print(drawn(view, now=time.time())(answer))
    if name is not None:
        return exit_status({name: answer["server"]})
    return exit_status(answer["servers"], answer["daemon"]["persistence"])


def exit_status(servers: dict[str, ServerReport], persistence: PersistenceReport | None = None) -> int:
    """0 if all servers and persistence are well; instances may still be starting, but none has failed."""
    well = all(server["state"] in WELL for server in servers.values()) and all(
        each["state"] in WELL | COMING for server in servers.values() for each in server.get("instances", ())
    )
    return 0 if well and (persistence is None or persistence["state"] == "ok") else EX_UNAVAILABLE
