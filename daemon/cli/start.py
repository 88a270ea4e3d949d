"""`mcpd start` and `mcpd stop`: run the daemon in the background, and end it."""

from __future__ import annotations

import os
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from daemon.cli.command import UsageError
from daemon.cli.control import DaemonUnreachable, RemoteFault, ask, note
from daemon.cli.table import ANSWER_SECONDS, STOP_SECONDS, implementation
from daemon.host import paths
from daemon.safety.escape import document, visible
from daemon.setup.running import starting
from daemon.setup.running.starting import NotStarted, StartRequest
from daemon.setup.running.starting import start as started

if TYPE_CHECKING:
    import argparse

    from daemon.config.config_model import Config

CALLS_SECONDS = 10.0
"""Seconds that a restart waits for a moment without calls in flight."""

POLL_SECONDS = 0.1

HOW = {
    "systemd": "started by systemd (mcpd.service)",
    "detached": "started in the background",
    "other": "it runs already",
}


def start(options: argparse.Namespace) -> int:
    """Start the daemon, unless one is running."""
    named = (options.config, options.socket, options.state_dir)
    config, socket, state_dir = (Path(each).absolute() if each else None for each in named)
    if options.restart:
        control = Path(paths.control_socket(os.environ, options.socket))
        config = _stopped(control, STOP_SECONDS, waits=CALLS_SECONDS)[1] or config
    request = StartRequest(
        environ=os.environ,
        run=lambda words: implementation("run").main(words),  # loaded by the daemon alone
        read=lambda: _configuration(config, tells=not options.window),
        config=config,
        socket=socket,
        state_dir=state_dir,
        seconds=options.timeout,
        window=options.window or "",
    )
    try:
        running = started(request)
    except (NotStarted, OSError) as error:
        # No text: the bridge that asked words the error itself.
        if text := str(error):
            note(text, lines=True)
        return error.status if isinstance(error, NotStarted) else 1
    if options.window:
        # The bridge waits for the end of this process, and that of its interpreter takes 20 ms.
        os._exit(0)
    pid = "" if running.pid is None else f", pid {running.pid}"
    text = f"mcpd: {HOW[running.how]}{pid}; clients connect to {running.socket}. Its log: `{running.log}`."
    print(document(msgspec.structs.asdict(running)) if options.json else text)
    return 0


def _stopped(control: Path, seconds: float, *, waits: float = 0.0) -> tuple[int | None, Path | None]:
    """Stop the daemon once it serves no call, or after `waits` s; returns its pid, and an unusual config."""
    config = None
    with suppress(DaemonUnreachable, RemoteFault):
        deadline = time.monotonic() + waits
        while True:
            status = ask("status", {}, path=str(control), timeout=ANSWER_SECONDS)
            config = Path(status["daemon"].get("directory") or "/", status["daemon"]["config"])
            in_flight = sum(server["inFlight"] for server in status["servers"].values())
            if not in_flight or time.monotonic() >= deadline:
                break
            time.sleep(POLL_SECONDS)
    ended = starting.stop(os.environ, control, seconds)
    return ended, config if ended and config != paths.config_file(os.environ).absolute() else None


def _configuration(config: Path | None, *, tells: bool) -> Config:
    """Read the daemon's configuration; with `tells`, warn of servers that will not start."""
    # 0.2 s, which a command that only waits for another start saves.
    from daemon.config.parse import load  # noqa: PLC0415
    from daemon.surfaces.table import SURFACES  # noqa: PLC0415

    loaded = load(config or paths.config_file(os.environ), os.environ, SURFACES)
    for fault in (fault for server in loaded.mcp_servers.values() for fault in server.faults if tells):
        note(f"warning: a server is not started: {fault}")
    return loaded


def stop(options: argparse.Namespace) -> int:
    """Stop the daemon, whichever way it was started."""
    if options.servers:
        name = options.servers[0]
        raise UsageError(
            f"this stops the daemon with all servers. `mcpd disable {name}` stops {name} and keeps it off,"
            f" `mcpd restart {name}` starts it again"
        )
    control = Path(options.control or paths.control_socket(os.environ, options.socket))
    ended, config = _stopped(control, options.timeout)
    if ended is None:
        print(f"mcpd: no daemon runs (nobody listens on {control}).")
        return 0
    named = ("--config", config and str(config)), ("--socket", options.socket)
    again = shlex.join(["mcpd", "start", *(word for name, value in named if value for word in (name, value))])
    how = f" (pid {ended})" if ended else ": mcpd.service and its sockets, by systemd"
    print(visible(f"mcpd: stopped{how}. `{again}` starts it again."))
    return 0
