"""`mcpd logs`: what a server wrote to its stderr, as far as the daemon keeps it; asking starts nothing.

`--daemon` shows the daemon's own log (`cli.daemon_log`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from daemon.cli.control import DaemonUnreachable, ask_with, guarded, print_answer
from daemon.cli.options import add_control, add_json, count, parser
from daemon.host.paths import control_socket
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

POLL_SECONDS = 0.5
"""Interval between two questions of `--follow`: people do not notice it, and it costs the daemon a
millisecond."""

NO_STDERR = "it is reached over a connection (type {type}) and has no stderr here: see its log where it runs"
"""Said of a server that is not a child of the daemon."""


def main(argv: list[str]) -> int:
    """Show a server's lines, or how many there are of each server.

    Returns:
        0: shown, also if Ctrl-C ended it; 1: no such server; 2: usage; 3: the daemon is not reachable.
    """
    made = _parser()
    options = made.parse_args(argv)
    if options.daemon:
        if options.server is not None or options.json:
            made.error("--daemon shows the daemon's own log as it is: leave SERVER and --json out")
        return _show_daemons(options)
    if options.server is None:
        if options.follow or options.last is not None:
            made.error("name the SERVER whose lines are to be shown")
        return guarded(lambda: _show_counts(options))
    return guarded(lambda: _follow(options) if options.follow else _show(options))


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "logs",
        "Show what a server wrote on its stderr, oldest line first, as far as it is kept: 1000 lines, 64 KiB,"
        " over restarts of the server. Where clients do not share a server, the lines of all instances that"
        " run, each with its name, or those of the INSTANCE that is named. Without SERVER, show how many lines"
        " there are of each. Terminal escapes are spelt out, known secrets are left out. Changes nothing.",
        examples=(
            "mcpd logs",
            "mcpd logs git -n 20",
            "mcpd logs git -f",
            "mcpd logs git --json | jq -r .text",
            "mcpd logs --daemon -f",
        ),
        exits={0: "shown, also if Ctrl-C ended it", 1: "no such server, or --daemon: there is no log here"},
    )
    made.add_argument(
        "server",
        metavar="SERVER|INSTANCE",
        nargs="?",
        help="its name, as `mcpd status` shows it",
    )
    made.add_argument(
        "--daemon",
        action="store_true",
        help="show the daemon's own log, whether it runs or not: the journal of mcpd.service, or daemon.log in"
        " the state directory",
    )
    made.add_argument(
        "-f", "--follow", action="store_true", help="go on with each new line, also over restarts, until Ctrl-C"
    )
    made.add_argument(
        "-n",
        "--last",
        metavar="N",
        type=count,
        help="no more than the last N lines (default: all that is kept)",
    )
    add_json(made)
    add_control(made)
    return made


def _show_daemons(options: argparse.Namespace) -> int:
    from daemon.cli import daemon_log  # noqa: PLC0415 - it knows of systemd, which servers' lines do without

    control = options.control or str(control_socket(os.environ, options.socket))
    return daemon_log.show(control, last=options.last, follow=options.follow)


def _show_counts(options: argparse.Namespace) -> int:
    print_answer(options, "logs", {}, _counts)
    return 0


def _counts(answer: dict[str, Any]) -> str:
    servers: dict[str, Any] = answer["servers"]
    width = max(map(len, servers), default=0)
    lines = [
        f"{visible(name):<{width}}  {kept['lines']} {'line' if kept['lines'] == 1 else 'lines'}"
        for name, kept in servers.items()
    ]
    return "\n".join(lines) or "No server is switched on."


def _show(options: argparse.Namespace) -> int:
    answer = _first(options)
    _print(answer, as_json=options.json)
    if "instances" in answer:
        if not answer["instances"]:
            _note(f"{answer['server']}: no instance of it runs.")
    elif not answer["lines"]:
        why = NO_STDERR if answer["type"] not in {"", "stdio"} else "it has not written anything on its stderr"
        _note(f"{answer['server']}: {why.format(type=answer['type'])}.")
    return 0


def _first(options: argparse.Namespace) -> dict[str, Any]:
    last = {} if options.last is None else {"last": options.last}
    return ask_with(options, "logs", {"server": options.server, **last})


def _follow(options: argparse.Namespace) -> int:
    """Print what is kept and then each new line, until Ctrl-C."""
    answer = _first(options)
    try:
        _print(answer, as_json=options.json)
        for later in _news(options, answer):
            _print(later, as_json=options.json)
    except KeyboardInterrupt:
        pass
    return 0


def _news(options: argparse.Namespace, seen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Answers with new lines. A daemon that is away is reported once and waited for: it may be restarting."""
    away = False
    while True:
        time.sleep(POLL_SECONDS)
        try:
            seen = ask_with(options, "logs", {"server": options.server, **_seen(seen)})
        except DaemonUnreachable as error:
            if not away:
                _note(f"{error.problem}. Waiting for it.")
            away = True
            continue
        if away:
            _note("the daemon is back.")
        away = False
        if dropped := sum(page["dropped"] for page in _pages(seen).values()):
            _note(f"{dropped} lines came faster than they were asked for, and are gone.")
        yield seen


def _pages(answer: dict[str, Any]) -> dict[str, Any]:
    """The lines of an answer, by instance; under no name those of a server that all clients share."""
    pages: dict[str, Any] = answer.get("instances", {"": answer})
    return pages


def _seen(answer: dict[str, Any]) -> dict[str, Any]:
    """How to ask for what comes after an answer."""
    seen: dict[str, Any] = {
        name: {"after": page["next"], "source": page["source"]} for name, page in _pages(answer).items()
    }
    return {"instances": seen} if "instances" in answer else dict(seen[""])


def _print(answer: dict[str, Any], *, as_json: bool) -> None:
    for instance, page in _pages(answer).items():
        for line in page["lines"]:
            if as_json:
                told = {"instance": instance, **line} if instance else line
                # ASCII: nothing in it can move a cursor except DEL, which JSON leaves as it is.
                print(json.dumps(told).replace("\x7f", "\\u007f"))
            else:
                whose = f"{instance}: " if instance else ""
                print(visible(whose + line["text"].rstrip("\r").expandtabs()))
    sys.stdout.flush()


def _note(text: str) -> None:
    """Print a remark about the lines to stderr, because programs read stdout."""
    print(f"mcpd: {visible(text)}", file=sys.stderr)
