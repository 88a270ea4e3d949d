"""`mcpd doctor`: everything that may keep mcpd or a server from working, and what to do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.cli.options import add_json, parser
from daemon.escape import document, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from daemon.cli.checkup.scene import Finding, Scene

    Report = Mapping[str, Sequence[Finding]]

EX_FAULT = 1
"""At least one fault was found."""


def main(argv: list[str]) -> int:
    """Look at everything.

    Returns:
        0: there is no fault, perhaps warnings; 1: there is; 2: usage.
    """
    options = _parser().parse_args(argv)
    # Here, so that `--help` does not pay for attrs and cattrs.
    from daemon.cli.checkup.gathering import gather  # noqa: PLC0415
    from daemon.cli.checkup.scene import Level, counted  # noqa: PLC0415

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
    report = _clean(examine(scene), scene)
    found = counted(finding for findings in report.values() for finding in findings)
    counts = {level.value: found[level] for level in Level}
    if options.json:
        print(document({"ok": not found[Level.FAULT], "counts": counts, "findings": _plain(report)}))
    else:
        _show(report, counts)
    return EX_FAULT if found[Level.FAULT] else 0


def _parser() -> argparse.ArgumentParser:
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


def examine(scene: Scene) -> dict[str, list[Finding]]:
    """What each check finds, by its title."""
    from daemon.cli.checkup import (  # noqa: PLC0415 - see `main`
        configuration,
        leftovers,
        limits,
        secrecy,
        servers,
        sockets,
        state,
        units,
    )

    checks: dict[str, Callable[[Scene], Iterator[Finding]]] = {
        "configuration": configuration.check,
        "secrets": secrecy.check,
        "sockets": sockets.check,
        "state": state.check,
        "systemd": units.check,
        "limits": limits.check,
        "servers": servers.check,
        "leftovers": leftovers.check,
    }
    return {title: list(_guarded(check, scene)) for title, check in checks.items()}


def _guarded(check: Callable[[Scene], Iterator[Finding]], scene: Scene) -> Iterator[Finding]:
    """A check's findings; what it may not look at ends it, and not the others."""
    from daemon.cli.checkup.scene import warning  # noqa: PLC0415

    try:
        yield from check(scene)
    except OSError as error:
        yield warning(
            f"Not everything could be looked at: {error.filename or 'the system'}: {error.strerror or error}",
            do="Run this as the daemon's user.",
        )


def _clean(report: Report, scene: Scene) -> dict[str, list[Finding]]:
    """The findings without secrets: a server's words, a path or an argument may hold one."""
    import attrs  # noqa: PLC0415

    from daemon.config.redactors import Redactors  # noqa: PLC0415

    redactors = Redactors()
    servers: Container[str] = ()
    if scene.config:
        redactors.learn(scene.config)
        servers = scene.config.mcp_servers

    def cleaned(found: Finding) -> Finding:
        # Another server's password may be a word of what is said of this one.
        server = found.what.partition(":")[0]
        redact = redactors.of(server) if server in servers else redactors
        return attrs.evolve(found, what=redact(found.what), why=redact(found.why), do=redact(found.do))

    return {title: [cleaned(found) for found in findings] for title, findings in report.items()}


def _plain(report: Report) -> list[dict[str, Any]]:
    return [
        {"check": title, "level": found.level, "what": found.what, "why": found.why, "do": found.do}
        for title, findings in report.items()
        for found in findings
    ]


def _show(report: Report, counts: Mapping[str, int]) -> None:
    from daemon.cli.checkup.view import render  # noqa: PLC0415 - brings rich, which `--json` does without
    from daemon.cli.terminal import Screen  # noqa: PLC0415

    print(render(report, counts, Screen.of(sys.stdout, os.environ)))
