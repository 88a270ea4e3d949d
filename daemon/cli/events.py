"""`mcpd events`, and following the daemon: each question asks for what came after the last answer."""

from __future__ import annotations

import json
import os
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from datetime import time as clock_time
from typing import TYPE_CHECKING, Any

from daemon.cli import EX_PIPE
from daemon.cli.command import FOLLOW, LAST, SERVER_IF_ANY, CommandLine, argument
from daemon.cli.control import DaemonUnreachable, Message, ask_with, note
from daemon.cli.options import is_coloured, length_in
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse

    from daemon.operators.reports import EventReport


WAIT_SECONDS = 20.0
"""Seconds that the daemon holds a question without news."""

GATHER_SECONDS = 0.1
"""Seconds between an answer and the next question, so that a busy server's lines come in bulk."""

AWAY_SECONDS = 0.5
"""Seconds between two attempts to reach a daemon that may be restarting."""

_STDOUT = 1
"""The descriptor, since `sys.stdout` may be a wrapper."""


def follow(first: Any, after: Callable[[Any], Any], show: Callable[[Any], object]) -> int:
    """Show an answer and all later ones until Ctrl-C; a daemon that is away is reported once and awaited."""
    end_without_reader()
    seen, away = first, False
    try:
        show(seen)
        while True:
            sys.stdout.flush()
            time.sleep(AWAY_SECONDS if away else GATHER_SECONDS)
            try:
                seen = after(seen)
            except DaemonUnreachable as error:
                if not away:
                    note(f"{error.since_known}. Waiting for it.")
                away = True
                continue
            if away:
                note("the daemon is back.")
            away = False
            show(seen)
    except KeyboardInterrupt:
        return 0


def end_without_reader() -> None:
    """From now on, end the process as soon as nobody can read its output."""
    threading.Thread(target=_wait_for_no_reader, daemon=True).start()


def _wait_for_no_reader() -> None:
    output = select.poll()
    # Without events poll reports errors only, such as a pipe without a reader; a file has none.
    output.register(_STDOUT, 0)
    output.poll()
    # The main thread waits for the daemon, and has nothing to clean up.
    os._exit(EX_PIPE)


def news(options: argparse.Namespace, method: str, params: Message) -> Any:
    """Ask the daemon, and have it hold the question until there is an answer."""
    wanted = {**params, "wait": WAIT_SECONDS}
    return ask_with(options, method, wanted, timeout=options.timeout + WAIT_SECONDS)


SHOWN = 100
"""Events shown without -n and --since: some screens."""

MOST = 10_000
"""Most events per question: as many as the daemon keeps of a server."""

LASTING = {"crashloop", "failed", "needs_auth"}
"""States that last until somebody acts: their events are red."""

GOOD = {"ready", "daemon-started"}

_ANSI = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1"}


def moment(text: str) -> float:
    """A time for argparse, as epoch seconds: an age, a local ISO time, a day's name, or a past time of day."""
    now = time.time()
    if (ago := length_in(text)) is not None:
        return now - ago
    if text in {"today", "yesterday"}:
        day = _day(now) - timedelta(days=text == "yesterday")
        return datetime.combine(day, clock_time()).timestamp()
    if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", text):
        found = _last_time(now, text)
        if found is not None:
            return found
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        import argparse  # noqa: PLC0415 - loaded by now: by options

        why = f"{text!r} is no time: write 90s, 30m, 1h, 2d, today, yesterday, 22:00, or 2026-11-22T22:00"
        raise argparse.ArgumentTypeError(why) from None


def _day(now: float) -> date:
    return datetime.fromtimestamp(now).astimezone().date()


def _last_time(now: float, clock: str) -> float | None:
    hours, minutes, *seconds = map(int, clock.split(":"))
    try:
        wanted = clock_time(hours, minutes, seconds[0] if seconds else 0)
    except ValueError:
        return None
    at = datetime.combine(_day(now), wanted)
    return at.timestamp() if at.timestamp() <= now else (at - timedelta(days=1)).timestamp()


def _events(options: argparse.Namespace) -> int:
    asked, lines = _asked(options), EventLines(options)
    answer = ask_with(options, "events", asked)
    if options.follow:
        return follow(
            answer,
            lambda seen: news(options, "events", {**asked, "limit": MOST, "after": seen["next"]}),
            lambda answer: lines.show_all(answer["events"]),
        )
    lines.show_all(answer["events"])
    if not answer["events"]:
        whom = f" to {options.server}" if options.server else ""
        note(f"nothing is known to have happened{whom}.")
    return 0


def _asked(options: argparse.Namespace) -> Message:
    most = options.last or (SHOWN if options.since is None else MOST)
    return {
        "server": options.server,
        "session": options.session,
        "since": options.since or 0.0,
        "kinds": options.kind,
        "people": not options.json,
        "limit": min(most, MOST),
    }


class EventLines:
    """Prints events, a line each, and the date where it changes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._as_json: bool = options.json
        self._colour = is_coloured(sys.stdout, os.environ)
        self._day = time.strftime("%Y-%m-%d")

    def show_all(self, events: Iterable[Any]) -> None:
        """Print events, oldest first."""
        for event in events:
            self.put(event)
        sys.stdout.flush()

    def put(self, entry: Any) -> None:
        """Print one entry."""
        if self._as_json:
            # In ASCII JSON only DEL, which JSON does not escape, can move a cursor.
            print(json.dumps(self.as_object(entry)).replace("\x7f", "\\u007f"))
            return
        if "at" in entry and (heading := self.heading(entry["at"])):
            print(self.painted(heading, "bold"))
        print(self.line(entry))

    def as_object(self, entry: Any) -> Any:
        """An entry for programs."""
        return entry

    def heading(self, at: float) -> str:
        """The date if it differs from the last one; today needs none at first."""
        before, self._day = self._day, time.strftime("%Y-%m-%d", time.localtime(at))
        return "" if before == self._day else time.strftime("%A, %Y-%m-%d", time.localtime(at))

    def line(self, entry: Any) -> str:
        """Time and text of an event."""
        return f"{self.clock(entry['at'])}  {self.painted(visible(entry['message']), _style(entry))}"

    def clock(self, at: float) -> str:
        """The local time of day."""
        return self.painted(time.strftime("%H:%M:%S", time.localtime(at)), "dim")

    def painted(self, text: str, style: str) -> str:
        """The text in a colour, where the terminal has colours."""
        return f"\x1b[{_ANSI[style]}m{text}\x1b[0m" if self._colour and style else text


def _style(event: EventReport) -> str:
    if event["isBad"]:
        return "red" if event["details"].get("state") in LASTING else "yellow"
    return "green" if event["kind"] in GOOD else ""


EVENTS = CommandLine(
    "events",
    arguments=(
        SERVER_IF_ANY,
        FOLLOW,
        argument("--since", metavar="WHEN", type=moment),
        argument("--kind", metavar="KIND", action="append", default=[]),
        argument("--session", metavar="KEY"),
        LAST,
    ),
    run=_events,
)
