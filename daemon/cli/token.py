"""`mcpd token`: show, make, list, confirm or revoke the tokens of clients over HTTP."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from daemon.cli.command import CommandLine, UsageError, argument, flag
from daemon.cli.control import CommandFailed, ask_with, note, say
from daemon.safety.escape import document

if TYPE_CHECKING:
    import argparse

    from daemon.operators.change_reports import TokenReport, TokensReport

ACTIONS = ("show", "new", "list", "confirm", "revoke")

_ACTIONS_OF = {
    **dict.fromkeys(("profile", "console", "workspace"), ("new",)),
    "default": ("confirm", "revoke"),
    "json": ("list",),
}
"""The actions that take each option."""

UNNAMED = "(no name)"


def _check_usage(options: argparse.Namespace) -> None:
    action = options.action
    if action == "new" and options.name is None:
        raise UsageError("name the new token: mcpd token new NAME")
    if action in {"confirm", "revoke"} and (options.name is None) is not options.default:
        raise UsageError(f"name the token to {action}, or write --default for the one without a name")
    if options.name is not None and action in {"show", "list"}:
        raise UsageError(f"`mcpd token {action}` takes no name")
    for option, actions in _ACTIONS_OF.items():
        if getattr(options, option) and action not in actions:
            raise UsageError(f"--{option} goes with `mcpd token {actions[-1]}`")


def _tell(options: argparse.Namespace, answer: TokensReport) -> None:
    if options.action == "list":
        if options.json:
            print(document({"tokens": answer["tokens"], "problem": answer["problem"]}))
        else:
            say(*map(_in_words, answer["tokens"]))
            say(*(() if answer["tokens"] else ("There are none: `mcpd token` makes one.",)))
        return
    if options.action == "new":
        note("keep it where its client finds it: it is not shown again")
    if answer["value"] is not None:
        print(answer["value"])
    elif options.action == "confirm":
        say(f"{options.name or UNNAMED}: lets its clients in again")
    else:
        say(f"{options.name}: revoked" if options.name else "revoked; `mcpd token` shows the new one")


def _in_words(token: TokenReport) -> str:
    profiles = "all profiles" if token["profiles"] is None else ", ".join(token["profiles"])
    origin = "configured" if token["since"] is None else f"made {_day(token['since'])}"
    role = f"; the console, to {token['console']}" if token.get("console") else ""
    workspaces = token.get("workspaces") or ()
    places = f"; workspaces {', '.join(workspaces)}" if workspaces else ""
    seen = f", last used {_day(token['lastUsed'])}" if token["lastUsed"] else ""
    name = token["name"]
    wanted = "" if token["counts"] else f"; COUNTS NOT until `mcpd token confirm {name or '--default'}`"
    return f"{name or UNNAMED}: {profiles}{role}{places}; {origin}{seen}{wanted}"


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _run(options: argparse.Namespace) -> int:
    _check_usage(options)
    params = {"action": options.action, "name": options.name, "profiles": options.profile}
    params |= {"console": options.console, "workspaces": options.workspace}
    answer: TokensReport = ask_with(
        options, "tokens", {key: each for key, each in params.items() if each is not None}
    )
    _tell(options, answer)
    if answer["problem"]:
        raise CommandFailed(answer["problem"])
    return 0


TOKEN = CommandLine(
    "token",
    "Show the daemon's token for clients over HTTP on the last line; or make, list, confirm or revoke named"
    " tokens, which count besides the configuration's. Only digests are kept: a named token is shown once,"
    " the unnamed one while the daemon that made it runs. Under systemd tokens outlive restarts; elsewhere,"
    " and after a boot, `confirm` admits each again, since any server can write the file of digests."
    " Revoking ends open connections. For another user's daemon this takes root.",
    examples=(
        "mcpd token",
        'export MCPD_TOKEN="$(mcpd token)"',
        "mcpd token new ci --profile reader",
        "mcpd token new agent --workspace '/srv/checkouts/*'",
        "mcpd token new wall-display --console read",
        "mcpd token list",
        "mcpd token confirm ci",
        "mcpd token revoke ci",
        "mcpd token revoke --default",
    ),
    exits={0: "done", 1: "refused, or the file of tokens cannot be used"},
    run=_run,
    arguments=(
        argument("action", nargs="?", choices=ACTIONS, default="show", help="default: show"),
        argument("name", metavar="NAME", nargs="?", help="the token to make, confirm or revoke"),
        argument(
            "--profile",
            metavar="P",
            action="append",
            help="a profile for the new token (repeatable; the first serves paths without a profile; default:"
            " all)",
        ),
        argument(
            "--console",
            choices=("read", "control"),
            help="let holders of the new token read the console, or change things there (default: neither)",
        ),
        argument(
            "--workspace",
            metavar="GLOB",
            action="append",
            help="directories that holders of the new token may name as workspaces; * matches any characters,"
            " ~/ the home of the daemon's user (repeatable, quote it; default: none)",
        ),
        flag("--default", "confirm the unnamed token, or replace it on revoke"),
    ),
)
