"""Commands that work on this machine; their code is imported after the command line was read."""

from __future__ import annotations

import argparse
from pathlib import Path

from daemon.cli.command import AddArgument, CommandLine, argument, either, flag, path_option
from daemon.cli.options import add_json, positive
from daemon.cli.table import EX_CONFIG
from daemon.kit.later import later

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

CONFIG = path_option("--config", "F", "the configuration (default: as `mcpd check`)")
DIFF = flag("--dry-run", "show the diff, and change nothing")
NO_RELOAD = flag("--no-reload", "do not have the daemon reload")
KEEP = either(
    flag("--keep", "keep the change even if the server does not come up"),
    flag("--or-undo", "undo it even if the server waits for a login, a variable or a service"),
)
_UNSANDBOXED = argument(
    "--unsandboxed",
    metavar="SERVER",
    action="append",
    default=[],
    help="import this server (its client's name for it) without the sandbox that its client gives it",
)


def _wait(name: str, seconds: float, meaning: str) -> AddArgument:
    meaning = f"seconds to wait {meaning} (default: %(default)g)"
    return argument(name, metavar="SECONDS", type=positive, default=seconds, help=meaning)


def _clients(made: argparse.ArgumentParser) -> None:
    from daemon.setup.clients.programs import PROGRAMS  # noqa: PLC0415 - with their formats

    made.add_argument("client", metavar="CLIENT", nargs="*", help=f"a client: {', '.join(PROGRAMS)}")
    made.add_argument("--all", action="store_true", help="every client on this machine")
    shown = "show the changes of each file without secrets, and change nothing"
    made.add_argument("--dry-run", action="store_true", help=shown)


# --- setting up -------------------------------------------------------------------------------------------

UP = CommandLine(
    "up",
    "Set everything up: take over your clients' servers, start the daemon (as a service under systemd), and"
    " put mcpd into the clients in place of these servers. Shows each step, and asks before it changes"
    " anything. A second run does only the rest. Servers of the project in the working directory are left"
    " out: inspect them, then use `mcpd import`.",
    examples=("mcpd up", "mcpd up --yes", "mcpd up --clients claude-code codex --no-service"),
    exits={
        0: "mcpd runs, and is in these clients",
        1: "not done; begun steps are undone, or named",
        EX_CONFIG: "mcpd's configuration is faulty: nothing was changed",
    },
    arguments=(
        flag("--yes", "ask nothing"),
        flag(
            "--one-to-one",
            "keep each server under its own name in each client, for clients with rules about tools",
        ),
        flag("--no-service", "start the daemon in the background instead"),
        argument(
            "--clients",
            dest="client",
            metavar="CLIENT",
            nargs="+",
            default=[],
            help="only these (default: all)",
        ),
        _wait("--wait", UP_SECONDS, "for the servers, which a first start may install"),
        _UNSANDBOXED,
    ),
    json=False,
    needs=False,
    changing="",
    run=later("daemon.cli.up", "up"),
)

IMPORT = CommandLine(
    "import",
    "Find the MCP servers of the clients on this machine, without duplicates. Clients' files are not"
    " changed. With --write, new servers are added to mcpd's configuration, and their secrets to the file"
    " 'env' next to it, which only you can read.",
    examples=(
        "mcpd import",
        "mcpd import --from claude-code cursor --dry-run",
        "mcpd import --write",
        "mcpd import --json | jq '.servers[].name'",
    ),
    exits={
        0: "servers were found; with --write, mcpd has them",
        1: "no servers, a file that cannot be read or written, or you declined",
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
            help="only these clients: claude-code, cursor, codex, ... (docs/setup.md lists all)",
        ),
        flag("--write", "add new servers to mcpd's configuration"),
        _UNSANDBOXED,
        flag(
            "--migrate-env",
            "import nothing; instead give each server of the configuration its own variables, SERVER__NAME,"
            " in place of shared ones; shows the diff, and asks",
        ),
        flag("--dry-run", "show the diff of --write, and change nothing"),
        flag("--yes", "with --write: do not ask"),
    ),
    seconds=RELOAD_SECONDS,
    needs=False,
    changing="",
    run=later("daemon.cli.import_servers", "import_servers"),
)

INSTALL = CommandLine(
    "install",
    "Put `mcpd connect` into a client's configuration. The client's servers that mcpd also has are removed"
    " there, so that they do not run twice; its other servers stay, and are named. Comments and order stay."
    " The original is kept for `mcpd uninstall`. Servers with rules in the client keep their names, so that"
    " the rules hold.",
    examples=(
        "mcpd install claude-code codex",
        "mcpd install --all --dry-run",
        "mcpd install cursor --scope project --profile reader",
        "mcpd install claude-code --one-to-one",
    ),
    exits={
        0: "mcpd is in all of these clients",
        1: "a client could not be changed; the others were",
        EX_CONFIG: "mcpd's configuration is faulty: nothing was changed",
    },
    arguments=(
        _clients,
        argument(
            "--scope",
            choices=("user", "project"),
            default="user",
            help="the user's file, or the project's in the working directory, which others may share"
            " (default: user)",
        ),
        argument("--profile", metavar="P", help="the client's profile"),
        argument("--surface", metavar="S", help="the client's surface"),
        flag(
            "--one-to-one",
            "keep each server under its own name, through mcpd (`mcpd connect --server NAME`), so that the"
            " client's rules about its tools hold",
        ),
        flag("--keep", "keep the client's servers, also those that mcpd has"),
        flag("--yes", "with --all: ask nothing"),
    ),
    json=False,
    seconds=None,
    changing=": `mcpd check` says more",
    run=later("daemon.cli.install", "install"),
)

UNINSTALL = CommandLine(
    "uninstall",
    "Take mcpd out of a client's configuration. An unedited file is restored byte for byte, or removed if"
    " mcpd made it. In an edited file only mcpd's entry is replaced by the servers that it stood for.",
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
    "Add a server to the configuration; comments, order and layout stay. The result is checked before it is"
    " written. A running daemon reloads, and the server's tools are shown once it is up. A server that"
    " cannot come up is removed again, unless it waits for a login, a variable or a service, or you pass"
    " --keep. Packages without a version are pinned to the newest; credentials go to the file 'env' next to"
    " the configuration, which only you can read.",
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
        1: "not added (name taken, file not writable), or the server does not come up",
        EX_CONFIG: "the configuration is faulty, or would be: nothing was changed",
    },
    arguments=(
        argument(
            "words", metavar="NAME", nargs="*", help="the server's name, then its command, URL or package"
        ),
        argument(
            "--env", metavar="K=V", action="append", default=[], help="a variable for the server (repeatable)"
        ),
        argument(
            "--header", metavar="'K: V'", action="append", default=[], help="a header for the URL (repeatable)"
        ),
        argument("--type", metavar="T", help="the transport, where the URL does not show it: sse"),
        argument("--share", metavar="S", help="the clients that share an instance: all, workspace or session"),
        argument(
            "--trust",
            choices=("all", "changes", "none"),
            help="what models are offered unapproved: all, all but later changes, none (default: the file's)",
        ),
        argument("--description", metavar="D", help="the server's purpose in a sentence, for models"),
        flag("--replace", "replace the server of that name"),
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
    "Remove a server from the configuration, with its comments; all else stays. The result is checked before"
    " it is written: if categories or profiles still name the server, they are listed, and nothing changes."
    " A running daemon stops the server.",
    examples=("mcpd remove time", "mcpd remove time --dry-run"),
    exits={
        0: "removed",
        1: "no such server, the file is not writable, or the daemon refused",
        EX_CONFIG: "the configuration is faulty, or would be: nothing was changed",
    },
    arguments=(argument("server", metavar="SERVER", help="the server's name"), NO_RELOAD, DIFF, CONFIG),
    json=False,
    seconds=RELOAD_SECONDS,
    needs=False,
    changing="; if these places name the server, remove them first",
    run=later("daemon.cli.add", "remove"),
)

LOGIN = CommandLine(
    "login",
    "Log in to a server that wants OAuth. Prints the link to the login page, and opens it where there is a"
    " screen. A browser on another machine ends at an address that it cannot reach: paste that here. Only"
    " the daemon's user can read the login, which renews itself until `mcpd logout`. A second `mcpd login`"
    " joins the first, or replaces it if its options differ.",
    examples=(
        "mcpd login github",
        "mcpd login github --no-browser",
        "mcpd login github --device      # type a code on your phone, where the server offers it",
        "mcpd login github --scope 'repo read:user'",
    ),
    exits={
        0: "logged in, and the server is up",
        1: "not logged in, or the server is not up: see stderr",
        130: "ended with Ctrl-C",
    },
    arguments=(
        argument("server", metavar="SERVER", help="the server's name, as in `mcpd status`"),
        flag("--no-browser", "only print the link"),
        flag("--device", "log in with a code on another device, where the server offers it"),
        argument("--scope", metavar="S", help="request these scopes instead of the server's"),
    ),
    seconds=LOGIN_SECONDS,
    run=later("daemon.cli.login", "log_in"),
)

# --- the daemon's process ---------------------------------------------------------------------------------


def _service_actions(made: argparse.ArgumentParser) -> None:
    actions = made.add_subparsers(dest="action", metavar="install|uninstall|status", required=True)
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
    add_json(
        actions.add_parser(
            "status", help="show whether the service is installed, enabled, active and up to date"
        )
    )


SERVICE = CommandLine(
    "service",
    "Run the daemon as a service of your systemd, which starts it at boot or for the first client, and again"
    " after a crash; the journal has its log. `install` writes the units of this version to"
    " ~/.config/systemd/user, with the PATH of your login shell.",
    examples=(
        "mcpd service install",
        "mcpd service install --yes --no-linger",
        "mcpd service install --dry-run",
        "mcpd service status --json",
        "mcpd service uninstall",
    ),
    exits={
        0: "done; status: installed, enabled and active",
        1: "not done; status: not installed, enabled and active",
    },
    arguments=(_service_actions,),
    json=False,
    seconds=None,
    changing="",
    run=later("daemon.cli.service", "service_action"),
)

START = CommandLine(
    "start",
    "Start the daemon in the background, unless one runs, and wait until it serves. Uses systemd if the user"
    " units are installed (`mcpd service install`) and no option names a file; else the daemon detaches from"
    " the terminal, with its log in daemon.log in the state directory. `mcpd connect` does the same, unless"
    ' the configuration says "autostart": false.',
    examples=(
        "mcpd start",
        "mcpd start --config ./mcpd.json --socket ./mcpd.sock",
        "mcpd start --json | jq .pid",
    ),
    exits={
        0: "a daemon runs",
        1: "no daemon runs, or it does not serve in time",
        EX_CONFIG: "the configuration is faulty",
    },
    arguments=(
        argument("--config", metavar="F", help="the configuration (default: as `mcpd check`)"),
        argument("--state-dir", metavar="D", help="the directory for state and log"),
        _wait("--timeout", SERVE_SECONDS, "until the daemon serves"),
        argument("--window", choices=("new", "known"), default="", help=argparse.SUPPRESS),
    ),
    seconds=None,
    run=later("daemon.cli.start", "start"),
)

STOP = CommandLine(
    "stop",
    "Stop the daemon, or its systemd units, so that no client starts it. Answers calls in flight, and ends"
    " servers. Clients that are open now do not start it again; `mcpd start` does, and so does a newly"
    ' opened client, unless the configuration says "autostart": false.',
    examples=("mcpd stop", "mcpd stop && mcpd start"),
    exits={0: "no daemon runs", 1: "the daemon still runs"},
    arguments=(
        argument("servers", nargs="*", help=argparse.SUPPRESS),
        argument("--control", metavar="P", help="the daemon's socket for commands (default: $MCPD_CONTROL)"),
        _wait("--timeout", STOP_SECONDS, "for the daemon's end"),
    ),
    json=False,
    seconds=None,
    run=later("daemon.cli.start", "stop"),
)

# --- looking ----------------------------------------------------------------------------------------------

CHECK = CommandLine(
    "check",
    "Validate a configuration without starting anything: all faults at once, each with its place in the"
    " file. Notes (keys of other clients that mcpd understands) and warnings (a command that is not on PATH,"
    " a package without a version, a server without a description) do not fail it.",
    examples=("mcpd check", "mcpd check config/demo.json", "mcpd check mcpd.json --json | jq .faults"),
    exits={0: "the configuration can be used", 78: "the configuration has faults"},
    arguments=(
        argument(
            "file",
            metavar="F",
            type=Path,
            nargs="?",
            help="the configuration (default: $MCPD_CONFIG, else $XDG_CONFIG_HOME/mcpd/mcpd.json, else"
            " /etc/mcpd/mcpd.json)",
        ),
        path_option("--config", "F", "the same, as for other commands"),
    ),
    seconds=None,
    reaches=False,
    run=later("daemon.cli.check", "check"),
)

DOCTOR = CommandLine(
    "doctor",
    "Check the configuration, the sockets, the state, systemd's units, the limits, each server, and"
    " leftovers of killed daemons; report each fault with its reason and remedy. Works with and without a"
    " running daemon, starts nothing, contacts nobody outside this machine, prints no secret, and changes"
    " nothing without --end-leftovers.",
    examples=(
        "mcpd doctor",
        "mcpd doctor --config mcpd.json",
        "mcpd doctor --end-leftovers",
        "mcpd doctor --json | jq '.findings[] | select(.level != \"ok\")'",
    ),
    exits={0: "no fault, perhaps warnings", 1: "a fault"},
    arguments=(
        path_option(
            "--config", "F", "the configuration (default: the running daemon's, else that of `mcpd run`)"
        ),
        path_option(
            "--state-dir", "D", "the state directory (default: the running daemon's, else that of `mcpd run`)"
        ),
        flag("--end-leftovers", "end leftover processes of a killed daemon: SIGTERM, then SIGKILL after 2 s"),
    ),
    seconds=None,
    run=later("daemon.cli.doctor", "doctor"),
)
