"""Who else can read the secrets of the configuration, or write what the daemon will run."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from daemon.cli.checkup.scene import fault, note, warning
from daemon.config.credentials import in_arguments, names_credential
from daemon.config.trail import ROOT, below

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daemon.cli.checkup.scene import Finding, Scene
    from daemon.config.model import Config, Server

_REFERENCE = "Write ${VAR}, ${file:PATH} or ${credential:NAME} in its place."


def check(scene: Scene) -> Iterator[Finding]:
    """The configuration's owner and mode, by what it holds."""
    try:
        found = scene.path.stat()
    except OSError:
        return
    literal = list(_literals(scene.config)) if scene.config is not None else []
    yield from _readers(scene.path, found, literal)
    yield from _writers(scene.path, found, scene.running.uid if scene.running else None)
    if scene.config is not None:
        yield from _arguments(scene.config)


def _readers(path: Path, found: os.stat_result, literal: list[str]) -> Iterator[Finding]:
    if not literal:
        return
    shown = ", ".join(literal)
    if found.st_mode & stat.S_IROTH and _is_open(path):
        yield fault(
            f"Every user of this machine can read the secrets in {path}.",
            f"They stand there as they are: {shown}",
            f"`chmod 600 {path}`. {_REFERENCE}",
        )
    elif found.st_mode & stat.S_IRGRP:
        yield warning(
            f"The group of {path} (gid {found.st_gid}) can read the secrets in it.",
            f"They stand there as they are: {shown}",
            f"`chmod 600 {path}` unless that is meant. {_REFERENCE}",
        )
    else:
        yield note(f"Secrets stand in {path} as they are: {shown}", do=_REFERENCE)


def _is_open(path: Path) -> bool:
    """Whether others get to a file through all of its directories."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.absolute().parents)


def _writers(path: Path, found: os.stat_result, daemon: int | None) -> Iterator[Finding]:
    trusted = {0, os.geteuid(), daemon}
    why = "Whoever can write it can have the daemon run any program."
    if found.st_uid not in trusted:
        yield fault(
            f"{path} belongs to another user (uid {found.st_uid}).", why, f"`chown` it to yours: {path}"
        )
    for each in (path, path.absolute().parent):
        mode = each.stat().st_mode
        sticky = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
        # A user's own group, as many distributions make one for each, has nobody else in it. What every user
        # can write is not read at all (`config.writers`).
        if mode & stat.S_IWGRP and not mode & stat.S_IWOTH and not sticky and each.stat().st_gid not in trusted:
            yield warning(
                f"The group of {each} can write it.", why, f"`chmod g-w {each}` unless that is meant."
            )


def _arguments(config: Config) -> Iterator[Finding]:
    exposed = [
        trail for name, server in config.mcp_servers.items() for trail in _in_arguments(server, _trail(name))
    ]
    if exposed:
        yield warning(
            f"Secrets are given as arguments: {', '.join(exposed)}",
            "Every user of this machine sees the arguments of all programs (`ps`).",
            "Give them in `env`, if the server takes them there.",
        )


def _literals(config: Config) -> Iterator[str]:
    """Where secrets stand that came from no reference."""
    for name, server in config.mcp_servers.items():
        trail = _trail(name)
        for key, values in (("env", server.env), ("headers", server.headers)):
            for each, value in values.items():
                if names_credential(each) and _is_literal(value, server):
                    yield below(below(trail, key), each)
        if _holds_secret(server.url) and _is_literal(server.url or "", server):
            yield below(trail, "url")
        yield from (each for each in _in_arguments(server, trail, literal=True))
    if _holds_secret(config.state.url):
        yield below(below(ROOT, "state"), "url")


def _trail(name: str) -> str:
    return below(below(ROOT, "mcpServers"), name)


def _is_literal(value: str, server: Server) -> bool:
    # References of a server that is switched off are not looked up, and stand there as they are.
    return bool(value) and "${" not in value and not any(part and part in value for part in server.substituted)


def _holds_secret(url: str | None) -> bool:
    if not url or "://" not in url:
        return False
    parts = urlsplit(url)
    names = (pair.partition("=")[0] for pair in parts.query.split("&"))
    return parts.password is not None or any(names_credential(name) for name in names)


def _in_arguments(server: Server, trail: str, *, literal: bool = False) -> Iterator[str]:
    found = in_arguments(server.args)
    for place in dict.fromkeys(place for place, value in found if not literal or _is_literal(value, server)):
        yield below(below(trail, "args"), place)
