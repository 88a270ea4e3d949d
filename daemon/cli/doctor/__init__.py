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
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from daemon.cli.doctor.findings import Finding
    from daemon.cli.doctor.scene import Scene

    Told = Mapping[str, str]

EX_FAULT = 1
"""At least one fault was found."""


def main(argv: list[str]) -> int:
    """Look at everything and print the findings.

    Returns:
        0: there is no fault, perhaps warnings; 1: there is one; 2: usage.
    """
    options = _parser().parse_args(argv)
    # Here, so that `--help` does not pay for attrs and cattrs.
    from daemon.cli.doctor.findings import Level  # noqa: PLC0415
    from daemon.cli.doctor.scene import gather  # noqa: PLC0415

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
    told = list(_told(examine(scene), scene))
    counts = {level.value: sum(each["level"] == level for each in told) for level in Level}
    if options.json:
        print(document({"ok": not counts["fault"], "counts": counts, "findings": told}))
    else:
        _show(told, counts)
    return EX_FAULT if counts["fault"] else 0


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
    """The findings of each check, by its title."""
    from daemon.cli.doctor import (  # noqa: PLC0415 - see `main`
        clients,
        configuration,
        host,
        http,
        servers,
        sockets,
        state,
    )

    checks: dict[str, Callable[[Scene], Iterator[Finding]]] = {
        "configuration": configuration.check,
        "secrets": configuration.secrets,
        "sockets": sockets.check,
        "http": http.check,
        "state": state.check,
        "systemd": host.units,
        "limits": host.limits,
        "servers": servers.check,
        "clients": clients.check,
        "leftovers": host.leavings,
    }
    return {title: list(_guarded(check, scene)) for title, check in checks.items()}


def _guarded(check: Callable[[Scene], Iterator[Finding]], scene: Scene) -> Iterator[Finding]:
    """A check's findings; being denied access ends this check, not the others."""
    from daemon.cli.doctor.findings import found  # noqa: PLC0415

    try:
        yield from check(scene)
    except OSError as error:
        place = error.filename or "the system"
        yield found("not-looked-at", place=place, problem=error.strerror or error)


def _told(report: Mapping[str, Sequence[Finding]], scene: Scene) -> Iterator[Told]:
    """The findings in words, with secrets redacted: a server's output, a path or an argument may hold one."""
    from daemon.config.redaction import Redactors  # noqa: PLC0415

    redactors = Redactors()
    if scene.config:
        redactors.learn(scene.config)
    for title, findings in report.items():
        for each in findings:
            # Redacted per server: another one's password may be an ordinary word in what is said of this one.
            server = str(each.data.get("server", ""))
            of_a_server = scene.config is not None and server in scene.config.mcp_servers
            redact = redactors.of(server) if of_a_server else redactors
            words = {"what": redact(each.what), "why": redact(each.why), "do": redact(each.do)}
            yield {"check": title, "level": each.level, "cause": each.cause, **words}


def _show(told: Sequence[Told], counts: Mapping[str, int]) -> None:
    from daemon.cli.terminal import Screen  # noqa: PLC0415
    from daemon.cli.views import render_findings  # noqa: PLC0415 - imports rich, which `--json` does without

    print(render_findings(told, counts, Screen.of(sys.stdout, os.environ)))
