"""Commands about mcpd as a whole: versions, configuration schema, metrics, console."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon import version
from daemon.cli.command import CommandLine, UsageError, browse, flag, has_screen
from daemon.cli.control import ask_with, note, say
from daemon.kit.wording import counted
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse

# --- version ----------------------------------------------------------------------------------------------

LIBRARIES = ("trio", "httpx2", "httptools", "msgspec", "google-re2", "jsonschema-rs")
"""Libraries in the report: the event loop, and the parsers of foreign input."""

EXTRAS = {
    "semantic": "wordllama",
    "summaries": "openai",
    "postgres": "psycopg",
    "secret-service": "secretstorage",
}
"""The optional parts, each with its package."""

CLASH = "both have a package `daemon`, and one of them cannot work; install mcpd in an environment of its own"
"""Advice where python-daemon is installed too."""

WIDTH = 15


def _version(options: argparse.Namespace) -> int:
    told = versions()
    if options.json:
        print(document(told))
    else:
        say(*versions_in_words(told))
    return 0


def versions() -> dict[str, object]:
    """Installed versions by name; None: not installed."""
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
    """The version of an installed package."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def systemd() -> str | None:
    """The version of systemd; None without systemd, or without an answer."""
    from daemon.setup.running.systemctl import systemctl  # noqa: PLC0415 - as above

    manager = systemctl(os.environ)
    return None if manager is None else manager.version()


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return platform.system()


def versions_in_words(told: dict[str, Any]) -> list[str]:
    """A line for each version, names in a column."""
    extras = [f"{name} ({version})" for name, version in told["extras"].items() if version]
    rows = {
        "mcpd": f"{told['mcpd']}, in {told['installed']}",
        "python": f"{told['python']}, {told['interpreter']}",
        "mcp": ", ".join(told["mcp"]),
        **{name: version or "not installed" for name, version in told["libraries"].items()},
        "extras": ", ".join(extras) or "none",
        "sqlite": told["sqlite"],
        "systemd": told["systemd"] or "none",
        "kernel": f"{told['kernel']}, {told['machine']}",
        "system": told["system"],
    }
    if told["clash"]:
        rows["clash"] = f"python-daemon {told['clash']} is installed here, too: {CLASH}"
    return [f"{name:<{WIDTH}}{value}" for name, value in rows.items()]


VERSION = CommandLine(
    "version",
    "Print the version of this mcpd, its directory, and the versions of its libraries. A running daemon may"
    " be another version: `mcpd status` shows that.",
    examples=("mcpd version", "mcpd version --json"),
    exits={0: "printed"},
    seconds=None,
    reaches=False,
    run=_version,
)

# --- schema -----------------------------------------------------------------------------------------------


def _schema(_options: argparse.Namespace) -> int:
    # Reads the model's sources, which `--help` saves.
    from daemon.config.schema import render  # noqa: PLC0415
    from daemon.surfaces.table import SURFACES  # noqa: PLC0415

    sys.stdout.write(render(list(SURFACES)))
    return 0


SCHEMA = CommandLine(
    "schema",
    'Print the JSON Schema of the configuration. With "$schema": "./mcpd.schema.json" in the configuration,'
    " editors complete and check it.",
    examples=("mcpd schema > ~/.config/mcpd/mcpd.schema.json",),
    exits={0: "printed"},
    json=False,
    seconds=None,
    reaches=False,
    run=_schema,
)

# --- metrics ----------------------------------------------------------------------------------------------


def _metrics(options: argparse.Namespace) -> int:
    print(visible(ask_with(options, "metrics", {})["text"], lines=True), end="")
    return 0


METRICS = CommandLine(
    "metrics",
    "Print the daemon's metrics in Prometheus' text format (docs/metrics.md). The configuration must enable"
    " metrics.",
    examples=("mcpd metrics", "mcpd metrics | grep mcpd_server_state"),
    exits={0: "printed", 1: "metrics are off"},
    json=False,
    run=_metrics,
)

# --- ui ---------------------------------------------------------------------------------------------------


def _ui(options: argparse.Namespace) -> int:
    if options.end and (options.print or options.read_only):
        raise UsageError("--end goes alone")
    answer = ask_with(options, "ui", {"readOnly": options.read_only, "end": options.end})
    if options.end:
        print(f"ended {counted(answer['ended'], 'session')} of the console")
    elif options.print or not _opened(answer["link"]):
        note("the link is valid for a minute, for one browser:")
        print(answer["link"])
    return 0


def _opened(link: str) -> bool:
    if not has_screen(os.environ):
        note("there is no display here: open this link in a browser on this machine")
        return False
    if not browse(link):
        note("no browser was found: open this link in one on this machine")
        return False
    print("opened in the browser")
    return True


UI = CommandLine(
    "ui",
    "Open the console in a browser. A link admits one browser, once, within a minute. The session ends after"
    " twelve hours without use, and with the daemon. Without an HTTP listener the daemon opens a port on"
    " 127.0.0.1.",
    examples=("mcpd ui", "mcpd ui --print", "mcpd ui --read-only --print", "mcpd ui --end"),
    exits={0: "done", 1: "the console is switched off"},
    arguments=(
        flag("--print", "print the link on the last line, and open no browser"),
        flag("--read-only", "make a link that permits no changes"),
        flag("--end", "end every browser's session, and open none"),
    ),
    json=False,
    run=_ui,
)
