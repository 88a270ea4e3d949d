"""`mcpd install` and `mcpd uninstall`: put mcpd into clients' configurations, and take it out."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daemon.cli.command import UsageError, agreed
from daemon.cli.control import EX_FAULT, CommandFailed, note, say
from daemon.cli.taking_effect import without_sandbox
from daemon.config.parse import load
from daemon.documents.files import DocumentError
from daemon.errors import ConfigError
from daemon.host.paths import abbreviated, config_file, home, state_dir
from daemon.kit.later import later
from daemon.safety.escape import visible
from daemon.setup.clients import file_plans, skills
from daemon.setup.clients.importing import ConfiguredServers
from daemon.setup.clients.installing import Installation, Records, own_command
from daemon.setup.clients.programs import PROGRAMS, ClientProgram, Machine, named
from daemon.setup.clients.rules import ToolRule, held_rules, keeping, listed
from daemon.setup.drafts import known_values, read_present

if TYPE_CHECKING:
    from daemon.sandbox import probing
else:
    probing = later("daemon.sandbox.probing")

# --- which clients, and where -----------------------------------------------------------------------------


def chosen(options: argparse.Namespace) -> list[ClientProgram]:
    """The clients that the command line names, or all for `--all`. Raises UsageError."""
    if bool(options.client) is options.all:
        raise UsageError(f"name the clients, or write --all: {', '.join(PROGRAMS)}")
    return clients_of(options.client)


def clients_of(names: Sequence[str]) -> list[ClientProgram]:
    """The clients of these names, or all for no names. Raises UsageError for an unknown one."""
    try:
        return list(dict.fromkeys(map(named, names))) or list(PROGRAMS.values())
    except LookupError as error:
        raise UsageError(visible(str(error))) from None


def this_machine(unsandboxed: Sequence[str] = ()) -> Machine:
    """The machine of this command; `unsandboxed` names servers to take out of their sandboxes."""
    at = home(os.environ)
    try:
        directory = Path.cwd()
    except FileNotFoundError:  # it was removed
        directory = at
    return Machine(
        home=at,
        directory=directory,
        environ=os.environ,
        unsandboxed=frozenset(unsandboxed),
        no_sandbox=cache(_no_sandbox),
        registered=cache(later("daemon.cli.adding_offers", "registered")),
    )


def _no_sandbox() -> str:
    problem = probing.problem(os.environ)
    return "" if problem is None else without_sandbox(problem)


def records() -> Records:
    """The records of changed client files."""
    return Records(state_dir(os.environ))


def is_here(program: ClientProgram, machine: Machine) -> bool:
    """Whether a client is on this machine: a file of it, their directory, or a program of its name."""
    shared = {machine.home, machine.directory}
    paths = [place.path for place in program.places(machine)]
    return any(path.exists() or (path.parent not in shared and path.parent.is_dir()) for path in paths) or any(
        map(shutil.which, (program.name, *program.aliases))
    )


def shown(path: Path) -> str:
    """A path with `~`."""
    return abbreviated(str(path), os.environ.get("HOME", ""))


def change_files(
    program: ClientProgram, plans: Callable[[], list[file_plans.FilePlan]], *, dry_run: bool = False
) -> list[file_plans.FileChange] | None:
    """Change a client's files, or show the diff; None after a failure, which is reported."""
    try:
        if not dry_run:
            return file_plans.apply(plans(), program.name, records())
        changes = file_plans.preview(plans())
    except (DocumentError, ConfigError) as error:
        note(f"{program.title}: {error}", lines=True)
        return None
    for change in changes:
        if text := file_plans.difference(change.found.path, change.before, change.after, change.form):
            print(text, end="")
    return changes


def installed_in_words(program: ClientProgram, changes: Sequence[file_plans.FileChange]) -> list[str]:
    """The outcome of an installation, a line each."""
    places = [shown(change.found.path) for change in changes if change.record is not None]
    taken = [name for change in changes for name in change.taken]
    left = [name for change in changes for name in change.left]
    if not places:
        return [f"{program.title}: nothing to do: mcpd has none of its servers (`mcpd import --write`)"]
    been = "is in" if any(change.writes for change in changes) else "is already in"
    instead = f", and has {', '.join(dict.fromkeys(taken))} for it" if taken else ""
    lines = [f"{program.title}: mcpd {been} {', '.join(places)}{instead}"]
    if left:
        stays, them = ("stays", "it") if len(left) == 1 else ("stay", "them")
        lines.append(
            f"  {', '.join(left)} {stays} there as well: mcpd does not have {them}, or has {them} switched off"
            " (`mcpd import`)"
        )
    return lines


def uninstalled_in_words(program: ClientProgram, changes: Sequence[file_plans.FileChange]) -> list[str]:
    """The outcome of an uninstallation, a line each; empty if mcpd was not there."""
    done = (change for change in changes if change.writes or change.former is not None)
    return [f"{program.title}: {_uninstalled(program, change)}" for change in done]


def _uninstalled(program: ClientProgram, change: file_plans.FileChange) -> str:
    path = shown(change.found.path)
    if change.former is None:
        return (
            f"mcpd's entry is out of {path}. There is no record of what stood there before, so nothing else was"
            " changed"
        )
    if change.exact:
        return f"{path} is gone, as before" if change.after is None else f"{path} is as it was, byte for byte"
    if change.before is None:
        return f"{path} had been removed, and stays so"
    parts = [f"mcpd is out of {path}, which has been edited since: that stays"]
    if change.back:
        parts.append(f"{', '.join(change.back)} put back")
    if change.kept:
        parts.append(f"{', '.join(change.kept)} not put back, for there is another entry now")
    backup = records().directory(program.name, change.found.path)
    if change.former.original is not None:
        parts.append(f"what it was before is in {shown(backup)}/original")
    return "; ".join(parts)


# --- installing -------------------------------------------------------------------------------------------


class Installing(NamedTuple):
    """Puts mcpd into the clients of a machine."""

    machine: Machine
    wanted: Installation
    known: ConfiguredServers
    scope: str = "user"

    def kept(self, program: ClientProgram) -> tuple[Installation, list[ToolRule]]:
        """The entry for a client, and the client's rules about tools by its servers' names."""
        ours, lookup = self.known.servers, self.known.lookup(program, self.machine)
        theirs, rules = held_rules(program, self.machine, lookup, ours, records(), self.scope)
        return keeping(self.wanted, theirs, rules, ours), rules

    def plans(self, program: ClientProgram) -> list[file_plans.FilePlan]:
        """The changes of a client's files."""
        wanted, lookup = self.kept(program)[0], self.known.lookup(program, self.machine)
        return file_plans.install_plans(program, self.machine, wanted, self.scope, lookup, records())

    def is_pending(self, program: ClientProgram) -> bool:
        """Whether a client needs a change, or cannot be changed."""
        try:
            return any(change.writes for change in file_plans.preview(self.plans(program)))
        except (ConfigError, DocumentError):
            return True

    def put_into(
        self, programs: Sequence[ClientProgram], *, dry_run: bool = False, tells_more: bool = True
    ) -> int:
        """Put mcpd into clients, and report; returns 1 if one could not be changed, else 0."""
        status, has_written = 0, False
        for program in programs:
            changes = change_files(program, partial(self.plans, program), dry_run=dry_run)
            if changes is None:
                status = EX_FAULT
            elif not dry_run:
                has_written = has_written or any(change.writes for change in changes)
                say(*installed_in_words(program, changes))
                wanted, rules = self.kept(program)
                if rules and not self.wanted.one_to_one:
                    which = (
                        f"Under their own names: {', '.join(sorted(wanted.apart))}"
                        if wanted.apart
                        else ("Its servers keep their names")
                    )
                    say(f"  {which}, for its own rules go by these: {listed(rules)}")
        if has_written and tells_more:
            print("It takes effect when a client is started anew. Undo: `mcpd uninstall CLIENT`, or --all.")
        return status


def install(options: argparse.Namespace) -> int:
    """Put mcpd into the named clients, or all on this machine."""
    if options.one_to_one and (options.keep or options.surface):
        raise UsageError("--one-to-one goes with neither --keep nor --surface: each server is itself then")
    machine, programs = this_machine(), chosen(options)
    absent = [program for program in programs if not is_here(program, machine)]
    if options.all:
        programs = [program for program in programs if program not in absent]
    elif absent:
        for program in absent:
            places = ", ".join(dict.fromkeys(str(place.path) for place in program.places(machine)))
            note(f"{program.title} is not here: there is none of {places}. Start it once, then try again")
        return EX_FAULT
    installing = Installing(machine, _wanted(options), _known(), options.scope)
    titles = ", ".join(program.title for program in programs)
    if options.all and not options.dry_run and not agreed(f"Put mcpd into {titles}?", yes=options.yes):
        raise CommandFailed("nothing was changed")
    return installing.put_into(programs, dry_run=options.dry_run)


def _wanted(options: argparse.Namespace) -> Installation:
    socket = options.socket and str(Path(options.socket).absolute())
    named = (("--socket", socket), ("--profile", options.profile))
    return Installation(
        command=own_command(sys.argv[0]),
        args=("connect", *(word for name, value in named if value for word in (name, value))),
        surface=options.surface,
        keep=options.keep,
        one_to_one=options.one_to_one,
    )


def _known() -> ConfiguredServers:
    """The servers of mcpd's configuration. Raises ConfigError or DocumentError."""
    path = config_file(os.environ)
    present = read_present(path)
    if present.config.content is not None:
        # With a faulty configuration no daemon starts, so clients must keep their servers.
        load(path, os.environ)
    return ConfiguredServers(servers=present.servers, variables=known_values(present, os.environ))


# --- uninstalling -----------------------------------------------------------------------------------------


def uninstall(options: argparse.Namespace) -> int:
    """Take mcpd out of the named clients, or all."""
    machine = this_machine()
    done = [_uninstall(program, machine, options) for program in chosen(options)]
    if options.all and not any(done):
        others = "any other" if None in done else "any"
        print(f"There is nothing to do: mcpd is not in {others} client's configuration.")
    elif options.all and not options.dry_run:
        kept = [path for path in (config_file(os.environ).parent, state_dir(os.environ)) if path.is_dir()]
        if places := " and ".join(map(shown, kept)):
            secrets = "secrets (the file 'env')"
            say(f"mcpd keeps its configuration, {secrets} and state in {places}: yours to delete.")
    return int(None in done)


def _uninstall(program: ClientProgram, machine: Machine, options: argparse.Namespace) -> list[str] | None:
    plans = partial(file_plans.uninstall_plans, program, machine, records())
    changes = change_files(program, plans, dry_run=options.dry_run)
    if changes is None:
        return None
    lines = uninstalled_in_words(program, changes)
    gone = "" if options.dry_run else change_skill(program, "")
    lines += [gone] if gone else []
    if not lines and not options.all:
        print(f"{program.title}: nothing to do: mcpd is not there")
    if not options.dry_run:
        say(*lines)
    return None if gone is None else lines


def change_skill(program: ClientProgram, text: str) -> str | None:
    """Write a client's skill, or remove it for an empty text.

    Returns the outcome, nothing without a change, or None after a failure, which is reported.
    """
    if (path := program.skill(this_machine())) is None:
        return ""
    try:
        changed = skills.change(path, state_dir(os.environ), text)
    except (DocumentError, OSError) as error:
        note(f"{program.title}: {error}")
        return None
    place = f"{'in' if text else 'out of'} {shown(path)}"
    return f"{program.title}: the skill is {place}" if text or changed else ""
