"""Each server: can its command be started, what does it fetch, can it be reached, and how is it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.advice import advice
from daemon.cli.doctor import endpoints, programs
from daemon.cli.doctor.findings import Level, found
from daemon.cli.doctor.remedies import remedy
from daemon.config.jsonc import ROOT, below
from daemon.config.model import TransportType
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daemon.cli.doctor.findings import Finding
    from daemon.cli.doctor.scene import Running, Scene
    from daemon.config.model import Server
    from daemon.errors import Fault


def check(scene: Scene) -> Iterator[Finding]:
    """Every server, in the configuration's order."""
    if scene.config is None:
        yield found("servers-unread")
        return
    advised = advice(scene.config, scene.inherited)
    for name, server in scene.config.mcp_servers.items():
        if not server.enabled:
            yield found("server-off", server=name)
            continue
        trail = below(below(ROOT, "mcpServers"), name)
        what = list(_server(server, scene, [each for each in advised if each.path == below(trail, "args")]))
        limits = f"{below(trail, 'limits')}."
        what += (
            found("server-limit-too-high", server=name, advice=each.message)
            for each in advised
            if each.path.startswith(limits)
        )
        yield from what
        if all(each.level is Level.NOTE for each in what):
            yield found("server-sound", server=name, reached=_reached(server, scene))


def _server(server: Server, scene: Scene, advised: Sequence[Fault]) -> Iterator[Finding]:
    now = None if scene.running is None else _now(server.name, scene.running)
    if server.type is not TransportType.STDIO:
        yield from [] if now is None else [now]
        yield from endpoints.check(server, connect=now is None)
        return
    what = list(programs.check(server, scene))
    # What is wrong with the command is the cause of how the server is, and said more exactly.
    if now is not None and all(each.level is not Level.FAULT for each in what):
        yield now
    yield from what
    yield from programs.packages(server, advised)


def _now(name: str, running: Running) -> Finding | None:
    """How the running daemon sees it; None if there is nothing to say."""
    seen = running.status["servers"].get(name)
    if seen is None or seen["state"] in WELL | COMING:
        return None
    known = remedy(name, seen, running.words.get(name, ()))
    return found(
        "server-down",
        server=name,
        state=seen["state"],
        reason=seen["reason"] or "no reason is known",
        happened=known.happened if known else "",
        helps=known.helps if known else f"`mcpd status` and `mcpd logs {name}` tell more.",
    )


def _reached(server: Server, scene: Scene) -> str:
    """How a server is started or reached that nothing is wrong with."""
    if server.type is TransportType.STDIO:
        path, base = programs.path_of(server, scene.inherited), programs.base_of(server, scene)
        return str(programs.find(server.command or "", path, base).path)
    return f"type {server.type}"
