"""`mcpd calls`: calls that have no answer yet, and the last that have; `-f` goes on with each that ends."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from daemon.cli.control import ask_with, guarded
from daemon.cli.following import follow, news
from daemon.cli.options import add_control, add_follow, add_json, add_last, parser
from daemon.kit.wording import called
from daemon.safety.escape import document, json_line, visible

if TYPE_CHECKING:
    import argparse

MOST = 1000
"""The most ended calls that can be asked for: as many as the daemon keeps."""

Json = dict[str, Any]


def main(argv: list[str]) -> int:
    """Show calls.

    Returns:
        0: shown, also if Ctrl-C ended it; 1: no such server; 2: usage; 3: the daemon is not reachable.
    """
    options = _parser().parse_args(argv)
    return guarded(lambda: _follow(options) if options.follow else _show(options))


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "calls",
        "Show the calls that have no answer yet, oldest first: what each waits for (its server to come up, its"
        " turn, the answer, its client's user), and the number by which `mcpd cancel` ends it. Then the last"
        " calls that have ended: when, how long they took, whose they were, and the outcome. The daemon keeps"
        " 1000 of these since its start; arguments and results it keeps of none. Changes nothing.",
        examples=(
            "mcpd calls",
            "mcpd calls git --errors -n 20",
            "mcpd calls -f",
            "mcpd calls --json | jq '.inFlight[] | select(.ageSeconds > 60)'",
        ),
        exits={0: "shown, also if Ctrl-C ended it", 1: "no such server or session"},
    )
    made.add_argument(
        "server", metavar="SERVER|INSTANCE", nargs="?", help="only calls of this one, as `mcpd status` names it"
    )
    add_follow(made, "go on with each call that ends, a line each")
    made.add_argument(
        "--errors", action="store_true", help="only calls that ended with an error, and none that has no answer"
    )
    made.add_argument(
        "--session", metavar="KEY", help="only calls of this session: its key, or 4 for connection 4"
    )
    add_last(made, "the last N that have ended (default: 50, at most 1000)")
    add_json(made)
    add_control(made)
    return made


def _wanted(options: argparse.Namespace) -> Json:
    wanted = {"server": options.server, "session": options.session, "errorsOnly": options.errors}
    return wanted if options.last is None else {**wanted, "limit": min(options.last, MOST)}


def _show(options: argparse.Namespace) -> int:
    answer = ask_with(options, "calls", _wanted(options))
    if options.json:
        print(document(answer))
    else:
        from daemon.cli.calls_view import render_calls  # noqa: PLC0415 - imports rich
        from daemon.cli.terminal import Screen  # noqa: PLC0415

        screen = Screen.of(sys.stdout, os.environ)
        print(render_calls(answer, errors_only=options.errors, screen=screen))
    return 0


def _follow(options: argparse.Namespace) -> int:
    """Print the last calls and then each that ends, until Ctrl-C."""

    def after(seen: Json) -> Json:
        last = {"limit": MOST, "after": seen["next"], "source": seen["source"]}
        return news(options, "calls", {**_wanted(options), **last})

    def show(answer: Json) -> None:
        for call in answer["recent"]:
            print(json_line(call) if options.json else _line(call))

    return follow(ask_with(options, "calls", _wanted(options)), after, show)


def _line(call: Json) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(call["at"]))
    who = call["client"] or "a client without a name"
    where = "" if call["session"] is None else f" (session {call['key'] or '#' + str(call['session'])})"
    return visible(f"{clock} {call['ms']:9.1f} ms  {called(call)}  {call['outcome']}  {who}{where}")
