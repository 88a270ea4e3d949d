"""`mcpd stop`: ends the daemon, whoever has started it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from daemon.cli.command import CommandLine, UsageError, argument
from daemon.cli.options import positive
from daemon.host.paths import control_socket
from daemon.setup.running.stopping import NotStopped, stop

SECONDS = 20.0
"""How long to wait: servers have 5 s together, clients over HTTP what `listen.http.drain` says."""


def _run(options: argparse.Namespace) -> int:
    if options.servers:
        name = options.servers[0]
        raise UsageError(
            f"this stops the daemon with all servers. `mcpd disable {name}` stops {name} and keeps it off,"
            f" `mcpd restart {name}` starts it again"
        )
    control = Path(options.control or control_socket(os.environ, options.socket))
    try:
        ended = stop(os.environ, control, options.timeout)
    except NotStopped as error:
        print(f"mcpd: {error}", file=sys.stderr)
        return 1
    if ended is None:
        print(f"mcpd: no daemon runs (nobody listens on {control}).")
    else:
        print(f"mcpd: stopped{f' (pid {ended})' if ended else ': mcpd.service and its sockets, by systemd'}.")
    return 0


STOP = CommandLine(
    "stop",
    "Stop the daemon: systemd's units if it is theirs, so that no client starts it; else the process. Calls"
    " in flight are answered and servers are ended. Clients that are open now do not start it again; `mcpd"
    ' start` does, and so does a client that is opened anew, unless the configuration says "autostart":'
    " false.",
    examples=("mcpd stop", "mcpd stop && mcpd start"),
    exits={0: "no daemon runs any more", 1: "it goes on running"},
    run=_run,
    arguments=(
        argument("servers", nargs="*", help=argparse.SUPPRESS),
        argument("--control", metavar="P", help="the daemon's socket for commands (default: $MCPD_CONTROL)"),
        argument(
            "--timeout",
            metavar="SECONDS",
            type=positive,
            default=SECONDS,
            help="how long to wait for its end (default: %(default)g)",
        ),
    ),
    json=False,
    seconds=None,
)
