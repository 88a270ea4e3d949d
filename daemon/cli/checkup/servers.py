"""Each server: can its command be started, what does it fetch, can it be reached, and how is it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.advice import advice
from daemon.cli.checkup import endpoints, packages, programs
from daemon.cli.checkup.remedies import remedy
from daemon.cli.checkup.scene import Level, fault, fine, note, warning
from daemon.config.model import TransportType
from daemon.config.trail import ROOT, below
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daemon.cli.checkup.scene import Finding, Running, Scene
    from daemon.config.model import Server
    from daemon.errors import Fault


def check(scene: Scene) -> Iterator[Finding]:
    """Every server, in the configuration's order."""
    if scene.config is None:
        yield note("The servers are looked at once the configuration has no faults.")
        return
    advised = advice(scene.config, scene.inherited)
    for name, server in scene.config.mcp_servers.items():
        if not server.enabled:
            yield fine(f"{name}: switched off in the configuration")
            continue
        trail = below(below(ROOT, "mcpServers"), name)
        found = list(_server(server, scene, [each for each in advised if each.path == below(trail, "args")]))
        limits = f"{below(trail, 'limits')}."
        found += (
            warning(f"{name}: {each.message}.", do="Then `mcpd reload`.")
            for each in advised
            if each.path.startswith(limits)
        )
        yield from found
        if all(each.level is Level.NOTE for each in found):
            yield fine(f"{name}: {_well(server, scene)}")


def _server(server: Server, scene: Scene, advised: Sequence[Fault]) -> Iterator[Finding]:
    now = None if scene.running is None else _now(server.name, scene.running)
    if server.type is not TransportType.STDIO:
        yield from [] if now is None else [now]
        yield from endpoints.check(server, connect=now is None)
        return
    found = list(programs.check(server, scene))
    # What is wrong with the command is the cause of how the server is, and said more exactly.
    if now is not None and all(each.level is not Level.FAULT for each in found):
        yield now
    yield from found
    yield from packages.check(server, advised)


def _now(name: str, running: Running) -> Finding | None:
    """How the running daemon sees it; None if there is nothing to say."""
    seen = running.status["servers"].get(name)
    if seen is None or seen["state"] in WELL | COMING:
        return None
    known = remedy(name, seen, running.words.get(name, ()))
    return fault(
        f"{name}: {seen['state']}: {seen['reason'] or 'no reason is known'}",
        known.happened if known else "",
        known.helps if known else f"`mcpd status` and `mcpd logs {name}` tell more.",
    )


def _well(server: Server, scene: Scene) -> str:
    """What is said of a server that nothing is wrong with."""
    if server.type is TransportType.STDIO:
        path, base = programs.path_of(server, scene.inherited), programs.base_of(server, scene)
        return str(programs.find(server.command or "", path, base).path)
    return f"type {server.type}"
