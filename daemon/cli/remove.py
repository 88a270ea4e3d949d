"""`mcpd remove`: takes a server out of the configuration, and the daemon stops it."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli import EX_CONFIG
from daemon.cli.command import CommandLine, argument
from daemon.cli.control import EX_FAULT
from daemon.cli.options import add_control
from daemon.cli.taking_effect import reloaded
from daemon.host.paths import config_file
from daemon.kit.wording import suggestion
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse

    from daemon.setup.drafts import Present

PATIENCE = 60.0
"""Seconds to wait for the daemon: the server is stopped first (as `mcpd reload`)."""


def _run(options: argparse.Namespace) -> int:
    from daemon.setup.drafts import changed, read_present  # noqa: PLC0415 - not for `--help`

    name, path = options.server, (options.config or config_file(os.environ)).absolute()
    present = read_present(path)
    if name not in present.servers:
        near = suggestion(name, present.servers)
        print(visible(f"mcpd: there is no server '{name}' in {path}{near}"), file=sys.stderr)
        return EX_FAULT
    draft = changed(present, lambda text: text.remove(present.places[name]), {}, os.environ)
    if options.dry_run:
        print(visible(draft.diff(), lines=True), end="")
        return 0
    draft.write()
    print(visible(f"removed {name} from {path}"))
    if spare := _only_of(name, present, draft.config):
        print(
            visible(f"mcpd: {present.env.path} still holds what only this server used: {', '.join(spare)}"),
            file=sys.stderr,
        )
    if options.no_reload:
        return 0
    effect = reloaded(options, path)
    if effect.asked and effect.problem:
        print(visible(f"mcpd: {effect.problem}"), file=sys.stderr)
        return EX_FAULT
    print(f"the daemon has stopped {name}" if effect.asked else "no daemon runs")
    return 0


def _only_of(name: str, present: Present, left: str) -> list[str]:
    """Variables of the file of secrets that only this server referred to."""
    from daemon.setup.moved_secrets import references  # noqa: PLC0415 - as above

    used = [each for each in references(present.servers[name]) if each in present.variables]
    return [each for each in used if f"${{{each}" not in left]


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
    run=_run,
    arguments=(
        argument("server", metavar="SERVER", help="its name"),
        argument("--no-reload", action="store_true", help="only write it: leave the daemon alone"),
        argument("--dry-run", action="store_true", help="show what would change, as a diff"),
        argument("--config", metavar="F", type=Path, help="the configuration (default: as `mcpd check`)"),
        partial(add_control, seconds=PATIENCE),
    ),
    json=False,
    seconds=None,
    changing="; if these places name the server, remove them first",
)
