"""What commands share that change a key of the configuration: by the daemon, or in the file itself.

The daemon writes its own configuration (`operators.setting`). Where it may not, or where none runs, `--config`
has the command write the file as the user who types it, and tells the daemon to read it again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.cli import EX_CONFIG
from daemon.cli.control import RemoteFault, guarded, print_answer
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

PATIENCE = 60.0
"""Seconds to wait for the daemon: it reads the configuration again, and another reload may be under way."""


def add_config(made: argparse.ArgumentParser) -> None:
    """Add `--config`, which writes the file without the daemon."""
    made.add_argument(
        "--config",
        metavar="F",
        type=Path,
        help="write this configuration as you, instead of having the daemon write its own",
    )


def write(options: argparse.Namespace, trail: tuple[str, ...], value: object) -> int:
    """Change a key in the file of `--config`, and have the daemon, if one runs, read it again. Returns 0.

    Raises:
        ConfigError: the configuration is faulty, or would be.
        DocumentError: it cannot be read or written.
    """
    from daemon.cli.taking_effect import reloaded  # noqa: PLC0415 - as in the other commands
    from daemon.setup.setting import Setting  # noqa: PLC0415
    from daemon.setup.settings import edited  # noqa: PLC0415

    path = options.config.absolute()
    edit = edited(path, [Setting(trail=trail, value=value)], os.environ)
    edit.write()
    effect = reloaded(options, path)
    then = effect.problem or "the daemon has read it again"
    word = "written at" if edit.is_new else "stands already at"
    (place,) = edit.places
    print(visible(f"{word} {place.key} in {place.file}; {then}"))
    return 0


def asked(
    options: argparse.Namespace,
    method: str,
    params: dict[str, Any],
    in_words: Callable[[dict[str, Any]], str],
    status: Callable[[dict[str, Any]], int] = lambda _answer: 0,
) -> int:
    """Have the daemon do it, and print its answer; 78 where the configuration is faulty, else as `guarded`."""

    def act() -> int:
        try:
            return status(print_answer(options, method, params, in_words))
        except RemoteFault as fault:
            if not (isinstance(fault.data, dict) and "faults" in fault.data):
                raise
            print(f"mcpd: {visible(str(fault), lines=True)}\nmcpd: nothing was changed", file=sys.stderr)
            return EX_CONFIG

    return guarded(act)


def in_words(changed: dict[str, Any]) -> str:
    """What the daemon has written, in one line."""
    word = "stood already at" if changed["already"] else "written at"
    return f"{word} {changed['place']} in {changed['file']}"
