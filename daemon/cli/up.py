"""`mcpd up`: import servers, install the service and the clients, in one guided step."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import attrs

from daemon.causes import Cause
from daemon.cli.command import agreed, for_each, has_terminal
from daemon.cli.control import (
    EX_FAULT,
    CommandFailed,
    DaemonUnreachable,
    RemoteFault,
    ask_with,
    note,
    other_version,
    say,
)
from daemon.cli.editing import pins, put
from daemon.cli.import_servers import data, table, these
from daemon.cli.install import Installing, clients_of, own_socket, shown, this_machine
from daemon.cli.taking_effect import poll_servers, reloaded, said_once
from daemon.cli.terminal import Screen
from daemon.config.command_lines import pinnable
from daemon.errors import McpdError
from daemon.host.paths import config_file, home
from daemon.host.tokens import confirming
from daemon.kit.wording import counted
from daemon.safety.escape import document, visible
from daemon.setup.adding import newest
from daemon.setup.clients.file_plans import SCOPES
from daemon.setup.clients.importing import ClientServers, ConfiguredServers, ImportPlan, drafted, find
from daemon.setup.clients.installing import Installation, own_command
from daemon.setup.drafts import Draft, Present, known_values, read_present
from daemon.setup.running import service
from daemon.setup.running.systemctl import installed
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    from daemon.cli.taking_effect import Servers
    from daemon.operators.reports import ServerReport
    from daemon.setup.clients.programs import ClientProgram
    from daemon.setup.running.service import UnitPlan

DAEMON_SECONDS = 60.0
"""Seconds for the daemon to start serving: up to ten on a busy machine."""


PIN_SECONDS = 10.0
"""Seconds for all lookups of versions: a registry answers in a second or two, offline none does."""


_REGISTRY = re.compile(r"index|registry|find_links", re.IGNORECASE)
"""Matches names of variables that name a registry of packages: of uv, pip and npm."""


class _Offer(NamedTuple):
    installing: Installing
    programs: Sequence[ClientProgram]
    changing: Sequence[ClientProgram]
    """The clients among `programs` whose files need a change."""
    found: ClientServers
    left: Mapping[str, Sequence[str]]
    """Servers of a project that mcpd does not take, by file."""
    planned: ImportPlan
    present: Present
    service: UnitPlan | None
    """The service to install; None if it is running, cannot be installed, or is not wanted."""


def up(options: argparse.Namespace) -> int:
    """Set up everything that the user agrees to; with --json, text for people goes to stderr."""
    report = dict[str, Any]()
    with redirect_stdout(sys.stderr) if options.json else nullcontext():
        status = _set_up(options, report)
    if options.json:
        print(document(report))
    return status


def _set_up(options: argparse.Namespace, report: dict[str, Any]) -> int:
    options.socket = own_socket(options)
    offer = _offered(options, clients_of(options.client))
    screen, installing = Screen.of(sys.stdout, os.environ), offer.installing
    if offer.planned.servers or offer.planned.left or offer.found.unread or not installing.known.servers:
        print(table(offer.planned, offer.found, screen, str(installing.machine.home)), end="\n\n")
    for path, names in offer.left.items():
        say(f"Left out: {', '.join(names)} of the project, in {path} (`mcpd import` takes them).")
    if not installing.known.servers:
        raise CommandFailed("there is no server to begin with: `mcpd add` adds one, then try again")
    draft = drafted(offer.present, offer.planned, os.environ)
    report |= _report(offer)
    if options.dry_run:
        asked = [f"It would ask: {each}" for each in _questions(offer).values()]
        say(*(asked or ["There is nothing to ask: every client has mcpd, and mcpd has every server."]))
        return 0
    agreed = _asked(options, offer)
    if not _started(options, offer, draft, with_service="service" in agreed):
        return EX_FAULT
    changing = offer.changing if "clients" in agreed else ()
    status = installing.put_into(changing, tells_more=False)
    done = [each for each in offer.programs if not installing.is_pending(each)]
    servers, doubted = _pinned(options, offer, settled(options)), list[str]()
    with suppress(DaemonUnreachable):
        doubted = ask_with(options, "status", {})["daemon"].get("doubtedTokens", [])
    left = [each for each in offer.programs if each not in done]
    report |= _report(offer)
    for line in [
        *said_once(draft),
        *not_pinned(read_present(offer.present.config.path).servers),
        *summary(servers, done, offer.found, options, left, doubted),
    ]:
        print(textwrap.fill(visible(line), screen.width, break_long_words=False, break_on_hyphens=False))
    return status


def _report(offer: _Offer) -> dict[str, Any]:
    """The servers found, and the clients of this machine, for programs."""
    pending = [each for each in offer.programs if offer.installing.is_pending(each)]
    clients = [
        {"client": each.name, "title": each.title, "pending": each in pending} for each in offer.programs
    ]
    return {**data(offer.planned, offer.found), "clients": clients}


# --- what would be done -----------------------------------------------------------------------------------


def _offered(options: argparse.Namespace, programs: Sequence[ClientProgram]) -> _Offer:
    """Find out what can be set up. Raises ConfigError for mcpd's configuration, McpdError for other files."""
    machine, path = this_machine(options.unsandboxed), config_file(os.environ).absolute()
    programs = [program for program in programs if options.client or program.is_on(machine)]
    everything = find(machine, programs)
    # Without servers of project files: their authors would choose programs to run.
    found = attrs.evolve(
        everything,
        servers=[each for each in everything.servers if each.origin.place.scope in SCOPES["user"]],
        left=[each for each in everything.left if each.origin.place.scope in SCOPES["user"]],
    )
    left: dict[str, list[str]] = {}
    for each in everything.servers:
        if each not in found.servers:
            left.setdefault(str(each.origin.place.path), []).append(each.origin.name)
    present = read_present(path)
    planned = ImportPlan(found, present, os.environ, keyring=options.keyring)
    command = own_command(sys.argv[0])
    socket = ("--socket", options.socket) if options.socket else ()
    wanted = Installation(command=command, args=("connect", *socket), one_to_one=options.one_to_one)
    known = ConfiguredServers(
        servers={**present.servers, **{server.name: server.entry for server in planned.added}},
        variables={**planned.variables, **known_values(present, os.environ)},
    )
    installing = Installing(machine, wanted, known)
    changing = [program for program in programs if installing.is_pending(program)]
    unit = _service(options, command)
    return _Offer(installing, programs, changing, found, left, planned, present, unit)


def _service(options: argparse.Namespace, command: str) -> UnitPlan | None:
    # A service uses the default configuration and socket.
    if options.no_service or options.socket or os.environ.get("MCPD_CONFIG"):
        return None
    state = service.state(os.environ, command)
    if not state.manager or (state.installed and not state.differing and state.active):
        return None
    return service.planned(os.environ, command)


# --- the questions ----------------------------------------------------------------------------------------


def _asked(options: argparse.Namespace, offer: _Offer) -> set[str]:
    """The keys of `_questions` that the user agrees to; fails if no one can be asked."""
    questions = _questions(offer)
    if questions and not options.yes and not has_terminal():
        print("\n".join(f"It would ask: {question}" for question in questions.values()))
        raise CommandFailed("there is no terminal to ask in: nothing was changed. Pass --yes to agree to this")
    wanted = set[str]()
    for key, question in questions.items():
        if agreed(question, yes=options.yes):
            wanted.add(key)
        elif key == "servers":
            raise CommandFailed("nothing was changed")
    return wanted


def _questions(offer: _Offer) -> dict[str, str]:
    questions = dict[str, str]()
    if offer.planned.added:
        questions["servers"] = f"Take {these(offer.planned)} into {shown(offer.present.config.path)}?"
    if offer.service is not None:
        questions["service"] = "Run mcpd as a service of your systemd, from boot on?"
    if offer.changing:
        questions["clients"] = f"Put mcpd into {titles(offer.changing)}, in place of the servers mcpd runs?"
    return questions


# --- doing it ---------------------------------------------------------------------------------------------


def _started(options: argparse.Namespace, offer: _Offer, draft: Draft, *, with_service: bool) -> bool:
    """Have the daemon take the servers; if it fails, restore the configuration and report why."""
    draft.write()
    try:
        problem = _run(options, offer, with_service=with_service)
    except (McpdError, OSError) as error:
        problem = str(error)
    if problem:
        draft.undo()
        note(problem, lines=True)
        as_it_was = f"{draft.present.config.path} is unchanged, and no client was changed"
        note(f"{as_it_was}; try again when this is solved")
    return not problem


def _run(options: argparse.Namespace, offer: _Offer, *, with_service: bool) -> str:
    """Start or reload the daemon; returns the reason if the daemon does not have the servers."""
    if with_service and offer.service is not None:
        try:
            done = service.install(os.environ, offer.service)
        except service.ServiceRefused as error:
            say(f"mcpd: {error}; it is started in the background instead")
        else:
            print("mcpd runs as a service (`mcpd service status`).")
            if done.linger:
                say(f"mcpd: it ends with your last logout: {done.linger}")
            return ""
    other = other_version(options)
    # Its child, as of the console, is refused at the clients' socket, where `start` knocks.
    if not other and _answers(options):
        return reloaded(options, offer.present.config.path).problem
    command = [sys.executable, "-P", "-m", "daemon", "start", "--json", "--timeout", str(DAEMON_SECONDS)]
    if options.socket:
        command += ["--socket", options.socket]
    if other:
        command.append("--restart")
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        return ran.stderr.strip().removeprefix("mcpd: ")
    running = json.loads(ran.stdout)
    if running["started"]:
        pid = running["pid"]
        print(f"mcpd runs{f', pid {pid}' if pid else ''}.")
        return ""
    return reloaded(options, offer.present.config.path).problem


def _answers(options: argparse.Namespace) -> bool:
    with suppress(DaemonUnreachable, RemoteFault):
        return bool(ask_with(options, "status", {}, timeout=DAEMON_SECONDS))
    return False


def settled(options: argparse.Namespace) -> Servers:
    """Wait until each server is up or has failed, report each, and return all."""
    reported = set[str]()
    servers: Servers = {}
    try:
        for servers in poll_servers(options, options.wait):
            coming = {name for name, server in servers.items() if server["state"] in COMING}
            for name in [each for each in servers if each not in coming | reported]:
                if servers[name]["state"] != "disabled":
                    say(f"  {name}: {_how(servers[name])}")
            reported |= servers.keys() - coming
            if not coming:
                break
    except DaemonUnreachable as error:
        note(str(error), lines=True)
        return {}
    return servers


def _pinned(options: argparse.Namespace, offer: _Offer, servers: Servers) -> Servers:
    """Pin the added servers that work, as far as versions are found in time; returns all servers afterwards."""
    well = {name for name, server in servers.items() if _works(server)}
    # An entry that names its registry in a variable means the packages there.
    planned = [
        each for each in offer.planned.added if not _REGISTRY.search(" ".join(each.entry.get("env") or ()))
    ]
    added = {each.name: each.entry for each in planned if each.name in well}
    packages = {name: [*pinnable(*_line(entry))] for name, entry in added.items()}
    wanted = {each for found in packages.values() for each in found}
    deadline, at = time.monotonic() + PIN_SECONDS, home(os.environ)
    with ThreadPoolExecutor() as threads:
        found = threads.map(lambda each: newest(each, os.environ, at, deadline), wanted)
        versions = dict(zip(wanted, found, strict=True))

    def pin(name: str) -> int:
        pinned = {each.written: f"{each.pinned}{versions[each]}" for each in packages[name] if versions[each]}
        words = ", ".join(f"{was} becomes {now}" for was, now in pinned.items())
        own = argparse.Namespace(**{**vars(options), "server": name, "json": False, "timeout": options.wait})
        if status := put(own, pins(added[name], pinned), f"  {name}: {words}; ", keep=False):
            note(f"{name} is not pinned: with its newest version it does not come up")
        return status

    for_each(options, [name for name, each in packages.items() if any(map(versions.get, each))], pin)
    with suppress(DaemonUnreachable):
        return cast("Servers", ask_with(options, "status", {})["servers"])
    return servers


def _works(server: ServerReport, well: Collection[str] = WELL - {"disabled"}) -> bool:
    """Whether a server needs no operator; a dormant server may have failed to list its tools."""
    return server["state"] in well and not server.get("cause")


def _line(entry: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
    return entry.get("command") or "", entry.get("args") or ()


def _how(server: ServerReport) -> str:
    number, state = server["tools"], server["state"]
    return f"{state}, {counted(number, 'tool')}" if number or state in WELL else state


def summary(
    servers: Servers,
    programs: Sequence[ClientProgram],
    found: ClientServers,
    options: argparse.Namespace,
    left: Sequence[ClientProgram] = (),
    doubted: Sequence[str] = (),
) -> list[str]:
    """Lines about working servers, faults, and how to undo.

    `left` are clients without mcpd, `doubted` the tokens that wait for `mcpd token confirm`.
    """
    works = [name for name, server in servers.items() if _works(server)]
    clients = f", in {titles(programs)} once restarted" if programs else ""
    troubles = [_trouble(name, server) for name, server in servers.items() if not _works(server, WELL)]
    troubles += [
        f"{name}: {len(held)} held until you approve (`mcpd approve {name}`)"
        for name, server in servers.items()
        if (held := server.get("held"))
    ]
    troubles += [each.in_a_line for each in found.unread]
    unread = {each.program.name for each in found.unread}
    troubles += [f"{each.title} is unchanged (see above)" for each in left if each.name not in unread]
    if doubted:
        what = f"{counted(len(doubted), 'token')} of an earlier daemon refused until you confirm"
        troubles.append(f"{what} (see `mcpd token list`; {confirming(doubted)})")
    names = " ".join(program.name for program in programs)
    ends = "mcpd stop" if options.socket or installed(os.environ) is None else "mcpd service uninstall"
    undo = [f"`mcpd uninstall {names}`"] if programs else []
    return [
        f"Works: {', '.join(works) or 'nothing yet'}{clients}.",
        f"Needs attention: {'; '.join(troubles) or 'nothing'}.",
        f"Undo: {', then '.join([*undo, f'`{ends}`'])}.",
    ]


def not_pinned(servers: Mapping[str, Any]) -> list[str]:
    """A line about the servers that may run another version at each start; none without such a server."""
    loose = [name for name, each in servers.items() if any(pinnable(*_line(each)))]
    return [f"Not pinned: {', '.join(loose)} (`mcpd pin {' '.join(loose)}`)."] if loose else []


def titles(programs: Sequence[ClientProgram]) -> str:
    """The clients' names, joined for a sentence."""
    named = [program.title for program in programs]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _trouble(name: str, server: ServerReport) -> str:
    state = server["state"]
    if state in COMING:
        return f"{name} is still starting (`mcpd status`)"
    by_user = state == "needs_auth" and server.get("cause") != Cause.LOGIN_REFUSED
    helps = f"mcpd login {name}" if by_user else "mcpd doctor"
    reason = str(server.get("happened") or server.get("reason") or "").partition("\n")[0].rstrip(".")
    return f"{name}: {state}{f', {reason}' if reason else ''} (`{helps}`)"
