"""`mcpd install`, `uninstall`, `skill`, `clients` and `purge`: put mcpd into clients, and take it out."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daemon.cli.command import UsageError, agreed, show
from daemon.cli.control import EX_FAULT, CommandFailed, DaemonUnreachable, ask_with, note, say
from daemon.cli.taking_effect import without_sandbox
from daemon.config.parse import load
from daemon.config.state_url import DATABASE
from daemon.documents.files import DocumentError, look
from daemon.errors import ConfigError
from daemon.host.paths import (
    abbreviated,
    client_socket,
    config_file,
    home,
    runtime_dir,
    served_sockets,
    state_dir,
    xdg,
)
from daemon.kit.later import later
from daemon.kit.wording import short_size
from daemon.processes import proc
from daemon.safety.escape import visible
from daemon.setup.clients import file_plans, skills
from daemon.setup.clients.importing import ConfiguredServers, find, found_clients
from daemon.setup.clients.installing import Installation, Records, own_command
from daemon.setup.clients.programs import PROGRAMS, ClientProgram, Machine, named
from daemon.setup.clients.rules import ToolRule, held_rules, keeping, listed
from daemon.setup.drafts import known_values, read_present
from daemon.setup.running.service import is_untouched, unit_directory, wanted_files
from daemon.setup.running.service import uninstall as uninstall_service
from daemon.setup.running.starting import holder, listener

if TYPE_CHECKING:
    from daemon.cli import adding_offers
    from daemon.sandbox import launch
else:
    adding_offers = later("daemon.cli.adding_offers")
    launch = later("daemon.sandbox.launch")

# --- which clients, and where -----------------------------------------------------------------------------


def chosen(options: argparse.Namespace) -> list[ClientProgram]:
    """The clients that the command line names; all with `--all`. Raises UsageError."""
    if bool(options.client) is options.all:
        raise UsageError(f"name the clients, or write --all: {', '.join(PROGRAMS)}")
    return clients_of(options.client)


def clients_of(names: Sequence[str]) -> list[ClientProgram]:
    """The clients with these names, or all clients if there are none. Raises UsageError for an unknown name."""
    try:
        return list(dict.fromkeys(map(named, names))) or list(PROGRAMS.values())
    except LookupError as error:
        raise UsageError(visible(str(error))) from None


def this_machine(unsandboxed: Sequence[str] = ()) -> Machine:
    """Facts about this machine; `unsandboxed` names servers to take from clients that sandbox them."""
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
        registered=cache(lambda name: adding_offers.registered(name)),  # noqa: PLW0108 - loads it then
    )


def _no_sandbox() -> str:
    problem = launch.trial(os.environ)
    return "" if problem is None else without_sandbox(problem)


def records() -> Records:
    """The records of changed client files."""
    return Records(state_dir(os.environ))


def shown(path: Path) -> str:
    """A path with `~` for the home directory."""
    return abbreviated(str(path), os.environ.get("HOME", ""))


def change_files(
    program: ClientProgram, plans: Callable[[], list[file_plans.FilePlan]], *, dry_run: bool = False
) -> list[file_plans.FileChange] | None:
    """Change a client's files, or print the diff. Reports a failure, and then returns None."""
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
    """The outcome of an installation, in lines."""
    places = [shown(change.found.path) for change in changes if change.record is not None]
    taken = [name for change in changes for name in change.new.taken]
    left = [name for change in changes for name in change.new.left]
    if not places:
        return [f"{program.title}: nothing to do: mcpd has none of its servers (`mcpd import --write`)"]
    been = "is in" if any(change.writes for change in changes) else "is already in"
    instead = f", in place of {', '.join(dict.fromkeys(taken))}" if taken else ""
    lines = [f"{program.title}: mcpd {been} {', '.join(places)}{instead}"]
    if left:
        stays, them = ("stays", "it") if len(left) == 1 else ("stay", "them")
        lines.append(
            f"  {', '.join(left)} {stays}: mcpd does not have {them} (`mcpd import` adds {them}) or cannot run"
            f" {them} (`mcpd status`). Once it can, `mcpd install {program.name}` takes {them} over"
        )
    return lines


def uninstalled_in_words(program: ClientProgram, changes: Sequence[file_plans.FileChange]) -> list[str]:
    """The outcome of an uninstallation, in lines; empty if mcpd was not installed."""
    done = (change for change in changes if change.writes or change.former is not None)
    return [f"{program.title}: {_uninstalled(program, change)}" for change in done]


def _uninstalled(program: ClientProgram, change: file_plans.FileChange) -> str:
    path = shown(change.found.path)
    if change.former is None:
        return f"mcpd's entry is removed from {path}. The former text is unknown, so nothing else was changed"
    if change.new.exact:
        return f"{path} is {'deleted: mcpd had made it' if change.after is None else 'restored, byte for byte'}"
    if change.before is None:
        return f"{path} was deleted by someone else, and stays deleted"
    parts = [f"mcpd is removed from {path}; later edits of the file stay"]
    if change.new.back:
        parts.append(f"{', '.join(change.new.back)} put back")
    if change.new.kept:
        parts.append(
            f"{', '.join(change.new.kept)} not put back, since there is another entry of that name now"
        )
    backup = records().directory(program.name, change.found.path)
    if change.former.original is not None:
        parts.append(f"its former text is in {shown(backup)}/original")
    return "; ".join(parts)


# --- installing -------------------------------------------------------------------------------------------


class Installing(NamedTuple):
    """Installs mcpd into the clients of a machine."""

    machine: Machine
    wanted: Installation
    known: ConfiguredServers
    scope: str = "user"

    def kept(self, program: ClientProgram) -> tuple[Installation, list[ToolRule]]:
        """The entry of mcpd for a client, and the rules about tools that the client has."""
        ours, lookup = self.known.servers, self.known.lookup(program, self.machine, records())
        theirs, rules = held_rules(program, self.machine, lookup, ours, records(), self.scope)
        return keeping(self.wanted, theirs, rules, ours), rules

    def plans(self, program: ClientProgram) -> list[file_plans.FilePlan]:
        """The changes of a client's files."""
        wanted, lookup = self.kept(program)[0], self.known.lookup(program, self.machine, records())
        return file_plans.install_plans(program, self.machine, wanted, self.scope, lookup, records())

    def is_pending(self, program: ClientProgram) -> bool:
        """Whether a client's files need a change, or cannot be changed."""
        try:
            return any(change.writes for change in file_plans.preview(self.plans(program)))
        except (ConfigError, DocumentError):
            return True

    def put_into(
        self, programs: Sequence[ClientProgram], *, dry_run: bool = False, tells_more: bool = True
    ) -> int:
        """Install mcpd into clients and report it; returns 1 if one of them could not be changed, else 0."""
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
                    say(f"  {which}, because its own rules use these names: {listed(rules)}")
        if has_written and tells_more:
            print("It takes effect when a client is restarted. Undo: `mcpd uninstall CLIENT`, or --all.")
        return status


def install(options: argparse.Namespace) -> int:
    """Install mcpd into the named clients, or into all on this machine."""
    if options.one_to_one and (options.keep or options.surface):
        raise UsageError("--one-to-one excludes --keep and --surface: each server then has its own entry")
    machine, programs = this_machine(), chosen(options)
    absent = [program for program in programs if not program.is_on(machine)]
    if options.all:
        programs = [program for program in programs if program not in absent]
    elif absent:
        for program in absent:
            places = ", ".join(dict.fromkeys(str(place.path) for place in program.places(machine)))
            note(
                f"{program.title} is not installed here: none of {places} exists. Start it once, then try again"
            )
        return EX_FAULT
    installing = Installing(machine, _wanted(options), _known(), options.scope or "user")
    titles = ", ".join(program.title for program in programs)
    if options.all and not options.dry_run and not agreed(f"Put mcpd into {titles}?", yes=options.yes):
        raise CommandFailed("nothing was changed")
    return installing.put_into(programs, dry_run=options.dry_run)


def own_socket(options: argparse.Namespace) -> str | None:
    """The socket to name in clients' files; None for the usual socket, which clients find by themselves."""
    usual = client_socket({**os.environ, "MCPD_SOCKET": ""})
    front = options.socket or os.environ.get("MCPD_SOCKET")
    return str(Path(front).absolute()) if front and Path(front).absolute() != usual else None


def _wanted(options: argparse.Namespace) -> Installation:
    socket = own_socket(options)
    named = (("--socket", socket), ("--profile", options.profile))
    return Installation(
        command=own_command(sys.argv[0]),
        args=("connect", *(word for name, value in named if value for word in (name, value))),
        surface=options.surface,
        keep=options.keep,
        one_to_one=options.one_to_one,
    )


def _known() -> ConfiguredServers:
    """The servers in mcpd's configuration. Raises ConfigError or DocumentError."""
    path = config_file(os.environ)
    present = read_present(path)
    if present.config.content is not None:
        # With a faulty configuration no daemon starts, so clients must keep their servers.
        load(path, os.environ)
    return ConfiguredServers(servers=present.servers, variables=known_values(present, os.environ))


# --- uninstalling -----------------------------------------------------------------------------------------


def uninstall(options: argparse.Namespace) -> int:
    """Take mcpd out of the named clients, or out of all."""
    machine = this_machine()
    done = [_uninstall(program, machine, options) for program in chosen(options)]
    if options.all and not any(done):
        others = "any other" if None in done else "any"
        print(f"There is nothing to do: mcpd is not in {others} client's configuration.")
    if options.all and not options.dry_run and (kept := [each for each in _made() if each.is_dir()]):
        places = ", ".join(map(shown, kept))
        say(f"mcpd keeps its configuration, secrets and state in {places}: `mcpd purge` deletes them.")
    return int(None in done)


def _uninstall(program: ClientProgram, machine: Machine, options: argparse.Namespace) -> list[str] | None:
    plans = partial(file_plans.uninstall_plans, program, machine, records())
    changes = change_files(program, plans, dry_run=options.dry_run)
    if changes is None:
        return None
    lines = uninstalled_in_words(program, changes)
    gone = change_skill(program, "", dry_run=options.dry_run)
    if not (lines or gone) and not options.all:
        print(f"{program.title}: nothing to do: mcpd is not there")
    say(*([] if options.dry_run else lines), *([gone] if gone else []))
    return None if gone is None else [*lines, *([gone] if gone else [])]


def change_skill(program: ClientProgram, text: str, *, dry_run: bool = False) -> str | None:
    """Write a client's skill, or delete it if the text is empty. Returns the outcome, None after a failure."""
    if (path := program.skill(this_machine())) is None:
        return ""
    try:
        changed = skills.change(path, state_dir(os.environ), text, dry_run=dry_run)
    except (DocumentError, OSError) as error:
        note(f"{program.title}: {error}")
        return None
    place = f"{'in' if text else 'out of'} {shown(path)}"
    return f"{program.title}: the skill {'would be' if dry_run else 'is'} {place}" if text or changed else ""


# --- looking ----------------------------------------------------------------------------------------------


def clients(options: argparse.Namespace) -> int:
    """Show the clients on this machine, whether each has mcpd, and the servers that each starts itself."""
    show(options, {"clients": found_clients(this_machine())}, _clients_in_words)
    return 0


def _clients_in_words(answer: dict[str, Any]) -> Iterator[str]:
    if not answer["clients"]:
        yield "No client that mcpd knows is on this machine."
    for row in answer["clients"]:
        inside = ", ".join(f"in {shown(Path(each['file']))}{_chosen(each)}" for each in row["mcpd"])
        yield f"{row['title']}: mcpd is {inside or 'not in it: `mcpd install ' + row['client'] + '`'}"
        for file in dict.fromkeys(each["file"] for each in row["servers"]):
            names = dict.fromkeys(each["name"] for each in row["servers"] if each["file"] == file)
            yield f"  starts itself: {', '.join(names)} ({shown(Path(file))})"
        yield from (f"  not read: {each}" for each in row["unread"])


def _chosen(entry: dict[str, Any]) -> str:
    options = ", ".join(f"{name} {entry[name]}" for name in ("server", "profile", "surface") if entry[name])
    return f" ({options})" if options else ""


# --- purging ----------------------------------------------------------------------------------------------


def _made() -> dict[Path, str]:
    """The directories of mcpd, each with the paths that mcpd makes in it; directories end with `/`."""
    own = xdg(os.environ, "XDG_CONFIG_HOME", ".config") / "mcpd"
    data = xdg(os.environ, "XDG_DATA_HOME", ".local/share") / "mcpd"
    return {
        own: r"mcpd\.json|mcpd\.lock|env|secrets/[^/]*",
        state_dir(os.environ): r"state\.db[^/]*|daemon\.log(\.1)?|tokens\.json[^/]*|clients\.lock"
        r"|audit/(\d/)?(lock|[\d.-]+\.jsonl)?|(logins|skills|starts|trials)/[^/]*|results-[^/]*|backups/(service/[^/]*)?"
        r"|clients/([^/]+/([\da-f]{16}/((original|installed)(-[\da-f]{16})?|record\.json)?)?)?|servers/.*",
        data: r"(bundles|servers)/.*",
        runtime_dir(os.environ): r"(mcpd|control)\.sock(\.(lock|ready|start))?",
    }


def _lying(directory: Path, made: str) -> Iterator[tuple[Path, bool]]:
    """The paths in a directory, and whether mcpd made each; does not enter links or foreign directories."""
    if directory.is_symlink() or (directory.is_dir() and directory.lstat().st_uid != os.geteuid()):
        yield directory, False
        return
    for folder, below, files in os.walk(directory, onerror=_refuse):
        for name in (*files, *below):
            path = Path(folder, name)
            end = "/" if path.is_dir() and not path.is_symlink() else ""
            is_ours = bool(re.fullmatch(made, f"{path.relative_to(directory)}{end}", re.DOTALL))
            is_ours = is_ours and not (path.is_symlink() and path.parent == directory)
            if end and not is_ours:
                below.remove(name)
            yield path, is_ours


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise CommandFailed(f"{error.filename} cannot be read: {error.strerror}. Nothing was deleted")


def _in_use() -> str:
    front, control = served_sockets(os.environ, None, None, None)
    store = state_dir(os.environ) / f"{DATABASE}.lock"
    problems = dict[str, str]()
    inside = [each.program for each in find(this_machine(), PROGRAMS.values()).own]
    inside += [program for program in PROGRAMS.values() if records().of(program.name)]
    names = ", ".join(dict.fromkeys(program.title for program in inside))
    if names or any((state_dir(os.environ) / "skills").glob("*")):
        problems[f"mcpd is still in {names or 'the skills of a client'}"] = "mcpd uninstall --all"
    if pid := listener(control) or holder(front) or proc.lock_holder(store):
        problems[f"a daemon runs (pid {pid})"] = "mcpd stop"
    return f"{' and '.join(problems)}: first `{' && '.join(problems.values())}`" if problems else ""


def purge(options: argparse.Namespace) -> int:
    """Show everything that mcpd has made for this user, then delete it."""
    if (problem := _in_use()) and not options.dry_run:
        raise CommandFailed(f"{problem}. Nothing was deleted")
    made, folder = _made(), unit_directory(os.environ)
    units = {folder / name: look(folder / name).content for name in wanted_files("/", "")}
    found = {path: is_untouched(content) for path, content in units.items() if content is not None}
    stops = any(found.values())
    found |= {path: is_ours for each in made.items() for path, is_ours in _lying(*each)}
    ours, things = [path for path, is_ours in found.items() if is_ours], dict[Path, list[Path]]()
    holders = {*made, *(each / below for each in made for below in ("bundles", "servers"))}
    for path in ours:
        top = next((each for each in (path, *path.parents) if each.parent in holders), path)
        things.setdefault(top, []).append(path)
    lines = {top: f"{short_size(_size(below)):>6}  {shown(top)}" for top, below in things.items()}
    say(*(line for top, line in lines.items() if top not in holders))
    say(
        *(f"stays, since mcpd did not make it: {shown(path)}" for path, is_ours in found.items() if not is_ours)
    )
    if not ours:
        print("There is nothing to delete.")
        return 0
    if problem:
        note(f"cannot be deleted yet: {problem}")
    if options.dry_run or not agreed("Delete this for good?", yes=options.yes, default=False):
        return 0 if options.dry_run else EX_FAULT
    if stops:
        uninstall_service(os.environ)
    status = 0
    for top, below in reversed(things.items()):
        status = max(status, failed := _delete(below))
        if not failed and top not in holders:
            print(visible(f"deleted {lines[top]}"), flush=True)
    for each in made:
        with suppress(OSError):
            each.rmdir()
    print("The rest is deleted." if status else "Deleted. Only mcpd's program is left.")
    return status


def _size(paths: Sequence[Path]) -> int:
    return sum(path.lstat().st_size for path in paths if path.is_symlink() or not path.is_dir())


def _delete(paths: Sequence[Path]) -> int:
    folders, status = [path for path in paths if path.is_dir() and not path.is_symlink()], 0
    for path in folders:
        with suppress(OSError):
            path.chmod(0o700)  # Those of bundles are read-only.
    for path in paths:
        try:
            if path not in folders:
                path.unlink(missing_ok=True)
        except OSError as error:
            note(f"{path} stays: {error.strerror}")
            status = EX_FAULT
    for path in reversed(folders):
        with suppress(OSError):
            path.rmdir()
    return status


# --- the skill --------------------------------------------------------------------------------------------


def skill(options: argparse.Namespace) -> int:
    """Write, delete or show the skill."""
    text = "" if options.action == "uninstall" else skills.page(_tools_of_servers(options))
    if options.action == "show":
        print(text, end="")
        return 0
    programs = clients_of(options.client) if options.client else []
    if not programs or not all(program.skills for program in programs):
        raise UsageError("name clients that have skills, as `mcpd skill --help` says")
    outcomes = {program.title: change_skill(program, text) for program in programs}
    say(*(outcome or f"{title}: nothing to do" for title, outcome in outcomes.items() if outcome is not None))
    return EX_FAULT if None in outcomes.values() else 0


def _tools_of_servers(options: argparse.Namespace) -> dict[str, str]:
    """The default profile's servers with their tools; without a daemon, the configured servers."""
    try:
        categories = ask_with(options, "tools", {})["categories"]
    except DaemonUnreachable:
        servers = load(config_file(os.environ), os.environ).mcp_servers
        return {name: server.description for name, server in servers.items() if server.enabled}
    return {
        name: ", ".join(key for key, tool in each["tools"].items() if tool["listed"] and tool["enabled"])
        for name, each in categories.items()
    }
