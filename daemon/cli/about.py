"""Commands about mcpd as a whole: versions, configuration schema, metrics, console, tokens."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon import version
from daemon.cli.command import UsageError, browse, check_flags, has_display, show
from daemon.cli.control import CommandFailed, DaemonUnreachable, ask_with, note, say
from daemon.host.paths import config_file
from daemon.kit.later import later
from daemon.kit.wording import counted
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse

    from daemon.operators.change_reports import TokenReport, TokensReport


_ACTIONS_OF = {
    **dict.fromkeys(("profile", "console", "workspace"), ("new",)),
    "default": ("confirm", "revoke"),
    "json": ("list",),
}
"""The actions of `mcpd token` that take each option."""

UNNAMED = "(no name)"

_files = later("daemon.documents.files")


def _check_usage(options: argparse.Namespace) -> None:
    action = options.action
    if action == "new" and options.name is None:
        raise UsageError("name the new token: mcpd token new NAME")
    if action in {"confirm", "revoke"} and (options.name is None) is not options.default:
        raise UsageError(f"name the token to {action}, or write --default for the one without a name")
    if options.name is not None and action in {"show", "list"}:
        raise UsageError(f"`mcpd token {action}` takes no name")
    check_flags(options, _ACTIONS_OF)


def _tell_tokens(options: argparse.Namespace, answer: TokensReport) -> None:
    if options.action == "list":
        none = ["There are none: `mcpd token` makes one."]
        data = {"tokens": answer["tokens"], "problem": answer["problem"]}
        show(options, data, lambda _data: [*map(_token_in_words, answer["tokens"])] or none)
        return
    if options.action == "new":
        note("give the token to its client: mcpd does not show it again")
    if answer["value"] is not None:
        print(answer["value"])
    elif options.action == "confirm":
        say(f"{options.name or UNNAMED}: lets its clients in again")
    else:
        say(f"{options.name}: revoked" if options.name else "revoked; `mcpd token` shows the new one")


def _token_in_words(token: TokenReport) -> str:
    profiles = "all profiles" if token["profiles"] is None else ", ".join(token["profiles"])
    origin = "configured" if token["since"] is None else f"made {_day(token['since'])}"
    role = f"; the console, to {token['console']}" if token.get("console") else ""
    workspaces = token.get("workspaces") or ()
    places = f"; workspaces {', '.join(workspaces)}" if workspaces else ""
    seen = f", last used {_day(token['lastUsed'])}" if token["lastUsed"] else ""
    name = token["name"]
    wanted = "" if token["counts"] else f"; NOT VALID until `mcpd token confirm {name or '--default'}`"
    return f"{name or UNNAMED}: {profiles}{role}{places}; {origin}{seen}{wanted}"


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def tokens(options: argparse.Namespace) -> int:
    """Show, make, list, confirm or revoke tokens."""
    options.action = options.action or "show"
    _check_usage(options)
    params = {"action": options.action, "name": options.name, "profiles": options.profile}
    params |= {"console": options.console, "workspaces": options.workspace}
    given = {key: each for key, each in params.items() if each not in (None, [])}
    answer: TokensReport = ask_with(options, "tokens", given)
    _tell_tokens(options, answer)
    if answer["problem"]:
        raise CommandFailed(answer["problem"])
    return 0


# --- version ----------------------------------------------------------------------------------------------

LIBRARIES = ("trio", "httpx2", "httptools", "msgspec", "google-re2", "jsonschema-rs")
"""Libraries whose versions are reported: the event loop, and the parsers of foreign input."""

EXTRAS = {
    "semantic": "wordllama",
    "summaries": "openai",
    "postgres": "psycopg",
    "secret-service": "secretstorage",
    "otel": "opentelemetry-sdk",
    "code": "pydantic-monty",
}
"""The optional parts of mcpd, each with its package."""

CLASH = "both have a package `daemon`, and one of them cannot work; install mcpd in an environment of its own"

WIDTH = 15


def show_versions(options: argparse.Namespace) -> int:
    """Print the versions of mcpd and of the software that it uses."""
    show(options, versions(), versions_in_words)
    return 0


def versions() -> dict[str, object]:
    """The versions of mcpd and of the software that it uses, by name; None for missing software."""
    import sqlite3  # noqa: PLC0415 - not for `--help`

    from daemon.protocol import HANDSHAKE_VERSIONS, MODERN_VERSION  # noqa: PLC0415 - likewise

    return {
        "mcpd": version(),
        "installed": str(Path(__file__).parents[2]),
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "mcp": [*HANDSHAKE_VERSIONS, MODERN_VERSION],
        "libraries": {name: installed(name) for name in LIBRARIES},
        "extras": {name: installed(package) for name, package in EXTRAS.items()},
        "sqlite": sqlite3.sqlite_version,
        "systemd": systemd(),
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "system": _system(),
        "clash": installed("python-daemon"),
    }


def installed(distribution: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def systemd() -> str | None:
    """The version of systemd; None if there is none, or it does not answer."""
    from daemon.setup.running.systemctl import systemctl  # noqa: PLC0415 - as above

    manager = systemctl(os.environ)
    return None if manager is None else manager.version()


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return platform.system()


def versions_in_words(found: dict[str, Any]) -> list[str]:
    """One line for each version, with the names in a column."""
    extras = [f"{name} ({version})" for name, version in found["extras"].items() if version]
    rows = {
        "mcpd": f"{found['mcpd']}, in {found['installed']}",
        "python": f"{found['python']}, {found['interpreter']}",
        "mcp": ", ".join(found["mcp"]),
        **{name: version or "not installed" for name, version in found["libraries"].items()},
        "extras": ", ".join(extras) or "none",
        "sqlite": found["sqlite"],
        "systemd": found["systemd"] or "none",
        "kernel": f"{found['kernel']}, {found['machine']}",
        "system": found["system"],
    }
    if found["clash"]:
        rows["clash"] = f"python-daemon {found['clash']} is installed here, too: {CLASH}"
    return [f"{name:<{WIDTH}}{value}" for name, value in rows.items()]


# --- schema -----------------------------------------------------------------------------------------------


def schema(_options: argparse.Namespace) -> int:
    """Print the JSON Schema of the configuration."""
    from daemon.config.schema import render  # noqa: PLC0415 - reads the model's sources
    from daemon.surfaces.table import SURFACES  # noqa: PLC0415 - likewise

    sys.stdout.write(render(list(SURFACES)))
    return 0


# --- metrics ----------------------------------------------------------------------------------------------


def metrics(options: argparse.Namespace) -> int:
    """Print all metrics, in Prometheus' text format."""
    print(visible(ask_with(options, "metrics", {})["text"], lines=True), end="")
    return 0


# --- ui ---------------------------------------------------------------------------------------------------


def ui(options: argparse.Namespace) -> int:
    """Open the console in a browser, or end its sessions."""
    if options.end and (options.print or options.read_only):
        raise UsageError("--end takes no other option")
    params = {"readOnly": options.read_only, "end": options.end}
    try:
        answer = ask_with(options, "ui", params)
    except DaemonUnreachable:
        if options.end or options.socket or options.control or not _begun():
            raise
        answer = ask_with(options, "ui", params)
    if options.end:
        print(f"ended {counted(answer['ended'], 'session')} of the console")
    elif options.print or not _opened(answer["link"]):
        note("the link is valid for a minute, for one browser:")
        print(answer["link"])
    return 0


def _begun() -> bool:
    """Start a daemon without servers if there is no configuration yet. Returns whether a daemon was started."""
    found = _files.look(config_file(os.environ))
    if found.content is not None:
        return False
    _files.write_all([_files.Edit(found=found, text='{"mcpServers": {}}\n', private=True)])
    note(f"made {found.path}, a configuration without servers: the console fills it")
    return not subprocess.run([sys.executable, "-P", "-m", "daemon", "start"], check=False).returncode


def _opened(link: str) -> bool:
    if not has_display(os.environ):
        note("there is no display here: open this link in a browser on this machine")
        return False
    if not browse(link):
        note("no browser was found: open this link in one on this machine")
        return False
    print("opened in the browser")
    return True
