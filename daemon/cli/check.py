"""`mcpd check`: all faults of a configuration, and warnings. Starts nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from daemon.checks.advice import warnings
from daemon.cli.command import UsageError
from daemon.cli.table import EX_CONFIG
from daemon.config.parse import load_with_notes
from daemon.errors import ConfigError, Fault
from daemon.host.paths import config_file
from daemon.kit.wording import counted
from daemon.safety.escape import document, visible
from daemon.surfaces.table import SURFACES

if TYPE_CHECKING:
    import argparse


def check(options: argparse.Namespace) -> int:
    """Check a configuration and print the findings."""
    if options.config and options.file:
        raise UsageError("name one configuration, F or --config F")
    path = options.config or options.file or config_file(os.environ)
    try:
        checked = load_with_notes(path, os.environ, SURFACES)
    except ConfigError as error:
        if options.json:
            print(document({"ok": False, "source": str(path), **_data(error.faults)}))
        else:
            _say("", [f"{path}: {counted(len(error.faults), 'fault')}"])
            _say("  ", error.faults)
        return EX_CONFIG
    unwise = warnings(checked, path, os.environ)
    servers, categories = len(checked.config.mcp_servers), len(checked.config.categories)
    if options.json:
        counts = {"servers": servers, "categories": categories}
        print(document({"ok": True, "source": str(path), **counts, **_data((), unwise, checked.notes)}))
        return 0
    _say("note: ", checked.notes)
    _say("warning: ", unwise)
    grouped = counted(categories, "category", "categories") if categories else "each a category"
    print(f"OK: {counted(servers, 'server')}, {grouped}")
    return 0


def _say(prefix: str, lines: Sequence[object]) -> None:
    for line in lines:
        print(f"{prefix}{visible(str(line))}", file=sys.stderr)


def _data(*found: Sequence[Fault]) -> dict[str, list[dict[str, object]]]:
    lists = dict(zip(("faults", "warnings", "notes"), (*found, (), ()), strict=False))
    members = ("path", "line", "column", "message")
    return {
        name: [{member: getattr(each, member) for member in members} for each in faults]
        for name, faults in lists.items()
    }
