"""`mcpd import`: the servers that clients on this machine have, and taking them over."""

from __future__ import annotations

import os
import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.text import Text

from daemon.cli import EX_CONFIG
from daemon.cli.command import UsageError, agreed, reported
from daemon.cli.control import EX_FAULT
from daemon.cli.options import add_control, add_json, add_unsandboxed, parser
from daemon.cli.taking_effect import reloaded
from daemon.cli.terminal import draw, grid, paragraph, safe
from daemon.host.paths import abbreviated, config_file
from daemon.kit.wording import counted
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from daemon.cli.terminal import Screen
    from daemon.setup.clients.found import ClientServers, Origin
    from daemon.setup.clients.importing import ImportPlan, PlannedServer
    from daemon.setup.clients.programs import ClientProgram
    from daemon.setup.drafts import Draft, Present


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


PATIENCE = 60.0
"""Seconds that a daemon may take to begin with the servers (as `mcpd reload`)."""


def main(argv: list[str]) -> int:
    """Find the servers of clients, and add them with `--write`.

    Returns:
        0: found, or added; 1: there are none, something could not be read, or it was not wanted; 2: usage;
        78: mcpd's own configuration is faulty.
    """
    made = make_parser()
    options = made.parse_args(argv)
    # Here, so that `--help` does not pay for attrs and cattrs.
    from daemon.cli.client_changes import clients_of  # noqa: PLC0415

    try:
        programs = clients_of(options.clients)
    except UsageError as error:
        made.error(str(error))
    return reported(lambda: _migrate(options) if options.migrate_env else _import(options, programs))


def make_parser() -> argparse.ArgumentParser:
    """Reads its command line."""
    made = parser(
        "import",
        "Find the MCP servers that clients on this machine have, each once, however many clients have it. No"
        " client's file is changed. With --write, servers that mcpd does not have yet are added to its"
        " configuration; their secrets go to the file 'env' beside it, which only you can read.",
        examples=(
            "mcpd import",
            "mcpd import --from claude-code cursor --dry-run",
            "mcpd import --write",
            "mcpd import --json | jq '.servers[].name'",
        ),
        exits={
            0: "servers were found; with --write, mcpd has them",
            1: "there are none, a file could not be read or written, or you said no",
            EX_CONFIG: "mcpd's own configuration is faulty: nothing was changed",
        },
        asks=False,
    )
    made.add_argument(
        "--from",
        dest="clients",
        metavar="CLIENT",
        nargs="+",
        action="extend",
        default=[],
        help="only these clients: claude-code, cursor, codex, ... (docs/setup.md has all)",
    )
    made.add_argument("--write", action="store_true", help="add them to mcpd's configuration")
    add_unsandboxed(made)
    made.add_argument(
        "--migrate-env",
        action="store_true",
        help="import nothing: give each server of mcpd's configuration variables of its own, SERVER__NAME, in"
        " place of those that servers share; shows the difference, and asks",
    )
    made.add_argument("--dry-run", action="store_true", help="show what --write would change, as a diff")
    made.add_argument("--yes", action="store_true", help="with --write: do not ask")
    add_json(made)
    add_control(made, PATIENCE)
    return made


def _import(options: argparse.Namespace, programs: Sequence[ClientProgram]) -> int:
    from daemon.cli.client_changes import this_machine  # noqa: PLC0415 - as above
    from daemon.cli.terminal import Screen  # noqa: PLC0415
    from daemon.setup.clients.found import find  # noqa: PLC0415
    from daemon.setup.clients.importing import plan  # noqa: PLC0415
    from daemon.setup.drafts import drafted, read_present  # noqa: PLC0415

    machine = this_machine(options.unsandboxed)
    path = config_file(os.environ)
    findings = find(machine, programs)
    present = read_present(path)
    planned = plan(
        findings, written=present.servers, kept=present.variables, environ=os.environ, source=path.absolute()
    )
    draft = drafted(present, planned, os.environ) if options.write or options.dry_run else None
    status = EX_FAULT if findings.unread or not planned.servers else 0
    if not options.json:
        print(table(planned, findings, Screen.of(sys.stdout, os.environ), str(machine.home)))
    if options.dry_run:
        assert draft is not None
        _print_diff(draft, as_json=options.json)
    elif draft is not None and planned.added:
        if not options.yes and not _wanted(planned, present):
            return EX_FAULT
        draft.write()
        if not options.json:
            print(_written(planned, present))
            print(_taken_up(options, path))
    elif options.yes:
        print(
            "mcpd: nothing was written: --yes agrees to what --write does (`mcpd import --write --yes`)",
            file=sys.stderr,
        )
    if options.json:
        print(document({**data(planned, findings), "written": options.write and not options.dry_run}))
    return status


def _migrate(options: argparse.Namespace) -> int:
    """Give each server variables of its own, once the difference was shown and agreed to."""
    from daemon.setup.drafts import read_present  # noqa: PLC0415 - as above
    from daemon.setup.own_variables import with_own_variables  # noqa: PLC0415

    path = config_file(os.environ).absolute()
    made = with_own_variables(read_present(path), os.environ)
    _print_diff(made.draft, as_json=False)
    for name in made.unused:
        print(
            f"mcpd: no server refers to {name}, and the daemon no longer gets it from this file: remove it, or"
            " set it for the daemon itself (`systemctl --user edit mcpd`)",
            file=sys.stderr,
        )
    if options.dry_run or not made.draft.diff():
        return 0
    if not agreed("\nWrite this?", yes=options.yes):
        return EX_FAULT
    made.draft.write()
    print(_taken_up(options, path))
    return 0


def _print_diff(draft: Draft, *, as_json: bool) -> None:
    """The diff, beside the data where that is JSON."""
    told = draft.diff() or "nothing would change\n"
    print(f"\n{visible(told, lines=True)}", end="", file=sys.stderr if as_json else sys.stdout)


def _wanted(planned: ImportPlan, present: Present) -> bool:
    """Whether the user wants what the table shows."""
    number = len(planned.added)
    servers = "this server" if number == 1 else f"these {number} servers"
    if agreed(f"\nAdd {servers} to {present.config.path}?", yes=False):
        return True
    print("mcpd: nothing was changed", file=sys.stderr)
    return False


def _written(planned: ImportPlan, present: Present) -> str:
    """What was written, in one line."""
    from daemon.cli.client_changes import shown  # noqa: PLC0415 - as above

    said = f"added {counted(len(planned.added), 'server')} to {shown(present.config.path)}"
    if kept := len(planned.variables):
        said += f", {counted(kept, 'secret')} to {shown(present.env.path)}, which only you can read"
    return visible(f"\n{said}", lines=True)


def _taken_up(options: argparse.Namespace, path: Path) -> str:
    """Have a daemon that runs read its configuration again; what became of that, in one line."""
    effect = reloaded(options, path)
    if not effect.asked:
        return "no daemon runs: `mcpd start` starts one, and so does the first client"
    if effect.problem:
        return visible(effect.problem)
    return "the daemon starts them now: `mcpd status` shows how they are"
