"""Commands that work on this machine; their code is imported after the command line was read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli.command import CommandLine, argument, either, flag
from daemon.cli.options import add_json, positive
from daemon.cli.table import EX_CONFIG
from daemon.kit.later import later

if TYPE_CHECKING:
    from daemon.cli.command import AddArgument

RELOAD_SECONDS = 60.0
"""Seconds for the daemon to reload (as `mcpd reload`)."""

LOGIN_SECONDS = 600.0
"""Seconds for the user: authorization servers give their pages no more."""

SERVE_SECONDS = 30.0
"""Seconds for a daemon to serve: it takes one, on a busy machine ten."""

STOP_SECONDS = 20.0
"""Seconds for the daemon's end: 5 for all servers, and `listen.http.drain` for clients over HTTP."""

UP_SECONDS = 120.0
"""Seconds for a server to come up: a first start may install a package."""

# --- arguments --------------------------------------------------------------------------------------------

_CONFIG = argument("--config", metavar="F", type=Path, help="the configuration (default: as `mcpd check`)")
_DIFF = flag("--dry-run", "show what would change, as a diff")
_NO_RELOAD = flag("--no-reload", "only write it: leave the daemon alone")
_UNSANDBOXED = argument(
    "--unsandboxed",
    metavar="SERVER",
    action="append",
    default=[],
    help="take this server, by its client's name for it, though the client has it in a sandbox",
)


def _wait(name: str, seconds: float, meaning: str) -> AddArgument:
    meaning = f"how long to wait {meaning} (default: %(default)g)"
    return argument(name, metavar="SECONDS", type=positive, default=seconds, help=meaning)


def _clients(made: argparse.ArgumentParser) -> None:
    from daemon.setup.clients.programs import PROGRAMS  # noqa: PLC0415 - with their formats

    made.add_argument("client", metavar="CLIENT", nargs="*", help=f"one of {', '.join(PROGRAMS)}")
    made.add_argument("--all", action="store_true", help="every client that is here")
    shown = "show what would change in which file, without secrets"
    made.add_argument("--dry-run", action="store_true", help=shown)


# --- setting up -------------------------------------------------------------------------------------------

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
    arguments=(
        flag("--yes", "ask nothing"),
        flag(
            "--one-to-one",
            "leave each server under its own name in each client, as for clients with rules about tools",
        ),
        flag("--no-service", "start the daemon in the background only"),
        argument(
            "--clients",
            dest="client",
            metavar="CLIENT",
            nargs="+",
            default=[],
            help="only these (default: all)",
        ),
        _wait("--wait", UP_SECONDS, "for the servers, whose first start may install them"),
        _UNSANDBOXED,
    ),
    json=False,
    needs=False,
    changing="",
    run=later("daemon.cli.up", "up"),
)

IMPORT = CommandLine(
    "import",
    "Find the MCP servers that clients on this machine have, each once, however many clients have it. No"
    " client's file is changed. With --write, servers that mcpd does not have yet are added to its"
    " configuration; their secrets go to the file 'env' beside it, which only you can read.",
    examples=(
        "mcpd import",
        "mcpd import --from claude-code cursor --dry-run",
        "mcpd import --write",
        "mcpd import --json | jq '.servers[].name'",
    ),
    exits={
        0: "servers were found; with --write, mcpd has them",
        1: "there are none, a file could not be read or written, or you said no",
        EX_CONFIG: "mcpd's own configuration is faulty: nothing was changed",
    },
    arguments=(
        argument(
            "--from",
            dest="clients",
            metavar="CLIENT",
            nargs="+",
            action="extend",
            default=[],
            help="only these clients: claude-code, cursor, codex, ... (docs/setup.md has all)",
        ),
        flag("--write", "add them to mcpd's configuration"),
        _UNSANDBOXED,
        flag(
            "--migrate-env",
            "import nothing: give each server of mcpd's configuration variables of its own, SERVER__NAME, in"
            " place of those that servers share; shows the difference, and asks",
        ),
        flag("--dry-run", "show what --write would change, as a diff"),
        flag("--yes", "with --write: do not ask"),
    ),
    seconds=RELOAD_SECONDS,
    needs=False,
    changing="",
    run=later("daemon.cli.import_servers", "import_servers"),
)

INSTALL = CommandLine(
    "install",
    "Put `mcpd connect` into a client's configuration. Servers of the client that mcpd has, too, are taken"
    " out there, so that they are not started twice; those that it does not have stay and are named. The"
    " rest of the file, its comments and its order stay as they are. What it was is kept for `mcpd"
    " uninstall`. Servers that rules of the client's own are about keep their names there, so that the rules"
    " hold.",
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
    arguments=(
        _clients,
        argument(
            "--scope",
            choices=("user", "project"),
            default="user",
            help="for this user, or in the file of the project in the working directory, which others may share"
            " (default: user)",
        ),
        argument("--profile", metavar="P", help="the profile that the client gets"),
        argument("--surface", metavar="S", help="the surface that the client gets"),
        flag(
            "--one-to-one",
            "leave each server under its own name, and reach it through mcpd (`mcpd connect --server"
            " NAME`), so that the client's own rules about its tools go on to hold",
        ),
        flag("--keep", "leave the client's servers, those mcpd has too"),
        flag("--yes", "with --all: ask nothing"),
    ),
    json=False,
    seconds=None,
    changing=": `mcpd check` says more",
    run=later("daemon.cli.install", "install"),
)

UNINSTALL = CommandLine(
    "uninstall",
    "Take mcpd out of a client's configuration again. A file that nobody has changed since is as it was"
    " before `mcpd install`, byte for byte, and one that was made for it is removed. What was edited since"
    " stays: then only mcpd's entry is removed, and the servers that it stood for are put back.",
    examples=("mcpd uninstall claude-code", "mcpd uninstall --all --dry-run", "mcpd uninstall --all"),
    exits={0: "mcpd is in none of these clients", 1: "one could not be changed; the others were"},
    arguments=(_clients,),
    json=False,
    seconds=None,
    reaches=False,
    run=later("daemon.cli.install", "uninstall"),
)

ADD = CommandLine(
    "add",
    "Add a server to the configuration, as a person would: comments, order and layout of the file stay."
    " The result is checked before it is written; the daemon, if one runs, reads it again, and the server's"
    " tools are shown when it is up. A server that cannot come up as it was added is taken back, unless you"
    " say --keep; one that waits for a login, a variable or a service stays. Packages without a version are"
    " pinned to the newest, and values of credentials are kept in the file 'env' beside the configuration,"
    " which only you can read.",
    usage="[options] NAME -- COMMAND ... | NAME URL | [NAME] npm:PACKAGE | [NAME] pypi:PACKAGE",
    examples=(
        "mcpd add pypi:mcp-server-time",
        "mcpd add memory npm:@modelcontextprotocol/server-memory",
        "mcpd add git --share workspace -- uvx mcp-server-git --repository '${workspace}'",
        "mcpd add github --env GITHUB_TOKEN=... -- docker run -i --rm -e GITHUB_TOKEN ghcr.io/o/server:1.2",
        "mcpd add notion https://mcp.notion.com/mcp --header 'Authorization: Bearer ...'",
    ),
    exits={
        0: "added; if a daemon runs, the server is up",
        1: "not added (the name is taken, the file cannot be written), or the server does not come up",
        EX_CONFIG: "the configuration is faulty, or would be: nothing was changed",
    },
    arguments=(
        argument("words", metavar="NAME", nargs="*", help="the server's name, and what it is"),
        argument("--env", metavar="K=V", action="append", default=[], help="a variable that it gets"),
        argument("--header", metavar="'K: V'", action="append", default=[], help="a header for its url"),
        argument("--type", metavar="T", help="its transport, where the url does not tell: sse"),
        argument("--share", metavar="S", help="who shares an instance of it: all, workspace or session"),
        argument("--description", metavar="D", help="what it is good for, in a sentence, for models"),
        flag("--replace", "replace the server that has the name"),
        either(
            flag("--keep", "keep it whatever keeps it from coming up"),
            flag("--or-undo", "take it back also if it waits for a login, a variable or a service"),
        ),
        _NO_RELOAD,
        _DIFF,
        _CONFIG,
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
    "Take a server out of the configuration, with the comments that belong to it; all else stays as it is."
    " The result is checked before it is written: categories and profiles that still name the"
    " server are listed, and nothing is changed. The daemon, if one runs, stops the server.",
    examples=("mcpd remove time", "mcpd remove time --dry-run"),
    exits={
        0: "removed",
        1: "no such server, the file cannot be written, or the daemon did not take it up",
        EX_CONFIG: "the configuration is faulty, or would be: nothing was changed",
    },
    arguments=(argument("server", metavar="SERVER", help="its name"), _NO_RELOAD, _DIFF, _CONFIG),
    json=False,
    seconds=RELOAD_SECONDS,
    needs=False,
    changing="; if these places name the server, remove them first",
    run=later("daemon.cli.add", "remove"),
)

LOGIN = CommandLine(
    "login",
    "Log in to a server that wants OAuth. Prints the link to the page where you log in, and opens it where"
    " there is a screen. If your browser runs on another machine, it ends at an address that it cannot"
    " reach: paste that here. The login is kept for the daemon's user only, and renewed by itself;"
    " `mcpd logout` ends it. A second `mcpd login` with the same options joins the first, one with others"
    " ends it.",
    examples=(
        "mcpd login github",
        "mcpd login github --no-browser",
        "mcpd login github --device      # type a code on your phone, where that is offered",
        "mcpd login github --scope 'repo read:user'",
    ),
    exits={
        0: "logged in, and the server is up",
        1: "not logged in, or the server is not up with it: the reason is on stderr",
        130: "given up with Ctrl-C",
    },
    arguments=(
        argument("server", metavar="SERVER", help="its name, as `mcpd status` shows it"),
        flag("--no-browser", "open no browser: only print the link"),
        flag("--device", "log in with a code on another device, where that is offered"),
        argument("--scope", metavar="S", help="ask for these scopes instead of what the server wants"),
    ),
    seconds=LOGIN_SECONDS,
    run=later("daemon.cli.login", "log_in"),
)

# --- the daemon's process ---------------------------------------------------------------------------------


def _service_actions(made: argparse.ArgumentParser) -> None:
    actions = made.add_subparsers(dest="action", metavar="install|uninstall|status", required=True)
    install = actions.add_parser("install", help="write the units, enable and start them")
    install.add_argument(
        "--dry-run", action="store_true", help="show what would be written, and change nothing"
    )
    install.add_argument(
        "--linger",
        action=argparse.BooleanOptionalAction,
        help="run without a login, too: from boot on, and after the last logout (loginctl enable-linger;"
        " default: ask)",
    )
    now = "start it (default), or only enable it"
    install.add_argument("--now", action=argparse.BooleanOptionalAction, default=True, help=now)
    install.add_argument("--yes", action="store_true", help="ask nothing: as with --linger")
    actions.add_parser("uninstall", help="stop it, and remove what `install` wrote")
    add_json(
        actions.add_parser("status", help="whether it is installed, enabled, active, and as of this version")
    )


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
    arguments=(_service_actions,),
    json=False,
    seconds=None,
    changing="",
    run=later("daemon.cli.service", "service_action"),
)

START = CommandLine(
    "start",
    "Start the daemon in the background, unless one runs: by systemd if its user units are installed (`mcpd"
    " service install`) and no option names a file, else detached from this terminal, with its log in"
    " daemon.log in the state directory. Returns when it serves clients. `mcpd connect` does the same where"
    ' none runs, unless the configuration says "autostart": false.',
    examples=(
        "mcpd start",
        "mcpd start --config ./mcpd.json --socket ./mcpd.sock",
        "mcpd start --json | jq .pid",
    ),
    exits={
        0: "a daemon runs",
        1: "none runs, or it does not serve in time",
        EX_CONFIG: "the configuration is faulty",
    },
    arguments=(
        argument("--config", metavar="F", help="configuration (default: see mcpd check)"),
        argument("--state-dir", metavar="D", help="where state and log are kept"),
        _wait("--timeout", SERVE_SECONDS, "until it serves"),
        argument("--window", choices=("new", "known"), default="", help=argparse.SUPPRESS),
    ),
    seconds=None,
    run=later("daemon.cli.start", "start"),
)

STOP = CommandLine(
    "stop",
    "Stop the daemon: systemd's units if it is theirs, so that no client starts it; else the process. Calls"
    " in flight are answered and servers are ended. Clients that are open now do not start it again; `mcpd"
    ' start` does, and so does a client that is opened anew, unless the configuration says "autostart":'
    " false.",
    examples=("mcpd stop", "mcpd stop && mcpd start"),
    exits={0: "no daemon runs any more", 1: "it goes on running"},
    arguments=(
        argument("servers", nargs="*", help=argparse.SUPPRESS),
        argument("--control", metavar="P", help="the daemon's socket for commands (default: $MCPD_CONTROL)"),
        _wait("--timeout", STOP_SECONDS, "for its end"),
    ),
    json=False,
    seconds=None,
    run=later("daemon.cli.start", "stop"),
)

# --- looking ----------------------------------------------------------------------------------------------

CHECK = CommandLine(
    "check",
    "Validate a configuration without starting anything: all faults at once, each with its place in the"
    " file. Notes (what other clients write and is understood) and warnings (a command that is not on PATH,"
    " a package without a version, a server without a description) do not fail it.",
    examples=("mcpd check", "mcpd check config/demo.json", "mcpd check mcpd.json --json | jq .faults"),
    exits={0: "it can be used", 78: "it has faults"},
    arguments=(
        argument(
            "file",
            metavar="F",
            type=Path,
            nargs="?",
            help="the configuration (default: $MCPD_CONFIG, else $XDG_CONFIG_HOME/mcpd/mcpd.json, else"
            " /etc/mcpd/mcpd.json)",
        ),
        argument("--config", metavar="F", type=Path, help="the same, as other commands take it"),
    ),
    seconds=None,
    reaches=False,
    run=later("daemon.cli.check", "check"),
)

DOCTOR = CommandLine(
    "doctor",
    "Look at the configuration, the sockets, the state, systemd's units, the limits, each server and what"
    " killed daemons have left; say what is wrong, why, and what to do. Works with and without a running"
    " daemon; starts nothing, changes nothing without --end-leftovers, asks nobody outside this machine,"
    " and prints no secret.",
    examples=(
        "mcpd doctor",
        "mcpd doctor --config mcpd.json",
        "mcpd doctor --end-leftovers",
        "mcpd doctor --json | jq '.findings[] | select(.level != \"ok\")'",
    ),
    exits={0: "there is no fault, perhaps warnings", 1: "there is a fault"},
    arguments=(
        argument(
            "--config",
            metavar="F",
            type=Path,
            help="the configuration (default: the running daemon's, else the one that `mcpd run` would use)",
        ),
        argument(
            "--state-dir",
            metavar="D",
            type=Path,
            help="where state is kept (default: where the running daemon has it, else where `mcpd run` would)",
        ),
        flag(
            "--end-leftovers",
            "end the processes that a killed daemon left behind: SIGTERM, then SIGKILL after 2 s",
        ),
    ),
    seconds=None,
    run=later("daemon.cli.doctor", "doctor"),
)
