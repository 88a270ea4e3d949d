"""How many files the daemon may have open, and how many it will."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.checkup import kernel
from daemon.cli.checkup.scene import fine, note, warning
from daemon.config.model import TransportType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.cli.checkup.scene import Finding, Scene
    from daemon.config.model import Config

OWN = 64
"""Descriptors of the daemon itself: its loop, sockets, locks, database, log, and threads that read files."""

CHILD = 8
"""Per server that is a child: three pipes and a pidfd, and while it starts the other ends of the pipes."""

REMOTE = 24
"""Per server over a network: 20 kept connections (`transports.http_client.POOL`), some on their way."""

FEW_CLIENTS = 64
"""Fewer than any house with several agents has: less room than this is a warning."""


def check(scene: Scene) -> Iterator[Finding]:
    """The limit of open files against what the configuration asks for."""
    pid = scene.running.pid if scene.running and scene.running.uid is not None else None
    allowed = kernel.open_files("self" if pid is None else pid)
    if scene.config is None or allowed is None:
        return
    soft, hard = allowed
    wanted = scene.config.limits.connections
    servers = OWN + _servers(scene.config)
    whose = "this shell" if pid is None else "the daemon"
    what = f"Open files: {whose} may have {soft:g}, which leaves room for {max(0, soft - servers):g} clients"
    if soft >= servers + wanted:
        yield fine(f"{what}; the configuration allows {wanted}.")
        return
    enough = 1 << (servers + wanted - 1).bit_length()
    grave = warning if soft < servers + min(wanted, FEW_CLIENTS) else note
    yield grave(
        f"{what} of the {wanted} that the configuration allows.",
        "At the limit no client can connect and no server can be started.",
        f"LimitNOFILE={enough} in the unit, or `ulimit -n {enough}` before `mcpd run`"
        + (f" (its hard limit is {hard:g})" if hard < enough else "")
        + "; or lower `limits.connections`.",
    )


def _servers(config: Config) -> int:
    enabled = [server for server in config.mcp_servers.values() if server.enabled]
    return sum(CHILD if server.type is TransportType.STDIO else REMOTE for server in enabled)
