"""Commands that work on this machine; the code of each is imported after its command line is parsed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from daemon.cli.command import (
    CONTROL,
    SERVER,
    AddArgument,
    CommandLine,
    argument,
    either,
    flag,
    path_option,
    seconds_option,
)
from daemon.cli.options import STOP_SECONDS
from daemon.kit.later import later

RELOAD_SECONDS = 60.0
"""Seconds for the daemon to reload (as `mcpd reload`)."""

LOGIN_SECONDS = 600.0
"""Seconds for the user to log in: the pages of authorization servers expire sooner."""

SERVE_SECONDS = 30.0
"""Seconds for a daemon to start serving: it takes one, or ten on a busy machine."""

UP_SECONDS = 120.0
"""Seconds for a server to come up: a first start may install a package."""

# --- arguments --------------------------------------------------------------------------------------------

CONFIG = path_option("--config", "F")
DIFF = flag("--dry-run")
NO_RELOAD = flag("--no-reload")
ANSWERS = (
    argument("--env", metavar="K=V", action="append", default=[]),
    argument("--header", metavar="'K: V'", action="append", default=[]),
    flag("--yes"),
)
KEEP = either(flag("--keep"), flag("--or-undo"))
_UNSANDBOXED = argument("--unsandboxed", metavar="SERVER", action="append", default=[])
_STATE = path_option("--state-dir", "D")


def _clients(made: argparse.ArgumentParser) -> None:
    from daemon.setup.clients.programs import PROGRAMS  # noqa: PLC0415 - with their formats

    made.add_argument("client", metavar="CLIENT", nargs="*", help=f"a client: {', '.join(PROGRAMS)}")
    made.add_argument("--all", action="store_true")
    made.add_argument("--dry-run", action="store_true")


# --- setting up -------------------------------------------------------------------------------------------

UP = CommandLine(
    "up",
    arguments=(
        DIFF,
        flag("--yes"),
        flag("--keyring"),
        flag("--one-to-one"),
        flag("--no-service"),
        argument("--clients", dest="client", metavar="CLIENT", nargs="+", default=[]),
        seconds_option("--wait", UP_SECONDS),
        _UNSANDBOXED,
    ),
    needs=False,
    changing="",
    run=later("daemon.cli.up", "up"),
)

IMPORT = CommandLine(
    "import",
    arguments=(
        argument("--from", dest="clients", metavar="CLIENT", nargs="+", action="extend", default=[]),
        flag("--write"),
        _UNSANDBOXED,
        flag("--keyring"),
        flag("--migrate-env"),
        DIFF,
        flag("--yes"),
    ),
    seconds=RELOAD_SECONDS,
    needs=False,
    changing="",
    run=later("daemon.cli.import_servers", "import_servers"),
)

INSTALL = CommandLine(
    "install",
    arguments=(
        _clients,
        argument("--scope", choices=("user", "project"), default="user"),
        argument("--profile", metavar="P"),
        argument("--surface", metavar="S"),
        flag("--one-to-one"),
        flag("--keep"),
        flag("--yes"),
    ),
    json=False,
    seconds=None,
    changing=": `mcpd check` says more",
    run=later("daemon.cli.install", "install"),
)

UNINSTALL = CommandLine(
    "uninstall",
    arguments=(_clients,),
    json=False,
    seconds=None,
    reaches=False,
    run=later("daemon.cli.install", "uninstall"),
)

CLIENTS = CommandLine("clients", seconds=None, reaches=False, run=later("daemon.cli.install", "clients"))

PURGE = CommandLine(
    "purge",
    arguments=(flag("--yes"), DIFF),
    json=False,
    seconds=None,
    reaches=False,
    run=later("daemon.cli.install", "purge"),
)

ADD = CommandLine(
    "add",
    usage="[options] NAME -- COMMAND ... | NAME URL | [NAME] npm:P | pypi:P | registry:SERVER | BUNDLE | -",
    arguments=(
        argument("words", metavar="NAME", nargs="*"),
        *ANSWERS,
        argument("--env-file", metavar="FILE"),
        argument("--type", metavar="T"),
        argument("--share", metavar="S"),
        argument("--trust", choices=("all", "changes", "none")),
        argument("--sandbox", choices=("home", "strict", "off")),
        argument("--version", metavar="V"),
        argument("--shown", metavar="DIGEST"),
        flag("--keyring"),
        flag("--offline"),
        argument("--description", metavar="D"),
        flag("--replace"),
        KEEP,
        NO_RELOAD,
        DIFF,
        CONFIG,
    ),
    seconds=UP_SECONDS,
    needs=False,
    intermixed=True,
    rest=True,
    changing="",
    run=later("daemon.cli.add", "add"),
)

REMOVE = CommandLine(
    "remove",
    arguments=(argument("servers", metavar="SERVER", nargs="+"), NO_RELOAD, DIFF, CONFIG),
    json=False,
    seconds=RELOAD_SECONDS,
    needs=False,
    changing="; if these places name the server, remove them first",
    run=later("daemon.cli.add", "remove"),
)

CHANGING: Any = {"seconds": UP_SECONDS, "needs": False, "changing": ""}


def _editing(name: str, run: str, *arguments: AddArgument, again: bool = False) -> CommandLine:
    words = (*arguments, KEEP, NO_RELOAD, DIFF, CONFIG, lambda made: made.set_defaults(again=again))
    return CommandLine(name, arguments=words, run=later("daemon.cli.editing", run), **CHANGING)


_PLACE = argument("server", metavar="SERVER|.")
SET = _editing("set", "set_keys", _PLACE, argument("keys", metavar="KEY[=VALUE]|-", nargs="+"))
UNSET = _editing("unset", "unset_keys", _PLACE, argument("keys", metavar="KEY", nargs="+"))
RENAME = _editing("rename", "rename", SERVER, argument("new", metavar="NEW"))
EDIT = CommandLine(
    "edit",
    arguments=(argument("files", metavar="FILE", type=Path, nargs="*"), NO_RELOAD, CONFIG),
    run=later("daemon.cli.editing", "edit"),
    **CHANGING,
)
_SERVERS = (argument("servers", metavar="SERVER", nargs="*"), flag("--all"))
PIN = _editing("pin", "pin", *_SERVERS)
UPGRADE = _editing("upgrade", "pin", *_SERVERS, *ANSWERS, again=True)
ENABLE = _editing("enable", "enable", argument("names", metavar="SERVER[/TOOL]", nargs="+"))

LOGIN = CommandLine(
    "login",
    arguments=(SERVER, flag("--no-browser"), flag("--device"), argument("--scope", metavar="S")),
    seconds=LOGIN_SECONDS,
    run=later("daemon.cli.login", "log_in"),
)

# --- the daemon's process ---------------------------------------------------------------------------------


def _service_actions(made: argparse.ArgumentParser) -> None:
    actions = made.add_subparsers(
        dest="action", metavar="install|uninstall|status", required=True, parser_class=argparse.ArgumentParser
    )
    install = actions.add_parser("install", help="write the units, enable and start them")
    install.add_argument("--dry-run", action="store_true", help="show the diff, and change nothing")
    install.add_argument(
        "--linger",
        action=argparse.BooleanOptionalAction,
        help="run from boot on, and after the last logout (loginctl enable-linger; default: ask)",
    )
    now = "start the service (default), or only enable it"
    install.add_argument("--now", action=argparse.BooleanOptionalAction, default=True, help=now)
    install.add_argument("--yes", action="store_true", help="ask nothing, as with --linger")
    actions.add_parser("uninstall", help="stop the service, and remove the units")
    status = "show whether the service is installed, enabled, active and up to date"
    json = "print the data as JSON, for programs"
    actions.add_parser("status", help=status).add_argument("--json", action="store_true", help=json)


SERVICE = CommandLine(
    "service",
    arguments=(_service_actions,),
    json=False,
    seconds=None,
    changing="",
    run=later("daemon.cli.service", "service_action"),
)

START = CommandLine(
    "start",
    arguments=(
        CONFIG,
        _STATE,
        flag("--restart"),
        seconds_option("--timeout", SERVE_SECONDS),
        argument("--window", choices=("new", "known"), default="", help=argparse.SUPPRESS),
    ),
    seconds=None,
    run=later("daemon.cli.start", "start"),
)

STOP = CommandLine(
    "stop",
    arguments=(
        argument("servers", nargs="*", help=argparse.SUPPRESS),
        CONTROL,
        seconds_option("--timeout", STOP_SECONDS),
    ),
    json=False,
    seconds=None,
    run=later("daemon.cli.start", "stop"),
)

# --- looking ----------------------------------------------------------------------------------------------

CHECK = CommandLine(
    "check",
    arguments=(argument("file", metavar="F", type=Path, nargs="?"), CONFIG),
    seconds=None,
    reaches=False,
    run=later("daemon.cli.doctor", "check"),
)

DOCTOR = CommandLine(
    "doctor",
    arguments=(CONFIG, _STATE, flag("--end-leftovers")),
    seconds=None,
    run=later("daemon.cli.doctor", "doctor"),
)
