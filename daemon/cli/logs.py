"""`mcpd logs`: kept stderr lines of a server, or the daemon's log (`main.daemon_log`). Starts nothing."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from daemon.cli.command import FOLLOW, LAST, SERVER_IF_ANY, CommandLine, UsageError, argument, asking, flag
from daemon.cli.control import Message, ask_with, note
from daemon.cli.events import EventLines, end_without_reader, follow, moment, news
from daemon.host.paths import control_socket
from daemon.safety.escape import visible

NO_STDERR = "it is reached over a connection (type {type}) and has no stderr here: see its log where it runs"
"""Remark on a server that is not a child of the daemon."""


def _show_daemons(options: argparse.Namespace) -> int:
    from daemon.main import daemon_log  # noqa: PLC0415 - imports systemd's commands

    control = options.control or str(control_socket(os.environ, options.socket))
    if options.follow:
        end_without_reader()
    return daemon_log.show(control, last=options.last, follow=options.follow)


def _counts(answer: Message) -> str:
    servers: Message = answer["servers"]
    width = max(map(len, servers), default=0)
    lines = [
        f"{visible(name):<{width}}  {kept['lines']} {'line' if kept['lines'] == 1 else 'lines'}"
        for name, kept in servers.items()
    ]
    return "\n".join(lines) or "No server is switched on."


_show_counts = asking("logs", lambda _options: {}, _counts)


def _show(options: argparse.Namespace) -> int:
    answer = _first(options)
    LogLines(options).show(answer, options.last)
    if "instances" in answer:
        if not answer["instances"]:
            note(f"{answer['server']}: no instance of it runs.")
    elif not answer["lines"]:
        why = NO_STDERR if answer["type"] not in {"", "stdio"} else _silent(answer)
        note(f"{answer['server']}: {why.format(type=answer['type'])}.")
    return 0


def _silent(answer: Message) -> str:
    """Remark on a server without lines; lines are kept as long as mcpd runs."""
    if (at := answer.get("startedAt")) is None:
        return "it has not written anything on its stderr"
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return f"it has written nothing on its stderr since mcpd started at {began}"


def _first(options: argparse.Namespace) -> Any:
    last = {} if options.last is None else {"last": options.last}
    return ask_with(options, "logs", {**_asked(options), **last})


def _asked(options: argparse.Namespace) -> Message:
    return {"server": options.server, "events": not options.no_events}


def _follow(options: argparse.Namespace) -> int:
    first, lines = _first(options), LogLines(options)

    def after(seen: Message) -> Any:
        return news(options, "logs", {**_asked(options), **_seen(seen)})

    def show(answer: Message) -> None:
        if answer is first:
            lines.show(answer, options.last)
            return
        if dropped := sum(page["dropped"] for page in _pages(answer).values()):
            note(f"{dropped} lines came faster than they were asked for, and are gone.")
        lines.show(answer)

    return follow(first, after, show)


def _pages(answer: Message) -> Message:
    """The lines by instance; the name is empty for a server that all clients share."""
    pages: Message = answer.get("instances", {"": answer})
    return pages


def _seen(answer: Message) -> Message:
    seen: Message = {
        name: {"after": page["next"], "source": page["source"]} for name, page in _pages(answer).items()
    }
    told = {"eventsAfter": answer["eventsNext"]} if "eventsNext" in answer else {}
    return {"instances": seen, **told} if "instances" in answer else {**seen[""], **told}


class LogLines(EventLines):
    """Prints a server's lines and, between them, its events, in order of time."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self._since: float = options.since

    def show(self, answer: Message, last: int | None = None) -> None:
        """Print the lines and events of an answer, the last `last` of them."""
        lines = [
            {**line, "instance": instance} if instance else line
            for instance, page in _pages(answer).items()
            for line in page["lines"]
        ]
        both = sorted([*lines, *answer.get("events", ())], key=lambda each: each.get("at", 0.0))
        both = [each for each in both if each.get("at", self._since) >= self._since]
        for each in both[-last:] if last else both:
            self.put(each)
        sys.stdout.flush()

    def as_object(self, entry: Any) -> Any:
        """An entry for programs; `event` marks an event by its kind."""
        return {"event": entry["kind"], **entry} if "kind" in entry else entry

    def line(self, entry: Any) -> str:
        """Time, run and text of a line, or an event."""
        if "kind" in entry:
            return super().line({**entry, "message": f"-- {entry['message']}"})
        whose = f"{entry['instance']}: " if "instance" in entry else ""
        text = visible(whose + entry["text"].rstrip("\r").expandtabs())
        if "at" not in entry:
            return text
        run = f"[{entry['run'] or '-'}]"
        return f"{self.clock(entry['at'])}  {self.painted(run, 'dim')} {text}"


def _run(options: argparse.Namespace) -> int:
    if options.daemon:
        if options.server is not None or options.json:
            raise UsageError("--daemon shows the daemon's own log: leave SERVER and --json out")
        return _show_daemons(options)
    if options.server is None:
        if options.follow or options.since or options.last is not None:
            raise UsageError("name the SERVER, or write --daemon for mcpd's own log")
        return _show_counts(options)
    return _follow(options) if options.follow else _show(options)


LOGS = CommandLine(
    "logs",
    run=_run,
    arguments=(
        SERVER_IF_ANY,
        flag("--daemon"),
        FOLLOW,
        flag("--no-events"),
        argument("--since", metavar="WHEN", type=moment, default=0.0),
        LAST,
    ),
)
