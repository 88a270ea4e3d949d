"""What `mcpd import` has found, as a table for people and as data for programs."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.text import Text

from daemon.cli.terminal import draw, grid, paragraph, safe
from daemon.host.paths import abbreviated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from daemon.cli.terminal import Screen
    from daemon.setup.clients.found import ClientServers, Origin
    from daemon.setup.clients.importing import ImportPlan, PlannedServer


def table(planned: ImportPlan, findings: ClientServers, screen: Screen, home: str) -> str:
    """The servers that were found, what is to be known of each, and what could not be taken or read."""
    parts: list[RenderableType] = []
    if planned.added:
        rows = grid(screen, folds=True)
        for heading in ("SERVER", "FROM", "RUNS", "SECRETS"):
            rows.add_column(heading, overflow="fold")
        for server in planned.added:
            secrets = ", ".join((*server.secrets, *(f"{name} (not set)" for name in server.missing)))
            rows.add_row(
                safe(server.name), safe(_origins(server.origins)), safe(_runs(server.entry)), safe(secrets)
            )
        parts.append(rows)
    elif not planned.servers:
        parts += _nothing(findings, home)
    there = [
        f"{each.name} ({_origins(each.origins)})" + (", switched off" if _is_off(each) else "")
        for each in planned.servers
        if each.is_there
    ]
    own = [_origins([origin]) for origin in findings.own]
    parts += _section("mcpd has these already:", there)
    parts += _section("mcpd itself stands in:", list(dict.fromkeys(own)))
    to_know = [note for server in planned.added for note in _to_know(server)]
    waiting = [server for server in planned.added if server.missing]
    parts += _section("To know:", [*to_know, *_waiting(waiting)])
    left = [f"{each.origin.name} ({_origins([each.origin])}) {each.why}" for each in planned.left]
    parts += _section("Cannot be taken:", left)
    parts += _section("Could not be read:", [each.in_a_line for each in findings.unread])
    return draw(parts, screen)


def _section(heading: str, lines: Sequence[str]) -> Iterator[RenderableType]:
    if lines:
        yield Text(f"\n{heading}")
        yield from (paragraph(line, indent=2) for line in lines)


def _nothing(findings: ClientServers, home: str) -> Iterator[RenderableType]:
    """Where servers were looked for, client by client."""
    yield Text("No servers were found.")
    for name, paths in findings.looked.items():
        shown = ", ".join(abbreviated(str(path), home) for path in paths)
        there = findings.there.intersection(paths)
        yield paragraph(f"{name}: {'none in' if there else 'no file of it here: looked at'} {shown}", indent=2)


def _origins(origins: Sequence[Origin]) -> str:
    """The clients that have a server: `Claude Code (user, project), Cursor`."""
    named = []
    for title, group in groupby(origins, key=lambda origin: origin.program.title):
        scopes = list(dict.fromkeys(origin.scope for origin in group))
        named.append(title if scopes == ["user"] else f"{title} ({', '.join(scopes)})")
    return ", ".join(named)


def _runs(entry: Mapping[str, Any]) -> str:
    """The command line or the address of an entry whose secrets are references."""
    if entry.get("command"):
        return " ".join([entry["command"], *map(str, entry.get("args", []))])
    return str(entry.get("url", ""))


def _to_know(server: PlannedServer) -> Iterator[str]:
    name = server.name
    if server.beside:
        yield f"{name}: another server than {server.beside}: its version, its arguments or its tokens differ"
    if _is_off(server) and not server.missing:
        yield f"{name}: switched off in every client that has it, and so here"
    if all(origin.place.scope == "local" for origin in server.origins):
        (origin, *_), divided = server.origins, server.entry.get("share") == "workspace"
        client, at = origin.program, origin.place.trail[1]
        yield (
            f"{name}: {client.title} has it in {at} alone; from mcpd every client gets it, each directory"
            f" {'an instance of its own' if divided else 'this same one'}. To leave it to {at}: `mcpd remove"
            f" {name}`, then `mcpd install {client.name}`"
        )
    if server.entry.get("cwd") and all(origin.place.scope != "user" for origin in server.origins):
        yield f"{name}: is started in {server.entry['cwd']}"
    yield from (f"{name}: {note.key}: {note.message}" for note in server.notes if note.lost)
    yield from (f"{name} {each.written}" for each in server.known)


def _waiting(waiting: Sequence[PlannedServer]) -> Iterator[str]:
    """The servers that wait for values, in one line: of a dozen clients there may be as many."""
    if waiting:
        names = ", ".join(f"{server.name} ({', '.join(server.missing)})" for server in waiting)
        yield (
            f'{names}: not started until these values, which are set nowhere, stand in the file "env" beside'
            " the configuration, each as a line NAME=..."
        )


def _is_off(server: PlannedServer) -> bool:
    return server.entry.get("enabled") is False


def data(planned: ImportPlan, findings: ClientServers) -> dict[str, Any]:
    """The same for programs; holds no secrets."""
    return {
        "servers": [_server(server) for server in planned.servers],
        "left": [{**_origin(each.origin), "why": each.why} for each in planned.left],
        "unread": [
            {"client": each.program.name, "file": str(each.path), "message": each.message}
            for each in findings.unread
        ],
        "own": [_origin(origin) for origin in findings.own],
        "looked": {name: [str(path) for path in paths] for name, paths in findings.looked.items()},
    }


def _server(server: PlannedServer) -> dict[str, Any]:
    return {
        "name": server.name,
        "from": [_origin(origin) for origin in server.origins],
        "alreadyThere": server.is_there,
        "runs": _runs(server.entry),
        "enabled": server.entry.get("enabled", True),
        "secrets": [*server.secrets],
        "missing": [*server.missing],
        "differsFrom": server.beside,
        "notes": [*_to_know(server), *_waiting([server] if server.missing else [])],
    }


def _origin(origin: Origin) -> dict[str, str]:
    return {
        "client": origin.program.name,
        "scope": origin.scope,
        "file": str(origin.place.path),
        "name": origin.name,
    }
