"""`mcpd service`: runs the daemon as a service of the user's systemd."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

import attrs

from daemon.cli.command import UsageError, agreed, check_flags, has_terminal, show
from daemon.cli.control import EX_FAULT, say
from daemon.documents.files import Edit, unified_diff
from daemon.safety.escape import visible
from daemon.setup.clients.installing import own_command
from daemon.setup.running import service
from daemon.setup.running.service import ServiceState

# --- install ----------------------------------------------------------------------------------------------


def _install(options: argparse.Namespace) -> int:
    plan = service.planned(os.environ, own_command(sys.argv[0]))
    of_login = f"PATH, from {plan.source}: {visible(plan.path)}"
    if options.dry_run:
        for change in plan.changes:
            print(_difference(change), end="")
        print(f"{of_login}\n{len(plan.changes)} files would be written; nothing was changed.")
        return 0
    service.reached(os.environ)
    linger = _wants_linger(options)
    done = service.install(os.environ, plan, now=options.now is not False, linger=linger)
    say(*(f"wrote {path}" for path in done.written))
    say(*(f"kept the former file as {path}" for path in done.kept))
    if done.ended is not None:
        print(f"ended pid {done.ended}, the daemon that ran until now")
    print(of_login)
    if done.linger:
        print(f"It ends with your last logout, since lingering could not be enabled: {visible(done.linger)}")
    print("mcpd.service is enabled" + (" and runs." if options.now is not False else "."))
    return 0


def _wants_linger(options: argparse.Namespace) -> bool:
    if options.linger is not None or options.yes:
        return options.linger is not False
    if service.lingers():
        return True
    if not has_terminal():
        raise UsageError("there is no terminal to ask in: pass --linger, --no-linger or --yes")
    return agreed("Run it without a login, too (from boot on, and after the last logout)?", yes=False)


def _difference(change: Edit) -> str:
    content = change.found.content
    # A foreign file may be in any encoding.
    before = None if content is None else content.decode(errors="replace")
    return visible(unified_diff(change.found.path, before, change.text), lines=True)


# --- uninstall, status ------------------------------------------------------------------------------------


def _uninstall(_: argparse.Namespace) -> int:
    done = service.uninstall(os.environ)
    say(*(f"removed {path}" for path in done.removed))
    say(*(f"left {path}, which was edited or is not mcpd's" for path in done.edited))
    print("mcpd.service is stopped and removed." if done.removed else "There was nothing to remove.")
    return 0


def _status(options: argparse.Namespace) -> int:
    found = service.state(os.environ, own_command(sys.argv[0]))
    show(options, attrs.asdict(found), lambda _facts: _in_words(found))
    return 0 if found.installed and found.enabled and found.active else EX_FAULT


def _in_words(found: ServiceState) -> list[str]:
    if not found.manager:
        return ["This user's systemd does not answer: `mcpd connect` and `mcpd start` start the daemon."]
    if not found.installed:
        return ["mcpd.service is not installed: `mcpd service install` installs it."]
    enabled = "" if found.enabled else "not "
    runs = "it runs" + (f", pid {found.pid}" if found.pid else ": the first client starts it")
    ends = "It ends with the last logout: `mcpd service install --linger` changes that."
    differing = ", ".join(found.differing)
    return [
        f"mcpd.service is {enabled}enabled; {runs if found.active else 'it does not run'}.",
        "It runs without a login." if found.linger else ends,
        *([f"PATH: {found.path}"] if found.path else ()),
        *(
            [f"Different from this version: {differing} (`mcpd service install` updates that)."]
            if differing
            else ()
        ),
    ]


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "install": _install,
    "uninstall": _uninstall,
    "status": _status,
}


# The actions that take each option.
_ACTIONS_OF = {**dict.fromkeys(("dry_run", "linger", "now", "yes"), ("install",)), "json": ("status",)}


def service_action(options: argparse.Namespace) -> int:
    """Install, remove or show the systemd service."""
    options.action = options.action or "status"
    check_flags(options, _ACTIONS_OF)
    return _ACTIONS[options.action](options)
