"""`mcpd check`: everything that is wrong with a configuration, and what is unwise in it. Starts nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli import EX_CONFIG
from daemon.cli.command import CommandLine, UsageError, argument
from daemon.kit.wording import counted
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from daemon.config.model import Config
    from daemon.errors import Fault


def _show_faults(path: Path, faults: Sequence[Fault], *, as_json: bool) -> None:
    if as_json:
        said = {"faults": _plain(faults), "warnings": [], "notes": []}
        print(document({"ok": False, "source": str(path), **said}))
        return
    print(visible(f"{path}: {counted(len(faults), 'fault')}"), file=sys.stderr)
    for fault in faults:
        print(f"  {visible(str(fault))}", file=sys.stderr)


def _show(
    path: Path, config: Config, warnings: Sequence[Fault], notes: Sequence[Fault], *, as_json: bool
) -> None:
    servers, categories = len(config.mcp_servers), len(config.categories)
    if as_json:
        counts = {"servers": servers, "categories": categories}
        said = {"faults": [], "warnings": _plain(warnings), "notes": _plain(notes)}
        print(document({"ok": True, "source": str(path), **counts, **said}))
        return
    for note in notes:
        print(f"note: {visible(str(note))}", file=sys.stderr)
    for warning in warnings:
        print(f"warning: {visible(str(warning))}", file=sys.stderr)
    grouped = counted(categories, "category", "categories") if categories else "each a category"
    print(f"OK: {counted(servers, 'server')}, {grouped}")


def _plain(faults: Sequence[Fault]) -> list[dict[str, object]]:
    return [
        {"path": fault.path, "line": fault.line, "column": fault.column, "message": fault.message}
        for fault in faults
    ]


def _run(options: argparse.Namespace) -> int:
    if options.config and options.file:
        raise UsageError("name one configuration, F or --config F")
    # Here, so that `--help` does not pay 70 ms for attrs and cattrs.
    from daemon.checks.advice import warnings  # noqa: PLC0415
    from daemon.config.parse import load_with_notes  # noqa: PLC0415
    from daemon.errors import ConfigError  # noqa: PLC0415
    from daemon.host.paths import config_file  # noqa: PLC0415
    from daemon.surfaces.table import SURFACES  # noqa: PLC0415

    path = options.config or options.file or config_file(os.environ)
    try:
        checked = load_with_notes(path, os.environ, SURFACES)
    except ConfigError as error:
        _show_faults(path, error.faults, as_json=options.json)
        return EX_CONFIG
    _show(path, checked.config, warnings(checked, path, os.environ), checked.notes, as_json=options.json)
    return 0


CHECK = CommandLine(
    "check",
    "Validate a configuration without starting anything: all faults at once, each with its place in the"
    " file. Notes (what other clients write and is understood) and warnings (a command that is not on PATH,"
    " a package without a version, a server without a description) do not fail it.",
    examples=("mcpd check", "mcpd check config/demo.json", "mcpd check mcpd.json --json | jq .faults"),
    exits={0: "it can be used", 78: "it has faults"},
    run=_run,
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
)
