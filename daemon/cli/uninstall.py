"""`mcpd uninstall`: takes mcpd out of a client's configuration."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from daemon.cli import client_changes as clients
from daemon.cli.command import CommandLine
from daemon.host.paths import config_file, state_dir

if TYPE_CHECKING:
    import argparse

    from daemon.setup.clients.programs import ClientProgram, Machine


def _run(options: argparse.Namespace) -> int:
    machine = clients.this_machine()
    done = [_uninstall(program, machine, options) for program in clients.chosen(options)]
    if options.all and not any(done):
        others = "any other" if None in done else "any"
        print(f"There is nothing to do: mcpd is not in {others} client's configuration.")
    elif options.all and not options.dry_run:
        _say_what_stays()
    return int(any(lines is None for lines in done))


def _say_what_stays() -> None:
    """Name the directories that mcpd leaves, one of which holds secrets."""
    kept = [path for path in (config_file(os.environ).parent, state_dir(os.environ)) if path.is_dir()]
    if kept:
        places = " and ".join(clients.shown(path) for path in kept)
        clients.say(
            f"mcpd keeps its configuration, secrets (the file 'env') and state in {places}: yours to delete."
        )


def _uninstall(program: ClientProgram, machine: Machine, options: argparse.Namespace) -> list[str] | None:
    """Take mcpd out of one client; returns what was done, None if it could not be."""
    from daemon.setup.clients.file_plans import uninstall_plans  # noqa: PLC0415

    plans = partial(uninstall_plans, program, machine, clients.records())
    changes = clients.change_files(program, plans, dry_run=options.dry_run)
    if changes is None:
        return None
    lines = clients.uninstalled_in_words(program, changes)
    if not lines and not options.all:
        print(f"{program.title}: nothing to do: mcpd is not there")
    for line in () if options.dry_run else lines:
        clients.say(line)
    return lines


UNINSTALL = CommandLine(
    "uninstall",
    "Take mcpd out of a client's configuration again. A file that nobody has changed since is as it was"
    " before `mcpd install`, byte for byte, and one that was made for it is removed. What was edited since"
    " stays: then only mcpd's entry is removed, and the servers that it stood for are put back.",
    examples=("mcpd uninstall claude-code", "mcpd uninstall --all --dry-run", "mcpd uninstall --all"),
    exits={0: "mcpd is in none of these clients", 1: "one could not be changed; the others were"},
    run=_run,
    arguments=(clients.add_clients,),
    json=False,
    seconds=None,
    reaches=False,
)
