"""`mcpd status`: every server with its state and the reason, from the daemon's memory; asking starts nothing.

The exit status is a health check: 0 only if every enabled server works fully and persistence does too.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from daemon.cli.control import ask_with, guarded
from daemon.cli.options import add_control, add_json, parser, positive
from daemon.safety.escape import document
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

EX_UNAVAILABLE = 1
"""A configured server is unavailable or degraded, or persistence is."""

WATCH_SECONDS = 2.0
"""Default interval of `--watch`."""

CLEAR = "\x1b[H\x1b[J"
"""ANSI: cursor home, clear to the end of the screen."""


def main(argv: list[str]) -> int:
    """Show the status.

    Returns:
        0: every enabled server is ready or dormant; 1: one is not, or persistence is degraded; 2: usage; 3: the
        daemon is not reachable.
    """
    options = _parser().parse_args(argv)
    if options.watch is None:
        return guarded(lambda: _show(options))
    return _watch(options)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "status",
        "Show every server with its state, the reason if it is not ready, and its numbers; then the sessions"
        " and what the meta-tools save. Starts no server and changes nothing.",
        examples=(
            "mcpd status",
            "mcpd status --watch 5",
            "mcpd status --json | jq '.servers | map_values(select(.state != \"ready\"))'",
        ),
        exits={
            0: "every enabled server is ready (or dormant: started by its next call)",
            1: "a server is unavailable or degraded, or persistence is, or the daemon refused to answer",
        },
    )
    add_json(made)
    made.add_argument(
        "--watch",
        metavar="SECONDS",
        type=positive,
        nargs="?",
        const=WATCH_SECONDS,
        help=f"show it again every so often, until Ctrl-C (default: {WATCH_SECONDS:g} s)",
    )
    add_control(made)
    return made


def _watch(options: argparse.Namespace) -> int:
    """Show the status repeatedly. A daemon that is away is shown as such: it may be restarting."""
    code = 0
    try:
        while True:
            if sys.stdout.isatty():
                sys.stdout.write(CLEAR)
            code = guarded(lambda: _show(options))
            sys.stdout.flush()
            time.sleep(options.watch)
    except KeyboardInterrupt:
        return code


def _show(options: argparse.Namespace) -> int:
    status = ask_with(options, "status", {})
    _explain(status, options)
    if options.json:
        print(document(status))
    else:
        from daemon.cli.status_view import render  # noqa: PLC0415 - imports rich, which `--json` does without
        from daemon.cli.terminal import Screen  # noqa: PLC0415

        print(render(status, now=time.time(), screen=Screen.of(sys.stdout, os.environ)))
    return exit_status(status)


def _explain(status: dict[str, Any], options: argparse.Namespace) -> None:
    """Add `happened` and `helps` to every server that is not well and has a known remedy."""
    seen = dict(_shown(status["servers"]))
    if all(each["state"] in WELL for each in seen.values()):
        return
    # Only now: most of the time nothing is wrong.
    from daemon.cli.doctor.remedies import last_words, remedy  # noqa: PLC0415

    for name, words in last_words(seen, partial(ask_with, options)).items():
        found = remedy(name, seen[name], words)
        if found is not None:
            seen[name].update(found._asdict())


def _shown(servers: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that has a state of its own, by name: a server all share, or the instances of one."""
    for name, server in servers.items():
        instances = server.get("instances") or ()
        yield from ((each["name"], each) for each in instances)
        if not instances:
            yield name, server


def exit_status(status: dict[str, Any]) -> int:
    """0 if every server of a `status` answer is in a state in `WELL` and persistence works, else 1.

    An instance that a client has just caused to start is no fault of its server's; one that cannot start is.
    """
    servers = status["servers"].values()
    well = all(server["state"] in WELL for server in servers) and all(
        each["state"] in WELL | COMING for server in servers for each in server.get("instances") or ()
    )
    # An older daemon has no persistence, and does not report on it.
    kept = (status["daemon"].get("persistence") or {}).get("state", "ok") == "ok"
    return 0 if well and kept else EX_UNAVAILABLE
