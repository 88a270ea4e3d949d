"""`mcpd status`: every server with its state and the reason, from the daemon's memory; asking starts nothing.

The exit status is a health check: 0 only if every enabled server works fully and persistence does too.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from daemon.cli.control import EX_FAULT, EX_UNREACHABLE, RemoteFault, ask_with, guarded
from daemon.cli.options import add_control, add_json, parser, positive
from daemon.safety.escape import document, json_line
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    import argparse

EX_UNAVAILABLE = 1
"""A configured server is unavailable or degraded, or persistence is."""

WATCH_SECONDS = 2.0
"""Default interval of `--watch`."""


def main(argv: list[str]) -> int:
    """Show the status.

    Returns:
        0: every enabled server is ready or dormant; 1: one is not, or persistence is degraded; 2: usage; 3: the
        daemon is not reachable.
    """
    options = make_parser().parse_args(argv)
    if options.watch is None:
        return guarded(lambda: _show(options))
    return guarded(lambda: _watch(options))


def make_parser() -> argparse.ArgumentParser:
    """Reads its command line."""
    made = parser(
        "status",
        "Show every server with its state, the reason if it is not ready, and its numbers; then the sessions"
        " and what the meta-tools save. With SERVER, all that is known of that one. Starts no server and"
        " changes nothing.",
        examples=(
            "mcpd status",
            "mcpd status git",
            "mcpd status --watch 5",
            "mcpd status --json | jq '.servers | map_values(select(.state != \"ready\"))'",
        ),
        exits={
            0: "every enabled server is ready (or dormant: started by its next call)",
            1: "a server is unavailable or degraded, or persistence is, or the daemon refused to answer",
        },
    )
    made.add_argument(
        "server",
        metavar="SERVER|INSTANCE",
        nargs="?",
        help="all of one: what runs, its calls in flight, its last errors and events, what helps",
    )
    add_json(made)
    made.add_argument(
        "-w",
        "--watch",
        metavar="SECONDS",
        type=_interval,
        nargs="?",
        const=WATCH_SECONDS,
        help="keep it on the screen and current, with keys to sort, filter and look closer (? lists them),"
        f" until q; without a terminal print it every so often, until Ctrl-C (default: {WATCH_SECONDS:g} s)",
    )
    add_control(made)
    return made


def _interval(text: str) -> float:
    """The seconds of `--watch`; who writes the server there is told what to type.

    Raises:
        argparse.ArgumentTypeError: it is no number of seconds.
    """
    import argparse  # noqa: PLC0415 - loaded by now: by options

    try:
        return positive(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; a server stands before it: mcpd status NAME --watch"
        ) from None


def _watch(options: argparse.Namespace) -> int:
    """Show the status again and again. A daemon that is away is shown as such: it may be restarting."""
    # Only now: it imports prompt_toolkit.
    from daemon.cli.watch import has_screen, watch, watch_screen  # noqa: PLC0415
    from daemon.cli.watch_view import StatusPoll  # noqa: PLC0415

    if options.json or not has_screen(os.environ, sys.stdin, sys.stdout):
        return watch(partial(guarded, lambda: _show(options, compact=True)), options.watch)
    last = watch_screen(StatusPoll(partial(_look, options), options.watch), options.server)
    return EX_UNREACHABLE if last.problem or last.status is None else exit_status(last.status)


def _look(options: argparse.Namespace, server: str | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    status = ask_with(options, "status", {})
    # A server that is gone is no reason to show nothing of the others.
    if server is None or server not in status["servers"]:
        return status, None
    return status, answer_one(options, server)


def answer_one(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """The daemon's answer about one server or instance."""
    answer = ask_with(options, "status", {"server": name})
    if "server" not in answer:
        # An older daemon answers with all of them, whatever it is asked for.
        if name not in answer["servers"]:
            raise RemoteFault(EX_FAULT, f"no server is named {name!r}")
        answer = {"name": name, "server": answer["servers"][name]}
    return answer


def _show(options: argparse.Namespace, *, compact: bool = False) -> int:
    if options.server is None:
        answer, _ = _look(options, None)
        servers, daemon = answer["servers"], answer["daemon"]
    else:
        answer = answer_one(options, options.server)
        servers, daemon = {answer["name"]: answer["server"]}, {}
    if options.json:
        # A document on each line, so that a program knows where one ends.
        print(json_line(answer) if compact else document(answer))
    else:
        _show_people(answer, is_whole=options.server is None)
    return exit_status({"servers": servers, "daemon": daemon})


def _show_people(answer: dict[str, Any], *, is_whole: bool) -> None:
    # Only now: they import rich, which `--json` does without.
    from daemon.cli.terminal import Screen  # noqa: PLC0415

    screen = Screen.of(sys.stdout, os.environ)
    if is_whole:
        from daemon.cli.status_view import render  # noqa: PLC0415

        print(render(answer, now=time.time(), screen=screen))
    else:
        from daemon.cli.status_one import render_one  # noqa: PLC0415

        print(render_one(answer, now=time.time(), screen=screen))


def exit_status(status: dict[str, Any]) -> int:
    """0 if every server of a `status` answer is in a state in `WELL` and persistence works, else 1.

    An instance that a client has just caused to start is no fault of its server's; one that cannot start is.
    """
    servers = status["servers"].values()
    well = all(server["state"] in WELL for server in servers) and all(
        each["state"] in WELL | COMING for server in servers for each in server.get("instances") or ()
    )
    # An older daemon has no persistence, and does not report on it.
    kept = (status["daemon"].get("persistence") or {}).get("state", "ok") == "ok"
    return 0 if well and kept else EX_UNAVAILABLE
