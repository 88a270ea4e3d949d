"""`mcpd up`: import, service and install in one guided step."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daemon.cli import EX_CONFIG
from daemon.cli.command import CommandLine, agreed, argument, has_terminal
from daemon.cli.control import EX_FAULT, DaemonUnreachable
from daemon.cli.options import add_control, add_unsandboxed, positive
from daemon.cli.taking_effect import START_SECONDS, looks, reloaded
from daemon.host.paths import config_file
from daemon.kit.wording import counted
from daemon.safety.escape import visible
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from daemon.cli.taking_effect import Servers
    from daemon.setup.clients.found import ClientServers
    from daemon.setup.clients.importing import ConfiguredServers, ImportPlan
    from daemon.setup.clients.installing import Installation
    from daemon.setup.clients.programs import ClientProgram, Machine
    from daemon.setup.drafts import Draft, Present
    from daemon.setup.running.service import UnitPlan


DAEMON_SECONDS = 60.0
"""How long the daemon may take to serve: on a busy machine ten seconds."""


class _Offer(NamedTuple):
    """What would be done, and for what."""

    machine: Machine
    programs: Sequence[ClientProgram]
    """The clients that are here."""
    changing: Sequence[ClientProgram]
    """Those of them that mcpd is not in yet, or that have servers which mcpd has."""
    found: ClientServers
    left: Mapping[str, Sequence[str]]
    """What a project has in the working directory, which is not taken: the servers' names, by file."""
    planned: ImportPlan
    present: Present
    """mcpd's configuration as it is."""
    service: UnitPlan | None
    """The service that is to be installed; None if it is, cannot be or is not wanted."""
    known: ConfiguredServers
    """What mcpd will have."""
    wanted: Installation


def _run_up(options: argparse.Namespace) -> int:
    # Here, so that `--help` does not pay for attrs and cattrs.
    from daemon.cli.client_changes import clients_of  # noqa: PLC0415
    from daemon.cli.import_servers import table  # noqa: PLC0415 - as above
    from daemon.cli.install import install, is_pending  # noqa: PLC0415
    from daemon.cli.terminal import Screen  # noqa: PLC0415
    from daemon.setup.drafts import drafted  # noqa: PLC0415

    offer = _offered(options, clients_of(options.client))
    screen = Screen.of(sys.stdout, os.environ)
    if offer.planned.servers or offer.planned.left or offer.found.unread or not offer.known.servers:
        print(table(offer.planned, offer.found, screen, str(offer.machine.home)), end="\n\n")
    for path, names in offer.left.items():
        print(visible(f"Not taken: {', '.join(names)} of the project, in {path} (`mcpd import` does)."))
    if not offer.known.servers:
        print("mcpd: there is no server to begin with: `mcpd add` adds one, then try again", file=sys.stderr)
        return EX_FAULT
    draft = drafted(offer.present, offer.planned, os.environ)
    agreed = _asked(options, offer)
    if agreed is None or not _started(options, offer, draft, with_service="service" in agreed):
        return EX_FAULT
    changing = offer.changing if "clients" in agreed else ()
    status = install(changing, offer.machine, offer.wanted, offer.known, tells_more=False)
    done = [each for each in offer.programs if not is_pending(each, offer.machine, offer.wanted, offer.known)]
    servers = settled(options)
    left = [each for each in offer.programs if each not in done]
    for line in summary(servers, done, offer.found, options, left):
        print(textwrap.fill(visible(line), screen.width, break_long_words=False, break_on_hyphens=False))
    return status


# --- what would be done -----------------------------------------------------------------------------------


def _offered(options: argparse.Namespace, programs: Sequence[ClientProgram]) -> _Offer:
    """Look at everything; nothing is changed.

    Raises:
        ConfigError: mcpd's configuration is faulty.
        McpdError: a file cannot be read, or there is no program that clients could start.
    """
    from daemon.cli.client_changes import is_here, this_machine  # noqa: PLC0415 - as above
    from daemon.cli.install import is_pending  # noqa: PLC0415
    from daemon.setup.clients.found import find  # noqa: PLC0415
    from daemon.setup.clients.importing import (  # noqa: PLC0415 - as in the other commands
        ConfiguredServers,
        plan,
    )
    from daemon.setup.clients.installing import (  # noqa: PLC0415 - as in the other commands
        Installation,
        own_command,
    )
    from daemon.setup.drafts import read_present  # noqa: PLC0415

    machine, path = this_machine(options.unsandboxed), config_file(os.environ).absolute()
    programs = [program for program in programs if options.client or is_here(program, machine)]
    everything = find(machine, programs)
    found = _of_the_user(everything)
    left: dict[str, list[str]] = {}
    for each in everything.servers:
        if each not in found.servers:
            left.setdefault(str(each.origin.place.path), []).append(each.origin.name)
    present = read_present(path)
    planned = plan(found, written=present.servers, kept=present.variables, environ=os.environ, source=path)
    command = own_command(sys.argv[0])
    socket = ("--socket", str(Path(options.socket).absolute())) if options.socket else ()
    wanted = Installation(command=command, args=("connect", *socket), one_to_one=options.one_to_one)
    known = ConfiguredServers(
        servers={**present.servers, **{server.name: server.entry for server in planned.added}},
        variables={**present.variables, **planned.variables, **os.environ},
    )
    return _Offer(
        machine=machine,
        programs=programs,
        changing=[program for program in programs if is_pending(program, machine, wanted, known)],
        found=found,
        left=left,
        planned=planned,
        present=present,
        service=_service(options, command),
        known=known,
        wanted=wanted,
    )


def _of_the_user(found: ClientServers) -> ClientServers:
    """What was found, without what stands in a project's files: whoever wrote those decides what is run."""
    import attrs  # noqa: PLC0415 - as above

    from daemon.setup.clients.file_plans import SCOPES  # noqa: PLC0415

    return attrs.evolve(
        found,
        servers=tuple(each for each in found.servers if each.origin.place.scope in SCOPES["user"]),
        left=tuple(each for each in found.left if each.origin.place.scope in SCOPES["user"]),
    )


def _service(options: argparse.Namespace, command: str) -> UnitPlan | None:
    from daemon.setup.running import service  # noqa: PLC0415 - as above

    # A service has the usual configuration and the usual socket.
    if options.no_service or options.socket or os.environ.get("MCPD_CONFIG"):
        return None
    state = service.state(os.environ, command)
    if not state.manager or (state.installed and not state.differing and state.active):
        return None
    return service.planned(os.environ, command)


# --- the questions ----------------------------------------------------------------------------------------


def _asked(options: argparse.Namespace, offer: _Offer) -> set[str] | None:
    """What of `_questions` is agreed to; None if nothing is to be done."""
    questions = _questions(offer)
    if questions and not options.yes and not has_terminal():
        print("\n".join(f"It would ask: {question}" for question in questions.values()))
        print(
            "mcpd: there is no terminal to ask in: nothing was changed. --yes agrees to this", file=sys.stderr
        )
        return None
    wanted = set[str]()
    for key, question in questions.items():
        if agreed(question, yes=options.yes):
            wanted.add(key)
        elif key == "servers":
            print("mcpd: nothing was changed", file=sys.stderr)
            return None
    return wanted


def _questions(offer: _Offer) -> dict[str, str]:
    """What is left to do, each as a question."""
    from daemon.cli.client_changes import shown  # noqa: PLC0415 - as above

    questions = dict[str, str]()
    if added := offer.planned.added:
        servers = "this server" if len(added) == 1 else f"these {len(added)} servers"
        questions["servers"] = f"Take {servers} into {shown(offer.present.config.path)}?"
    if offer.service is not None:
        questions["service"] = "Run mcpd as a service of your systemd, from boot on?"
    if offer.changing:
        questions["clients"] = f"Put mcpd into {titles(offer.changing)}, in place of the servers that it has?"
    return questions


# --- doing it ---------------------------------------------------------------------------------------------


def _started(options: argparse.Namespace, offer: _Offer, draft: Draft, *, with_service: bool) -> bool:
    """Have the daemon run with the servers; if it does not, the configuration is as it was, which is said."""
    from daemon.errors import McpdError  # noqa: PLC0415 - as above

    draft.write()
    try:
        problem = _run(options, offer, with_service=with_service)
    except (McpdError, OSError) as error:
        problem = str(error)
    if problem:
        draft.undo()
        print(f"mcpd: {visible(problem, lines=True)}", file=sys.stderr)
        as_it_was = f"{draft.present.config.path} is as it was, and no client was touched"
        print(visible(f"mcpd: {as_it_was}; try again when this is solved"), file=sys.stderr)
    return not problem


def _run(options: argparse.Namespace, offer: _Offer, *, with_service: bool) -> str:
    """Have the daemon run; returns why it does not have the servers.

    Raises:
        McpdError: it does not run.
        OSError: the directory of its sockets cannot be used.
    """
    from daemon.config.parse import load  # noqa: PLC0415 - as above
    from daemon.setup.running import service, starting  # noqa: PLC0415
    from daemon.surfaces.table import SURFACES  # noqa: PLC0415

    if with_service and offer.service is not None:
        try:
            done = service.install(os.environ, offer.service)
        except service.ServiceRefused as error:
            print(visible(f"mcpd: {error}; it is started in the background instead", lines=True))
        else:
            print("mcpd runs as a service (`mcpd service status`).")
            if done.linger:
                print(visible(f"mcpd: it ends with your last logout: {done.linger}"))
            return ""
    path = offer.present.config.path
    request = starting.StartRequest(
        environ=os.environ,
        read=lambda: load(path, os.environ, SURFACES),
        socket=Path(options.socket).absolute() if options.socket else None,
        seconds=DAEMON_SECONDS,
    )
    running = starting.start(request)
    if running.started:
        print(f"mcpd runs{f', pid {running.pid}' if running.pid else ''}.")
        return ""
    return reloaded(options, path).problem


def settled(options: argparse.Namespace) -> Servers:
    """Wait until each server is up or has failed, and say so; returns all of them."""
    told = set[str]()
    servers: Servers = {}
    try:
        for servers in looks(options, options.wait):
            coming = {name for name, server in servers.items() if server["state"] in COMING}
            for name in [each for each in servers if each not in coming | told]:
                if servers[name]["state"] != "disabled":
                    print(visible(f"  {name}: {_how(servers[name])}"))
            told |= servers.keys() - coming
            if not coming:
                break
    except DaemonUnreachable as error:
        print(f"mcpd: {visible(str(error), lines=True)}", file=sys.stderr)
        return {}
    return servers


def _how(server: dict[str, Any]) -> str:
    number, state = server["tools"], str(server["state"])
    return f"{state}, {counted(number, 'tool')}" if number or state in WELL else state


def summary(
    servers: Servers,
    programs: Sequence[ClientProgram],
    found: ClientServers,
    options: argparse.Namespace,
    left: Sequence[ClientProgram] = (),
) -> list[str]:
    """What works, what needs attention, how to undo it: a line each.

    Args:
        servers: as they are.
        programs: the clients that mcpd is in.
        found: what clients had.
        options: the command line; `socket` is None unless it was named.
        left: the clients that mcpd is not in: they could not be changed, which was said, or were not to be.
    """
    from daemon.setup.running.systemctl import installed  # noqa: PLC0415 - not for `--help`

    works = [name for name, server in servers.items() if server["state"] in WELL - {"disabled"}]
    clients = f", in {titles(programs)} once started anew" if programs else ""
    troubles = [_trouble(name, server) for name, server in servers.items() if server["state"] not in WELL]
    troubles += [each.in_a_line for each in found.unread]
    unread = {each.program.name for each in found.unread}
    troubles += [f"{each.title} is as it was (see above)" for each in left if each.name not in unread]
    names = " ".join(program.name for program in programs)
    ends = "mcpd stop" if options.socket or installed(os.environ) is None else "mcpd service uninstall"
    undo = [f"`mcpd uninstall {names}`"] if programs else []
    return [
        f"Works: {', '.join(works) or 'nothing yet'}{clients}.",
        f"Needs attention: {'; '.join(troubles) or 'nothing'}.",
        f"Undo: {', then '.join([*undo, f'`{ends}`'])}.",
    ]


def titles(programs: Sequence[ClientProgram]) -> str:
    """The clients as people know them."""
    named = [program.title for program in programs]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _trouble(name: str, server: dict[str, Any]) -> str:
    state = server["state"]
    if state in COMING:
        return f"{name} is still starting (`mcpd status`)"
    helps = f"mcpd login {name}" if state == "needs_auth" else "mcpd doctor"
    reason = str(server.get("reason") or "").partition("\n")[0]
    return f"{name}: {state}{f', {reason}' if reason else ''} (`{helps}`)"


UP = CommandLine(
    "up",
    "Set everything up: take over the servers that your clients have, start the daemon (as a service where"
    " systemd is), and put mcpd into the clients in place of these servers. Shows what it would do, and"
    " asks before it changes anything. Once more it does only what is left to do. Servers of the project"
    " in the working directory are not taken: `mcpd import` does, once you have looked at what they run.",
    examples=("mcpd up", "mcpd up --yes", "mcpd up --clients claude-code codex --no-service"),
    exits={
        0: "mcpd runs, and is in these clients",
        1: "not done; what was begun is undone, or named",
        EX_CONFIG: "mcpd's configuration is faulty: nothing was changed",
    },
    run=_run_up,
    arguments=(
        argument("--yes", action="store_true", help="ask nothing"),
        argument(
            "--one-to-one",
            action="store_true",
            help="leave each server under its own name in each client, as for clients with rules about tools",
        ),
        argument("--no-service", action="store_true", help="start the daemon in the background only"),
        argument(
            "--clients",
            dest="client",
            metavar="CLIENT",
            nargs="+",
            default=[],
            help="only these (default: all)",
        ),
        argument(
            "--wait",
            metavar="SECONDS",
            type=positive,
            default=START_SECONDS,
            help="how long to wait for the servers, whose first start may install them (default: %(default)g)",
        ),
        add_unsandboxed,
        add_control,
    ),
    json=False,
    seconds=None,
    changing="",
)
