"""`mcpd doctor`: everything that may keep mcpd or a server from working, and what to do about it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli.options import add_json, parser
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    Told = Mapping[str, str]

EX_FAULT = 1
"""At least one fault was found."""


def main(argv: list[str]) -> int:
    """Look at everything and print the findings.

    Returns:
        0: there is no fault, perhaps warnings; 1: there is one; 2: usage.
    """
    options = make_parser().parse_args(argv)
    # Here, so that `--help` does not pay for attrs and cattrs.
    from daemon.checks.examination import examine, told  # noqa: PLC0415
    from daemon.checks.findings import Level  # noqa: PLC0415
    from daemon.cli.doctor_scene import gather  # noqa: PLC0415

    try:
        scene = gather(
            options.config,
            os.environ,
            socket=options.socket and Path(options.socket),
            state=options.state_dir,
            end_leftovers=options.end_leftovers,
        )
    except OSError as error:
        why = f"{error.filename or 'the system'}: {error.strerror or error}"
        print(
            f"mcpd: this user cannot even look around ({visible(why)}). Run it as the daemon's.",
            file=sys.stderr,
        )
        return EX_FAULT
    findings = list(told(examine(scene), scene))
    counts = {level.value: sum(each["level"] == level for each in findings) for level in Level}
    if options.json:
        print(document({"ok": not counts["fault"], "counts": counts, "findings": findings}))
    else:
        _show(findings, counts)
    return EX_FAULT if counts["fault"] else 0


def make_parser() -> argparse.ArgumentParser:
    """Reads its command line."""
    made = parser(
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
        asks=False,
    )
    made.add_argument(
        "--config",
        metavar="F",
        type=Path,
        help="the configuration (default: the running daemon's, else the one that `mcpd run` would use)",
    )
    made.add_argument(
        "--state-dir",
        metavar="D",
        type=Path,
        help="where state is kept (default: where the running daemon has it, else where `mcpd run` would)",
    )
    made.add_argument(
        "--end-leftovers",
        action="store_true",
        help="end the processes that a killed daemon left behind: SIGTERM, then SIGKILL after 2 s",
    )
    add_json(made)
    return made


def _show(told: Sequence[Told], counts: Mapping[str, int]) -> None:
    from daemon.cli.terminal import Screen  # noqa: PLC0415
    from daemon.cli.views import render_findings  # noqa: PLC0415 - imports rich, which `--json` does without

    print(render_findings(told, counts, Screen.of(sys.stdout, os.environ)))
