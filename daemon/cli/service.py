"""`mcpd service`: the daemon as a service of the user's systemd."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

import attrs

from daemon.cli import EX_USAGE
from daemon.cli.command import CommandLine, agreed, has_terminal
from daemon.cli.control import EX_FAULT
from daemon.cli.options import add_json
from daemon.documents.files import unified_diff
from daemon.safety.escape import document, visible
from daemon.setup.clients.installing import own_command
from daemon.setup.running import service

if TYPE_CHECKING:
    from daemon.setup.running.service import ServiceState, UnitChange, UnitPlan


# --- install ----------------------------------------------------------------------------------------------


def _install(options: argparse.Namespace) -> int:
    plan = service.planned(os.environ, own_command(sys.argv[0]))
    if options.dry_run:
        _show_plan(plan)
        return 0
    service.reached(os.environ)
    linger = _wants_linger(options)
    if linger is None:
        print(
            "mcpd: without a terminal nobody can be asked: say --linger, --no-linger or --yes", file=sys.stderr
        )
        return EX_USAGE
    done = service.install(os.environ, plan, now=options.now, linger=linger)
    for path in done.written:
        print(f"wrote {path}")
    for path in done.kept:
        print(f"kept what stood there before as {path}")
    if done.ended is not None:
        print(f"ended pid {done.ended}, the daemon that ran until now")
    print(f"PATH, from {plan.source}: {visible(plan.path)}")
    if done.linger:
        print(f"It ends with your last logout, since lingering could not be enabled: {visible(done.linger)}")
    print("mcpd.service is enabled" + (" and runs." if options.now else "."))
    return 0


def _wants_linger(options: argparse.Namespace) -> bool | None:
    """Whether the service is to run without a login; None if nobody can be asked."""
    if options.linger is not None or options.yes:
        return options.linger is not False
    if service.lingers():
        return True
    if not has_terminal():
        return None
    return agreed("Run it without a login, too (from boot on, and after the last logout)?", yes=False)


def _show_plan(plan: UnitPlan) -> None:
    for change in plan.changes:
        print(_difference(change), end="")
    print(f"PATH, from {plan.source}: {visible(plan.path)}")
    print(f"{len(plan.changes)} files would be written; nothing was changed.")


def _difference(change: UnitChange) -> str:
    content = change.found.content
    # What somebody else wrote there may be in any encoding.
    before = None if content is None else content.decode(errors="replace")
    return visible(unified_diff(change.path, before, change.after.decode()), lines=True)


# --- uninstall, status ------------------------------------------------------------------------------------


def _uninstall(_: argparse.Namespace) -> int:
    done = service.uninstall(os.environ)
    for path in done.removed:
        print(f"removed {path}")
    for path in done.edited:
        print(f"left {path}, which was edited or is not ours")
    print("mcpd.service is stopped and removed." if done.removed else "There was nothing to remove.")
    return 0


def _status(options: argparse.Namespace) -> int:
    found = service.state(os.environ, own_command(sys.argv[0]))
    print(document(attrs.asdict(found)) if options.json else "\n".join(_in_words(found)))
    return 0 if found.installed and found.enabled and found.active else EX_FAULT


def _in_words(found: ServiceState) -> list[str]:
    if not found.manager:
        return ["This user's systemd does not answer: `mcpd connect` and `mcpd start` start the daemon."]
    if not found.installed:
        return ["mcpd.service is not installed: `mcpd service install` does that."]
    enabled = "" if found.enabled else "not "
    runs = "it runs" + (f", pid {found.pid}" if found.pid else ": the first client starts it")
    lines = [
        f"mcpd.service is {enabled}enabled; {runs if found.active else 'it does not run'}.",
        "It runs without a login."
        if found.linger
        else "It ends with the last logout: `mcpd service install --linger` changes that.",
    ]
    if found.path:
        lines.append(f"PATH: {visible(found.path)}")
    if found.differing:
        lines.append(
            f"Not as this version writes it: {', '.join(found.differing)} (`mcpd service install` does that)."
        )
    return lines


def _actions(made: argparse.ArgumentParser) -> None:
    actions = made.add_subparsers(metavar="install|uninstall|status", required=True)
    install = actions.add_parser("install", help="write the units, enable and start them")
    install.set_defaults(act=_install)
    install.add_argument(
        "--dry-run", action="store_true", help="show what would be written, and change nothing"
    )
    install.add_argument(
        "--linger",
        action=argparse.BooleanOptionalAction,
        help="run without a login, too: from boot on, and after the last logout (loginctl enable-linger;"
        " default: ask)",
    )
    install.add_argument(
        "--now",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="start it (default), or only enable it",
    )
    install.add_argument("--yes", action="store_true", help="ask nothing: as with --linger")
    uninstall = actions.add_parser("uninstall", help="stop it, and remove what `install` wrote")
    uninstall.set_defaults(act=_uninstall)
    status = actions.add_parser(
        "status", help="whether it is installed, enabled, active, and as of this version"
    )
    status.set_defaults(act=_status)
    add_json(status)


def _run(options: argparse.Namespace) -> int:
    status: int = options.act(options)
    return status


SERVICE = CommandLine(
    "service",
    "Have the daemon run as a service of your own systemd: it is started at boot or with the first client,"
    " and again when it has crashed; its log is in the journal. `install` writes the units of this version"
    " to ~/.config/systemd/user, with the PATH of your login shell.",
    examples=(
        "mcpd service install",
        "mcpd service install --yes --no-linger",
        "mcpd service install --dry-run",
        "mcpd service status --json",
        "mcpd service uninstall",
    ),
    exits={0: "done; status: it is installed, enabled and active", 1: "not done; status: it is not"},
    run=_run,
    arguments=(_actions,),
    json=False,
    seconds=None,
    changing="",
)
