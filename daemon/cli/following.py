"""Shows events, logs and calls, and follows them: each request asks for anything newer than the last answer."""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from daemon.cli import EX_PIPE
from daemon.cli.command import UsageError, asking, drawn
from daemon.cli.control import DaemonHungUp, DaemonUnreachable, Message, ask_with, note
from daemon.cli.options import is_coloured
from daemon.host.paths import control_socket
from daemon.kit.wording import called
from daemon.operators.change_reports import cancelled
from daemon.operators.report_words import local_time, outcome_of, session_name
from daemon.safety.escape import document, json_line, visible

if TYPE_CHECKING:
    from daemon.operators.reports import CallsReport, EndedCall, EventReport


WAIT_SECONDS = 20.0
"""Seconds that the daemon holds a request when there is nothing new."""

GATHER_SECONDS = 0.1
"""Seconds between an answer and the next request, so that a busy server's lines come in batches."""

AWAY_SECONDS = 0.5
"""Seconds between two attempts to reach a daemon that may be restarting."""

_STDOUT = 1
"""Stdout's descriptor, since `sys.stdout` may be a wrapper."""


def follow(first: Any, after: Callable[[Any], Any], show: Callable[[Any], object]) -> int:
    """Show an answer and all later ones until Ctrl-C. If the daemon is away, say so once and wait for it."""
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
                    # One that has answered before can only have ended.
                    ended = isinstance(error, DaemonHungUp)
                    note(f"{'the daemon has stopped' if ended else error.problem}. Waiting for it.")
                away = True
                continue
            if away:
                note("the daemon is back.")
            away = False
            show(seen)
    except KeyboardInterrupt:
        return 0


def end_without_reader() -> None:
    """End the process as soon as the reader of its output has left."""
    threading.Thread(target=_wait_for_no_reader, daemon=True).start()


def _wait_for_no_reader() -> None:
    output = select.poll()
    # Without events poll reports errors only, such as a pipe without a reader; a file has none.
    output.register(_STDOUT, 0)
    output.poll()
    # The main thread waits for the daemon, and has nothing to clean up.
    os._exit(EX_PIPE)


def news(options: argparse.Namespace, method: str, params: Message) -> Any:
    """Ask the daemon, which holds the request until there is something new."""
    wanted = {**params, "wait": WAIT_SECONDS}
    return ask_with(options, method, wanted, timeout=options.timeout + WAIT_SECONDS)


# --- events -------------------------------------------------------------------------------------------------

SHOWN = 100
"""Events shown without -n and --since: a few screens."""

MOST = 10_000
"""Events in one answer: as many as the daemon keeps of a server."""

LASTING = {"crashloop", "failed", "needs_auth"}
"""States that last until a person acts; their events are red."""

GOOD = {"ready", "daemon-started"}

_ANSI = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1"}


def events(options: argparse.Namespace) -> int:
    """Show events, and perhaps follow them."""
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
        note(f"there are no events{whom}.")
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
    """Prints events, one line each, with the date where it changes."""

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
        """An entry as programs read it."""
        return entry

    def heading(self, at: float) -> str:
        """The date of an entry if it differs from the previous one's; empty if the first entry is of today."""
        before, self._day = self._day, time.strftime("%Y-%m-%d", time.localtime(at))
        return "" if before == self._day else time.strftime("%A, %Y-%m-%d", time.localtime(at))

    def line(self, entry: Any) -> str:
        """Time and text of an event."""
        return f"{self.clock(entry['at'])}  {self.painted(visible(entry['message']), _style(entry))}"

    def clock(self, at: float) -> str:
        """The local time of day."""
        return self.painted(time.strftime("%H:%M:%S", time.localtime(at)), "dim")

    def painted(self, text: str, style: str) -> str:
        """Colour a text, if the terminal has colours."""
        return f"\x1b[{_ANSI[style]}m{text}\x1b[0m" if self._colour and style else text


def _style(event: EventReport) -> str:
    if event["isBad"]:
        return "red" if event["details"].get("state") in LASTING else "yellow"
    return "green" if event["kind"] in GOOD else ""


# --- logs ---------------------------------------------------------------------------------------------------

NO_STDERR = "mcpd only connects to it (type {type}), so its stderr is not here: see the log where it runs"
"""Remark about a server that is not a child process of the daemon."""


def _show_daemons_log(options: argparse.Namespace) -> int:
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


_show_counts = asking("logs", "", _counts)


def _show_lines(options: argparse.Namespace) -> int:
    asked, lines = {"server": options.server, "events": not options.no_events}, LogLines(options)
    last = {} if options.last is None else {"last": options.last}
    answer = ask_with(options, "logs", {**asked, **last})
    if options.follow:
        return follow(
            answer,
            lambda seen: news(options, "logs", {**asked, **_seen(seen)}),
            lambda seen: lines.show(seen, options.last if seen is answer else None),
        )
    lines.show(answer, options.last)
    if "instances" in answer:
        if not answer["instances"]:
            note(f"{answer['server']}: no instance runs.")
    elif not answer["lines"]:
        why = NO_STDERR if answer["type"] not in {"", "stdio"} else _silent(answer)
        note(f"{answer['server']}: {why.format(type=answer['type'])}.")
    return 0


def _silent(answer: Message) -> str:
    """Remark about a server without lines; lines are kept while mcpd runs."""
    if (at := answer.get("startedAt")) is None:
        return "it has not written anything on its stderr"
    return f"it has written nothing on its stderr since mcpd started at {local_time(at)}"


def _pages(answer: Message) -> Message:
    """Group lines by instance; the empty name is a server that all clients share."""
    pages: Message = answer.get("instances", {"": answer})
    return pages


def _seen(answer: Message) -> Message:
    seen: Message = {
        name: {"after": page["next"], "source": page["source"]} for name, page in _pages(answer).items()
    }
    cursor = {"eventsAfter": answer["eventsNext"]} if "eventsNext" in answer else {}
    return {"instances": seen, **cursor} if "instances" in answer else {**seen[""], **cursor}


class LogLines(EventLines):
    """Prints a server's lines with its events between them, in order of time."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self._since: float = options.since or 0.0
        self._why: tuple[object, ...] = ()

    def show(self, answer: Message, last: int | None = None) -> None:
        """Print the last `last` lines and events of an answer, after the number of those that were lost."""
        if dropped := sum(page["dropped"] for page in _pages(answer).values()):
            note(f"{dropped} lines were lost: they came faster than they were read.")
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
        """An entry as programs read it; events have the member `event`, their kind."""
        return {"event": entry["kind"], **entry} if "kind" in entry else entry

    def line(self, entry: Any) -> str:
        """Time, run and text of a line or event; of several retries, only the first shows cause and remedy."""
        if "kind" in entry:
            why = entry["instance"], entry["cause"], *map(entry["details"].get, ("happened", "helps"))
            before, self._why = self._why, why if entry["cause"] else self._why
            sentence = _as_before(entry) if entry["cause"] and why == before else entry["message"]
            return super().line({**entry, "message": f"-- {sentence}"})
        prefix = f"{entry['instance']}: " if "instance" in entry else ""
        text = visible(prefix + entry["text"].rstrip("\r").expandtabs())
        if "at" not in entry:
            return text
        run = f"[{entry['run'] or '-'}]"
        return f"{self.clock(entry['at'])}  {self.painted(run, 'dim')} {text}"


def _as_before(entry: Any) -> str:
    """A short sentence for an event with the same cause and remedy as the last one."""
    import attrs  # noqa: PLC0415 - seldom needed

    from daemon.causes import Cause  # noqa: PLC0415 - likewise
    from daemon.history.event import Event, EventKind  # noqa: PLC0415 - likewise
    from daemon.history.event_words import sentence  # noqa: PLC0415 - likewise

    details = {
        key: each for key, each in entry["details"].items() if key not in {"happened", "helps", "stderr"}
    }
    event = Event(kind=EventKind(entry["kind"]), cause=Cause(entry["cause"]), at=entry["at"], details=details)
    return sentence(
        attrs.evolve(event, server=entry["server"], instance=entry["instance"] or "", text="as before")
    )


def logs(options: argparse.Namespace) -> int:
    """Show a server's lines, the daemon's own log, or the number of lines of each server."""
    if options.others:
        each = [f"`mcpd logs {name}`" for name in (options.server, *options.others)]
        raise UsageError(f"one server at a time: {', then '.join(each)}; `mcpd events` shows the events of all")
    if options.daemon:
        if options.server is not None or options.json or options.since:
            raise UsageError("--daemon shows the end of mcpd's own log: leave SERVER, --json and --since out")
        return _show_daemons_log(options)
    if options.server is None:
        if options.follow or options.since or options.last is not None:
            raise UsageError(
                "name the SERVER, as in `mcpd logs SERVER --since 1h`; `mcpd events --since 1h` shows what"
                " happened to all, `mcpd logs --daemon` mcpd's own log"
            )
        return _show_counts(options)
    return _show_lines(options)


# --- calls --------------------------------------------------------------------------------------------------

MOST_CALLS = 1000
"""Ended calls to ask for at most: as many as the daemon keeps."""


def _calls_wanted(options: argparse.Namespace) -> dict[str, Any]:
    wanted = {"server": options.server, "session": options.session, "errorsOnly": options.errors}
    if options.since is not None:
        wanted["since"] = options.since
    most = MOST_CALLS if options.last is None and options.since is not None else options.last
    return wanted if most is None else {**wanted, "limit": min(most, MOST_CALLS)}


def calls(options: argparse.Namespace) -> int:
    """Show calls in flight and ended ones, or follow those that end."""
    if options.follow:
        return _follow_calls(options)
    view = drawn("daemon.cli.views:render_calls", errors_only=options.errors, since=bool(options.since))
    answer = _first_calls(options)
    print(document(answer) if options.json else view(answer))
    return 0


def _first_calls(options: argparse.Namespace) -> Any:
    answer = ask_with(options, "calls", _calls_wanted(options))
    # mcpd 0.1.0 ignores `since`.
    answer["recent"] = [each for each in answer["recent"] if each["at"] >= (options.since or 0.0)]
    return answer


def _follow_calls(options: argparse.Namespace) -> int:

    def after(seen: CallsReport) -> Any:
        last = {"limit": MOST_CALLS, "after": seen["next"], "source": seen["source"]}
        return news(options, "calls", {**_calls_wanted(options), **last})

    def show(answer: CallsReport) -> None:
        for call in answer["recent"]:
            print(json_line(call) if options.json else call_line(call))

    return follow(_first_calls(options), after, show)


def call_line(call: EndedCall) -> str:
    """Render an ended call in a line."""
    clock = time.strftime("%H:%M:%S", time.localtime(call["at"]))
    who, session = call["client"] or "a client without a name", session_name(call)
    where = f" (session {session})" if session else ""
    why = f": {call['text']}" if call["text"] else ""
    return visible(f"{clock} {call['ms']:9.1f} ms  {called(call)}  {outcome_of(call)}  {who}{where}{why}")


cancel = asking("cancel", lambda options: {"id": options.call}, cancelled)
