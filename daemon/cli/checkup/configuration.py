"""The configuration: its faults, whether it is the one that the daemon uses, and what in it names nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.advice import missing_key
from daemon.cli.checkup.scene import fault, fine, note, warning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daemon.cli.checkup.scene import Finding, Running, Scene
    from daemon.errors import Fault

DO_SET = "Set it where the daemon is started (for a unit: Environment="

UNSET = "is not set"
"""What a fault says of a variable that a reference names (`config.expand`)."""


def check(scene: Scene) -> Iterator[Finding]:
    """Everything about the file itself."""
    for each in scene.faults:
        yield _fault(each, scene)
    if scene.config is not None:
        servers, categories = len(scene.config.mcp_servers), len(scene.config.categories)
        yield fine(f"{scene.path}: servers: {servers}, categories: {categories}")
        if not servers:
            yield note("No servers are configured.", do="Paste those of your MCP client into `mcpServers`.")
        if variable := missing_key(scene.config, scene.inherited):
            yield warning(
                f"The environment variable {variable} (summaries.apiKeyEnv) is not set: no model is asked.",
                _where(scene),
                f"{DO_SET} or EnvironmentFile=), and start it again.",
            )
    if scene.running is not None:
        yield from _of_the_daemon(scene, scene.running)


def _fault(found: Fault, scene: Scene) -> Finding:
    if UNSET not in found.message:
        return fault(str(found), do="Correct it there; `mcpd check` looks again.")
    return fault(str(found), _where(scene), f"{DO_SET}, or better LoadCredential= and ${{credential:NAME}}).")


def _where(scene: Scene) -> str:
    """Which environment variables were looked up in."""
    if scene.running and scene.running.environ is not None:
        return f"It was looked up in the environment of the daemon, pid {scene.running.pid}."
    return "It was looked up in the environment of this command; a daemon that systemd starts has another."


def _of_the_daemon(scene: Scene, running: Running) -> Iterator[Finding]:
    if not _same(scene.path, running.config):
        yield warning(
            f"The daemon uses another configuration: {running.config}",
            do=f"`mcpd doctor --config {running.config}` looks at that one.",
        )
    elif not _same(scene.usual, running.config) and scene.usual.exists():
        yield note(
            f"The daemon was started with --config; without, it would use {scene.usual}.",
            do="See that whatever starts it at the next boot names the right one.",
        )
    elif _newer(scene.path, running) and not (scene.config and scene.config.watch):
        yield note(
            "The file was changed after the daemon was started.",
            do="If it was not reloaded since: `mcpd reload`.",
        )
    for name in running.status.get("unresolved") or ():
        yield warning(
            f"{name} is named in a category, but no server offers it.",
            "It is misspelt, or its server has not listed its tools yet.",
            "`mcpd tools` shows what there is.",
        )


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one.absolute() == other.absolute()


def _newer(path: Path, running: Running) -> bool:
    try:
        return path.stat().st_mtime > float(running.status["daemon"]["startedAt"])
    except OSError:
        return False
