"""`mcpd version`: the versions of what matters, as a report of a fault needs them."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon import __version__
from daemon.cli.options import add_json, parser
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse

LIBRARIES = ("trio", "httpx2", "h11", "msgspec", "google-re2", "jsonschema-rs")
"""Whose versions are told: the event loop, and what reads what others send."""

EXTRAS = {
    "semantic": "wordllama",
    "summaries": "openai",
    "postgres": "psycopg",
    "secret-service": "secretstorage",
}
"""The optional parts, each with the package that it stands on."""

CLASH = "both have a package `daemon`, and one of them cannot work; install mcpd in an environment of its own"
"""What is wrong where python-daemon is installed beside mcpd."""

WIDTH = 15
"""Characters of the column of names."""


def main(argv: list[str]) -> int:
    """Print the versions. Returns 0; 2: usage."""
    options = _parser().parse_args(argv)
    told = versions()
    print(document(told) if options.json else in_words(told))
    return 0


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "version",
        "Print the version of this mcpd, where it is installed, and the versions of what it stands on. Asks no"
        " daemon, which may be another: `mcpd status` shows that one's.",
        examples=("mcpd version", "mcpd version --json"),
        exits={0: "printed"},
        reaches=False,
    )
    add_json(made)
    return made


def versions() -> dict[str, object]:
    """What is installed here, by name; None is what is not there."""
    import sqlite3  # noqa: PLC0415 - not for `--help`

    from daemon.protocol import HANDSHAKE_VERSIONS, MODERN_VERSION  # noqa: PLC0415 - likewise

    return {
        "mcpd": __version__,
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
    """The version of an installed package; None if it is not there."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def systemd() -> str | None:
    """The version of systemd; None where there is none, or it does not tell."""
    from daemon.setup.running.systemctl import systemctl  # noqa: PLC0415 - as above

    manager = systemctl(os.environ)
    return None if manager is None else manager.version()


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return platform.system()


def in_words(told: dict[str, Any]) -> str:
    """A line for each, with the names in a column."""
    extras = [f"{name} ({version})" for name, version in told["extras"].items() if version]
    lines = {
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
        lines["clash"] = f"python-daemon {told['clash']} is installed here, too: {CLASH}"
    return "\n".join(visible(f"{name:<{WIDTH}}{value}") for name, value in lines.items())
