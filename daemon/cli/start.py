"""`mcpd start`: the daemon in the background, if none runs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from daemon.cli import EX_CONFIG
from daemon.cli.command import CommandLine, argument
from daemon.cli.options import add_json, positive
from daemon.errors import ConfigError
from daemon.host import paths
from daemon.safety.escape import document, visible
from daemon.setup.running.starting import StartRequest, start
from daemon.setup.running.stopping import NotStarted

if TYPE_CHECKING:
    from daemon.config.model import Config
    from daemon.setup.running.stopping import RunningDaemon

SECONDS = 30.0
"""How long to wait: a daemon serves within a second, on a busy machine within ten."""

HOW = {
    "systemd": "started by systemd (mcpd.service)",
    "detached": "started in the background",
    "other": "it runs already",
}
"""How a daemon came to run, in words."""


def _configuration(config: Path | None, *, tells: bool) -> Config:
    """The configuration that the daemon will have; `tells` of entries for which it will start no server."""
    # 0.2 s, which whoever only waits for another start does without.
    from daemon.config.parse import load  # noqa: PLC0415
    from daemon.surfaces.table import SURFACES  # noqa: PLC0415

    loaded = load(config or paths.config_file(os.environ), os.environ, SURFACES)
    for fault in (fault for server in loaded.mcp_servers.values() for fault in server.faults if tells):
        print(visible(f"mcpd: warning: a server is not started: {fault}"), file=sys.stderr)
    return loaded


def _in_words(running: RunningDaemon) -> str:
    pid = "" if running.pid is None else f", pid {running.pid}"
    return f"mcpd: {HOW[running.how]}{pid}; clients connect to {running.socket}. Its log: `{running.log}`."


def _run(options: argparse.Namespace) -> int:
    named = (options.config, options.socket, options.state_dir)
    config, socket, state_dir = (Path(each).absolute() if each else None for each in named)
    request = StartRequest(
        environ=os.environ,
        read=lambda: _configuration(config, tells=not options.window),
        config=config,
        socket=socket,
        state_dir=state_dir,
        seconds=options.timeout,
        window=options.window,
    )
    try:
        running = start(request)
    except ConfigError as error:
        print(f"mcpd: {visible(str(error), lines=True)}", file=sys.stderr)
        return EX_CONFIG
    except (NotStarted, OSError) as error:
        # Without a text: whoever asked has words of its own for that.
        if text := str(error):
            print(f"mcpd: {visible(text, lines=True)}", file=sys.stderr)
        return error.status if isinstance(error, NotStarted) else 1
    print(document(attrs.asdict(running)) if options.json else _in_words(running))
    return 0


START = CommandLine(
    "start",
    "Start the daemon in the background, unless one runs: by systemd if its user units are installed (`mcpd"
    " service install`) and no option names a file, else detached from this terminal, with its log in"
    " daemon.log in the state directory. Returns when it serves clients. `mcpd connect` does the same where"
    ' none runs, unless the configuration says "autostart": false.',
    examples=(
        "mcpd start",
        "mcpd start --config ./mcpd.json --socket ./mcpd.sock",
        "mcpd start --json | jq .pid",
    ),
    exits={
        0: "a daemon runs",
        1: "none runs, or it does not serve in time",
        EX_CONFIG: "the configuration is faulty",
    },
    run=_run,
    arguments=(
        argument("--config", metavar="F", help="configuration (default: see mcpd check)"),
        argument("--state-dir", metavar="D", help="where state and log are kept"),
        argument(
            "--timeout",
            metavar="SECONDS",
            type=positive,
            default=SECONDS,
            help="how long to wait until it serves (default: %(default)g)",
        ),
        add_json,
        argument("--window", choices=("new", "known"), default="", help=argparse.SUPPRESS),
    ),
    json=False,
    seconds=None,
)
