"""`mcpd import`: finds the servers of clients on this machine, and adds them to the configuration."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.text import Text

from daemon.cli.command import agreed, has_terminal
from daemon.cli.control import EX_FAULT, CommandFailed, note, say
from daemon.cli.install import clients_of, shown, this_machine
from daemon.cli.taking_effect import reloaded, said_once
from daemon.cli.terminal import Screen, draw, grid, paragraph, safe
from daemon.host.paths import abbreviated, config_file
from daemon.kit.wording import counted
from daemon.safety.escape import document, visible
from daemon.setup.clients.file_plans import SCOPES
from daemon.setup.clients.importing import ClientServers, ImportPlan, Origin, PlannedServer, drafted, find
from daemon.setup.drafts import KEYRING, Draft, read_present
from daemon.setup.moved_secrets import with_own_variables

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from rich.console import RenderableType


# --- what is shown ----------------------------------------------------------------------------------------


def table(planned: ImportPlan, findings: ClientServers, screen: Screen, home: str) -> str:
    """A table of the servers found, with remarks, and of those that cannot be taken or read."""
    parts: list[RenderableType] = []
    if planned.added:
        rows = grid(screen, folds=True)
        for heading in ("SERVER", "FROM", "RUNS", "SECRETS"):
            rows.add_column(heading, overflow="fold")
        for server in planned.added:
            secrets = ", ".join((*server.secrets, *(f"{name} (not set)" for name in server.missing)))
            cells = (server.name, _origins(server.origins), _runs(server.entry), secrets)
            rows.add_row(*map(safe, cells))
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
    parts += _section("mcpd is already in:", list(dict.fromkeys(own)))
    to_know = [line for server in planned.added for line in _to_know(server)]
    if has_terminal() and any(not name.startswith(KEYRING) for name in planned.variables):
        to_know.append("their secrets go to the file 'env'; with --keyring to your keyring (`mcpd secret`)")
    parts += _section("To know:", [*to_know, *_waiting(planned.added)])
    left = [f"{each.origin.name} ({_origins([each.origin])}) {each.why}" for each in planned.left]
    parts += _section("Cannot be taken:", left)
    parts += _section("Could not be read:", [each.in_a_line for each in findings.unread])
    return draw(parts, screen)


def _section(heading: str, lines: Sequence[str]) -> Iterator[RenderableType]:
    if lines:
        yield Text(f"\n{heading}")
        yield from (paragraph(line, indent=2) for line in lines)


def _nothing(findings: ClientServers, home: str) -> Iterator[RenderableType]:
    yield Text("No servers were found.")
    for name, paths in findings.looked.items():
        shown = ", ".join(abbreviated(str(path), home) for path in paths)
        there = findings.there.intersection(paths)
        yield paragraph(f"{name}: {'no servers in' if there else 'no file here; looked at'} {shown}", indent=2)


def _origins(origins: Sequence[Origin]) -> str:
    """The clients that have a server, as in `Claude Code (user, project), Cursor`."""
    named = []
    for title, group in groupby(origins, key=lambda origin: origin.program.title):
        scopes = list(dict.fromkeys(origin.scope for origin in group))
        named.append(title if scopes == ["user"] else f"{title} ({', '.join(scopes)})")
    return ", ".join(named)


def _runs(entry: Mapping[str, Any]) -> str:
    """An entry's command line or URL, with references in place of secrets."""
    if entry.get("command"):
        return " ".join([entry["command"], *map(str, entry.get("args", []))])
    return str(entry.get("url", ""))


def _to_know(server: PlannedServer) -> Iterator[str]:
    name = server.name
    if server.beside:
        yield f"{name}: not the same as {server.beside}: the version, arguments or tokens differ"
    if _is_off(server) and not server.missing:
        yield f"{name}: switched off in every client that has it, so also in mcpd"
    if "workspaces" in server.entry:
        titles = ", ".join(dict.fromkeys(origin.program.title for origin in server.origins))
        where = ", ".join(dict.fromkeys(each.place.trail[1] for each in server.origins if each.is_local))
        yield (
            f"{name}: {titles} has it in {where} alone, so mcpd offers it only to clients that work there;"
            f" `mcpd unset {name} workspaces` offers it to all"
        )
    if server.entry.get("cwd") and all(origin.place.scope != "user" for origin in server.origins):
        yield f"{name}: is started in {server.entry['cwd']}"
    if (
        isinstance(rules := server.entry.get("sandbox"), dict)
        and server.origins[0].place.scope in SCOPES["project"]
    ):
        yield f"{name}: the project's author wrote its sandbox: {json.dumps(rules)}"
    yield from (f"{name}: {each.key}: {each.message}" for each in server.notes if each.lost)
    yield from (each.written(name) for each in server.known)


def _waiting(servers: Sequence[PlannedServer]) -> Iterator[str]:
    lacking = [(each.name, name) for each in servers for name in each.missing]
    if commands := ", ".join(f"`mcpd set {server} env.{name}`" for server, name in lacking):
        waiting = ", ".join(dict.fromkeys(server for server, _ in lacking))
        yield f"{waiting}: waiting for variables that are set nowhere; {commands} asks for the value"


def _is_off(server: PlannedServer) -> bool:
    return server.entry.get("enabled") is False


def data(planned: ImportPlan, findings: ClientServers) -> dict[str, Any]:
    """The servers found, as programs read them; without secrets."""
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
        "notes": [*_to_know(server), *_waiting([server])],
    }


def _origin(origin: Origin) -> dict[str, str]:
    return {
        "client": origin.program.name,
        "scope": origin.scope,
        "file": str(origin.place.path),
        "name": origin.name,
    }


# --- what is done -----------------------------------------------------------------------------------------


def import_servers(options: argparse.Namespace) -> int:
    """Find the servers of clients, and with `--write` add them."""
    programs = clients_of(options.clients)
    if options.migrate_env:
        return _migrate(options)
    machine, path = this_machine(options.unsandboxed), config_file(os.environ).absolute()
    findings, present = find(machine, programs), read_present(path)
    planned = ImportPlan(findings, present, os.environ, keyring=options.keyring)
    draft = drafted(present, planned, os.environ) if options.write or options.dry_run else None
    if not options.json:
        print(table(planned, findings, Screen.of(sys.stdout, os.environ), str(machine.home)))
    if draft is not None and options.dry_run:
        _print_diff(draft, as_json=options.json)
    elif draft is not None and planned.added:
        if not options.yes and not agreed(f"\nAdd {these(planned)} to {present.config.path}?", yes=False):
            raise CommandFailed("nothing was changed")
        draft.write()
        if not options.json:
            say(_written(planned, draft), _taken_up(options, path))
    elif options.yes and planned.added:
        note("nothing was written: `mcpd import --write --yes` writes")
    if options.json:
        print(document({**data(planned, findings), "written": options.write and not options.dry_run}))
    return EX_FAULT if findings.unread or not planned.servers else 0


def _migrate(options: argparse.Namespace) -> int:
    """Move shared variables into each server's own, after showing the diff and asking."""
    path = config_file(os.environ).absolute()
    made = with_own_variables(read_present(path), os.environ)
    _print_diff(made.draft, as_json=False)
    for name in made.unused:
        note(
            f"no server refers to {name}, and the daemon no longer gets it from this file: remove it, or"
            " set it for the daemon itself (`systemctl --user edit mcpd`)"
        )
    if options.dry_run or not made.draft.diff():
        return 0
    if not agreed("\nWrite this?", yes=options.yes):
        return EX_FAULT
    made.draft.write()
    say(_taken_up(options, path))
    return 0


def _print_diff(draft: Draft, *, as_json: bool) -> None:
    diff = draft.diff() or "nothing would change\n"
    print(f"\n{visible(diff, lines=True)}", end="", file=sys.stderr if as_json else sys.stdout)


def these(planned: ImportPlan) -> str:
    """The servers to add, in words for a question."""
    return "this server" if len(planned.added) == 1 else f"these {len(planned.added)} servers"


def _written(planned: ImportPlan, draft: Draft) -> str:
    present = draft.present
    text = f"added {counted(len(planned.added), 'server')} to {shown(present.config.path)}"
    env = f"{shown(present.env.path)}, which only you can read"
    for kept, where in ((len(draft.kept), "the keyring"), (len(planned.variables) - len(draft.kept), env)):
        text += f", {counted(kept, 'secret')} to {where}" if kept else ""
    return "\n".join(["", text, *said_once(draft)])


def _taken_up(options: argparse.Namespace, path: Path) -> str:
    effect = reloaded(options, path)
    if not effect.asked:
        return "no daemon runs: `mcpd start` starts one, and so does the first client"
    return effect.problem or "the daemon starts them now: `mcpd status` shows how they are"
