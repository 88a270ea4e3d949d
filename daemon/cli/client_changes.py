"""What commands about clients share: where they are looked for, which are meant, and what was changed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli.command import UsageError
from daemon.documents.files import DocumentError
from daemon.errors import ConfigError
from daemon.host.paths import abbreviated, home, state_dir
from daemon.safety.escape import visible
from daemon.setup.clients.file_plans import apply, difference, preview
from daemon.setup.clients.known_programs import PROGRAMS, named
from daemon.setup.clients.programs import Machine
from daemon.setup.clients.records import Records

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from daemon.setup.clients.file_plans import FileChange, FilePlan
    from daemon.setup.clients.programs import ClientProgram


def add_clients(parsed: argparse.ArgumentParser) -> None:
    """Add the clients' names, `--all` and `--dry-run`."""
    parsed.add_argument("client", metavar="CLIENT", nargs="*", help=f"one of {', '.join(PROGRAMS)}")
    parsed.add_argument("--all", action="store_true", help="every client that is here")
    parsed.add_argument(
        "--dry-run", action="store_true", help="show what would change in which file, without secrets"
    )


def chosen(options: argparse.Namespace) -> list[ClientProgram]:
    """The clients that a command line with `add_clients` means.

    Raises:
        UsageError: it does not say which, or one is not known.
    """
    if bool(options.client) is options.all:
        raise UsageError(f"name the clients, or write --all: {', '.join(PROGRAMS)}")
    return clients_of(options.client)


def clients_of(names: Sequence[str]) -> list[ClientProgram]:
    """The clients of these names, each once, or all without names.

    Raises:
        UsageError: one is not known.
    """
    try:
        return list(dict.fromkeys(map(named, names))) or list(PROGRAMS.values())
    except LookupError as error:
        raise UsageError(visible(str(error))) from None


def this_machine(unsandboxed: Sequence[str] = ()) -> Machine:
    """The machine that a command is given on; `unsandboxed` names servers taken out of their sandboxes."""
    at = home(os.environ)
    try:
        directory = Path.cwd()
    except FileNotFoundError:  # it was removed
        directory = at
    return Machine(home=at, directory=directory, environ=os.environ, unsandboxed=frozenset(unsandboxed))


def records() -> Records:
    """What is kept of clients' files."""
    return Records(state_dir(os.environ))


def is_here(program: ClientProgram, machine: Machine) -> bool:
    """Whether a client is on this machine: one of its files, their directory, or a program of its name."""
    shared = {machine.home, machine.directory}
    paths = [place.path for place in program.places(machine)]
    return any(path.exists() or (path.parent not in shared and path.parent.is_dir()) for path in paths) or any(
        map(shutil.which, (program.name, *program.aliases))
    )


def shown(path: Path) -> str:
    """A path as people write it."""
    return abbreviated(str(path), os.environ.get("HOME", ""))


def say(text: str) -> None:
    """Print what may hold names from files."""
    print(visible(text, lines=True))


def change_files(
    program: ClientProgram, plans: Callable[[], list[FilePlan]], *, dry_run: bool = False
) -> list[FileChange] | None:
    """Change a client's files, or show what would change; None if it cannot be done, which is said."""
    try:
        if not dry_run:
            return apply(plans(), program.name, records())
        changes = preview(plans())
    except (DocumentError, ConfigError) as error:
        print(visible(f"mcpd: {program.title}: {error}", lines=True), file=sys.stderr)
        return None
    for change in changes:
        if text := difference(change.found.path, change.before, change.after, change.form):
            print(text, end="")
    return changes


def installed_in_words(program: ClientProgram, changes: Sequence[FileChange]) -> list[str]:
    """What installing has done, or found done."""
    places = [shown(change.found.path) for change in changes if change.record is not None]
    taken = [name for change in changes for name in change.taken]
    left = [name for change in changes for name in change.left]
    if not places:
        return [f"{program.title}: nothing to do: mcpd has none of its servers (`mcpd import --write`)"]
    been = "is in" if any(change.writes for change in changes) else "is already in"
    lines = [f"{program.title}: mcpd {been} {', '.join(places)}{_instead(taken)}"]
    if left:
        stays, them = ("stays", "it") if len(left) == 1 else ("stay", "them")
        lines.append(
            f"  {', '.join(left)} {stays} there as well: mcpd does not have {them}, or has {them} switched off"
            " (`mcpd import`)"
        )
    return lines


def _instead(taken: Sequence[str]) -> str:
    return f", and has {', '.join(dict.fromkeys(taken))} for it" if taken else ""


def uninstalled_in_words(program: ClientProgram, changes: Sequence[FileChange]) -> list[str]:
    """What uninstalling has done; nothing if mcpd was not there."""
    done = (change for change in changes if change.writes or change.former is not None)
    return [f"{program.title}: {_uninstalled(program, change)}" for change in done]


def _uninstalled(program: ClientProgram, change: FileChange) -> str:
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
