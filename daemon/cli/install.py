"""`mcpd install`: puts mcpd into a client's configuration."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli import EX_CONFIG
from daemon.cli import client_changes as clients
from daemon.cli.command import CommandLine, UsageError, agreed, argument
from daemon.cli.control import EX_FAULT
from daemon.host.paths import config_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from daemon.setup.clients.file_plans import FilePlan
    from daemon.setup.clients.importing import ConfiguredServers
    from daemon.setup.clients.installing import Installation
    from daemon.setup.clients.programs import ClientProgram, Machine
    from daemon.setup.clients.rules import ToolRule


def _run(options: argparse.Namespace) -> int:
    if options.one_to_one and (options.keep or options.surface):
        raise UsageError("--one-to-one goes with neither --keep nor --surface: each server is itself then")
    machine = clients.this_machine()
    programs = clients.chosen(options)
    if options.all:
        programs = [program for program in programs if clients.is_here(program, machine)]
    elif absent := [program for program in programs if not clients.is_here(program, machine)]:
        for program in absent:
            print(f"mcpd: {program.title} is not here: {_looked(program, machine)}", file=sys.stderr)
        return EX_FAULT
    known, wanted = _known(), _wanted(options)
    titles = ", ".join(program.title for program in programs)
    if options.all and not options.dry_run and not agreed(f"Put mcpd into {titles}?", yes=options.yes):
        print("mcpd: nothing was changed", file=sys.stderr)
        return EX_FAULT
    return install(programs, machine, wanted, known, options.scope, dry_run=options.dry_run)


def install(
    programs: Sequence[ClientProgram],
    machine: Machine,
    wanted: Installation,
    known: ConfiguredServers,
    scope: str = "user",
    *,
    dry_run: bool = False,
    tells_more: bool = True,
) -> int:
    """Put mcpd into these clients, and say what was done. Returns 1 if one could not be changed, else 0."""
    from daemon.setup.clients.rules import listed  # noqa: PLC0415

    status, has_written = 0, False
    for program in programs:
        changes = clients.change_files(
            program, partial(_plans, program, machine, wanted, known, scope), dry_run=dry_run
        )
        if changes is None:
            status = EX_FAULT
        elif not dry_run:
            has_written = has_written or any(change.writes for change in changes)
            for line in clients.installed_in_words(program, changes):
                clients.say(line)
            if not wanted.one_to_one and (rules := held(program, machine, known, scope)[1]):
                clients.say(f"  Its servers keep their names, for its own rules go by these: {listed(rules)}")
    if has_written and tells_more:
        print("It takes effect when a client is started anew. Undo: `mcpd uninstall CLIENT`, or --all.")
    return status


def is_pending(
    program: ClientProgram, machine: Machine, wanted: Installation, known: ConfiguredServers
) -> bool:
    """Whether there is something to do for a client, or something that keeps it from being done."""
    from daemon.documents.files import DocumentError  # noqa: PLC0415 - as above
    from daemon.errors import ConfigError  # noqa: PLC0415
    from daemon.setup.clients.file_plans import preview  # noqa: PLC0415

    try:
        return any(change.writes for change in preview(_plans(program, machine, wanted, known)))
    except (ConfigError, DocumentError):
        return True


def _plans(
    program: ClientProgram,
    machine: Machine,
    wanted: Installation,
    known: ConfiguredServers,
    scope: str = "user",
) -> list[FilePlan]:
    from daemon.setup.clients.file_plans import install_plans  # noqa: PLC0415
    from daemon.setup.clients.rules import keeping  # noqa: PLC0415

    wanted = keeping(wanted, *held(program, machine, known, scope))
    return install_plans(program, machine, wanted, scope, known.lookup(program, machine), clients.records())


def held(
    program: ClientProgram, machine: Machine, known: ConfiguredServers, scope: str = "user"
) -> tuple[list[str], list[ToolRule]]:
    """The servers of a client that mcpd has, and its rules that go by their names."""
    from daemon.setup.clients.rules import held_rules  # noqa: PLC0415

    return held_rules(program, machine, known.lookup(program, machine), known.servers, clients.records(), scope)


def _wanted(options: argparse.Namespace) -> Installation:
    from daemon.setup.clients.installing import (  # noqa: PLC0415 - as in the other commands
        Installation,
        own_command,
    )

    socket = options.socket and str(Path(options.socket).absolute())
    named = (("--socket", socket), ("--profile", options.profile), ("--surface", options.surface))
    given = tuple(word for name, value in named if value for word in (name, value))
    return Installation(
        command=own_command(sys.argv[0]),
        args=("connect", *given),
        keep=options.keep,
        one_to_one=options.one_to_one,
    )


def _known() -> ConfiguredServers:
    """The servers that mcpd has.

    Raises:
        ConfigError: its configuration is faulty.
        DocumentError: it cannot be read.
    """
    from daemon.config.parse import load  # noqa: PLC0415 - as above
    from daemon.setup.clients.importing import ConfiguredServers  # noqa: PLC0415
    from daemon.setup.drafts import read_present  # noqa: PLC0415

    path = config_file(os.environ)
    present = read_present(path)
    if present.config.content is not None:
        # A daemon with faults in its configuration does not start: then nothing is to be taken from a client.
        load(path, os.environ)
    return ConfiguredServers(servers=present.servers, variables={**present.variables, **os.environ})


def _looked(program: ClientProgram, machine: Machine) -> str:
    paths = dict.fromkeys(str(place.path) for place in program.places(machine))
    return f"there is none of {', '.join(paths)}. Start it once, then try again"


INSTALL = CommandLine(
    "install",
    "Put `mcpd connect` into a client's configuration. Servers of the client that mcpd has, too, are taken"
    " out there, so that they are not started twice; those that it does not have stay and are named. The"
    " rest of the file, its comments and its order stay as they are. What it was is kept for `mcpd"
    " uninstall`. A client with rules of its own about tools of these servers keeps each server under its"
    " name (--one-to-one), so that they hold.",
    examples=(
        "mcpd install claude-code codex",
        "mcpd install --all --dry-run",
        "mcpd install cursor --scope project --profile reader",
        "mcpd install claude-code --one-to-one",
    ),
    exits={
        0: "mcpd is in all of these clients",
        1: "a client was left as it is, which is said; the others were changed",
        EX_CONFIG: "mcpd's configuration is faulty: nothing was changed",
    },
    run=_run,
    arguments=(
        clients.add_clients,
        argument(
            "--scope",
            choices=("user", "project"),
            default="user",
            help="for this user, or in the file of the project in the working directory, which others may share"
            " (default: user)",
        ),
        argument("--profile", metavar="P", help="the profile that the client gets"),
        argument("--surface", metavar="S", help="the surface that the client gets"),
        argument(
            "--one-to-one",
            action="store_true",
            help="leave each server under its own name, and reach it through mcpd (`mcpd connect --server"
            " NAME`), so that the client's own rules about its tools go on to hold",
        ),
        argument("--keep", action="store_true", help="leave the client's servers, those mcpd has too"),
        argument("--yes", action="store_true", help="with --all: ask nothing"),
    ),
    json=False,
    seconds=None,
    changing=": `mcpd check` says more",
)
