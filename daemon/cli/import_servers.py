"""`mcpd import`: the servers that clients on this machine have, and taking them over."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from daemon.cli import EX_CONFIG
from daemon.cli.command import agreed, reported
from daemon.cli.control import EX_FAULT
from daemon.cli.options import add_control, add_json, add_unsandboxed, parser
from daemon.cli.taking_effect import reloaded
from daemon.host.paths import config_file
from daemon.kit.wording import counted
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from daemon.setup.clients.importing import ImportPlan
    from daemon.setup.clients.programs import ClientProgram
    from daemon.setup.drafts import Draft, Present

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

    programs = clients_of(made, options.clients)
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
    from daemon.cli.import_view import data, table  # noqa: PLC0415
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
