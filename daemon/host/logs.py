"""Logging: loguru's records, written by a thread of their own, without secrets.

The event loop only puts a finished line on a queue: a terminal or a pipe that does not read must not stop the
daemon. The queue is bounded; what does not fit is dropped and counted. The standard library's loggers (trio's,
mcp's, httpx's) are led here too.
"""

from __future__ import annotations

import atexit
import logging
import queue
import sys
import threading
import traceback
from collections import deque
from typing import TYPE_CHECKING, TextIO, TypeAlias

import trio
from loguru import logger

from daemon.safety.escape import json_line, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loguru import Message, Record

    from daemon.config.redaction import Redactors
    from daemon.safety.redact import Redactor

QUEUED_LINES = 10_000
"""Lines that may wait for a slow reader of our stderr: seconds of a noisy start."""

TRACEBACK_CHARS = 64 * 1024
"""Of a traceback: as deep as Python's own recursion goes, and a message that quotes its data, cut."""

LABEL_BYTES = 256
"""Of what a call is called in the log, as of a tool's name: the name may be one that a client made up."""

FLUSH_SECONDS = 1.0
"""How long the end of the daemon waits for the last lines to be written."""

SYSLOG_LEVELS = {"TRACE": 7, "DEBUG": 7, "INFO": 6, "SUCCESS": 5, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
"""journald reads `<N>` at the start of a line as its priority (sd-daemon(3))."""


QUIET = frozenset({"mcp", "httpx2", "httpcore2"})
"""Libraries that log as errors what we answer, retry and report ourselves: theirs is detail."""


class LineWriter:
    """Writes lines in a thread, in order."""

    def __init__(self, stream: TextIO) -> None:
        """Start the thread."""
        self.dropped = 0
        self._closed = False
        self._confessed = 0
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(QUEUED_LINES)
        self._thread = threading.Thread(target=self._write, name="mcpd-log", daemon=True)
        self._thread.start()

    def __call__(self, line: str) -> None:
        """Queue a line; never blocks."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write what is queued, within `FLUSH_SECONDS`. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            self._lines.put(None, timeout=FLUSH_SECONDS)
        except queue.Full:
            return
        self._thread.join(FLUSH_SECONDS)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(line + "\n")
                if self.dropped > self._confessed and self._lines.empty():
                    self._stream.write(f"mcpd: {self.dropped - self._confessed} lines of log were dropped\n")
                    self._confessed = self.dropped
                if self._lines.empty():
                    self._stream.flush()
            except (OSError, ValueError):
                self.dropped += 1


def configure(style: str, level: str, redact: Redactors) -> LineWriter:
    """Send all logging to stderr.

    Args:
        style: `text` for people, `journal` for systemd's journal, `json` for programs.
        level: the least severe level shown, in loguru's names.
        redact: takes secrets out of every line: of one about a server, those that this may know.
    """
    writer = LineWriter(sys.stderr)
    write, write_calls = {
        "text": (_text, _text_of_calls),
        "journal": (_journal, _journal_of_calls),
        "json": (_json, _json_of_calls),
    }[style]

    def sink(message: Message) -> None:
        # Before formatting: afterwards a secret may be escaped beyond recognition, and a line be cut apart.
        server = message.record["extra"].get("server")
        entry = _Entry(message.record, redact.of(server) if isinstance(server, str) else redact)
        calls: Sequence[Note] | None = message.record["extra"].get("calls")
        writer(write(entry) if calls is None else write_calls(entry, calls, redact))

    logger.remove()
    logger.add(sink, level=level, format="{message}", catch=True, diagnose=False, backtrace=False)
    logging.basicConfig(handlers=[_Intercept()], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)
    atexit.register(writer.close)
    return writer


class _Entry:
    """A log record from which secrets have been taken."""

    def __init__(self, record: Record, redact: Redactor | Redactors) -> None:
        self.time = record["time"]
        self.clock = f"{self.time:HH:mm:ss.SSS}"
        self.level = record["level"].name
        # What servers and clients say is in there, up to 16 MiB: it is cut as well.
        self.message = redact(record["message"])
        self.extra = {
            key: redact(value) if isinstance(value, str) else value
            for key, value in record["extra"].items()
            if isinstance(value, (str, int, float))
        }
        error = record["exception"]
        self.traceback = ""
        if error is not None and error.value is not None:
            lines = "".join(traceback.format_exception(error.value)).rstrip()
            self.traceback = visible(redact(lines, TRACEBACK_CHARS), lines=True)

    @property
    def body(self) -> str:
        """What happened, to whom, and the traceback if there is one.

        What servers and clients said is in there: it must not forge a line or move a terminal's cursor.
        """
        subject = " ".join(f"{key}={self.extra[key]}" for key in _SUBJECTS if key in self.extra)
        text = visible(f"[{subject}] {self.message}" if subject else self.message)
        return f"{text}\n{self.traceback}" if self.traceback else text


_SUBJECTS = ("server", "session", "category")
"""What a line may be about, in the order in which it is said."""


def _text(entry: _Entry) -> str:
    return f"{entry.clock} {entry.level:<7} {entry.body}"


def _journal(entry: _Entry) -> str:
    """One priority per physical line, or journald shows the rest of a traceback as information."""
    prefix = f"<{SYSLOG_LEVELS.get(entry.level, 6)}>"
    return "\n".join(prefix + line for line in entry.body.split("\n"))


def _json(entry: _Entry) -> str:
    fields: dict[str, object] = {
        "time": entry.time.isoformat(),
        "level": entry.level.lower(),
        "message": entry.message,
        **entry.extra,
    }
    if entry.traceback:
        fields["exception"] = entry.traceback
    return json_line(fields)


def _spelt(calls: Sequence[Note], redact: Redactors, spell: Callable[[str], str]) -> dict[str, str]:
    """The labels of calls as they are written: of a line, only they are not our own words."""
    return {label: spell(_short(redact(label))) for label in {label for _, label, _, _ in calls}}


def _short(label: str) -> str:
    """A label of `LABEL_BYTES` at the most, as a terminal may be shown it."""
    shown = visible(label[:LABEL_BYTES])
    whole = len(label) <= LABEL_BYTES and len(shown.encode()) <= LABEL_BYTES
    return shown if whole else shown.encode()[: LABEL_BYTES - len("…".encode())].decode(errors="ignore") + "…"


def _text_of_calls(entry: _Entry, calls: Sequence[Note], redact: Redactors) -> str:
    """The text form of calls in the log, a line for each."""
    return _lines_of_calls(f"{entry.clock} {entry.level:<7} ", calls, redact)


def _journal_of_calls(entry: _Entry, calls: Sequence[Note], redact: Redactors) -> str:
    return _lines_of_calls(f"<{SYSLOG_LEVELS.get(entry.level, 6)}>", calls, redact)


def _lines_of_calls(head: str, calls: Sequence[Note], redact: Redactors) -> str:
    spelt = _spelt(calls, redact, str)
    return "\n".join(
        [
            f"{head}[session={session}] call {spelt[label]} {seconds * 1000:.1f} ms {outcome}"
            for session, label, seconds, outcome in calls
        ]
    )


def _json_of_calls(entry: _Entry, calls: Sequence[Note], redact: Redactors) -> str:
    spelt = _spelt(calls, redact, lambda label: json_line(label)[1:-1])
    head = json_line({"time": entry.time.isoformat(), "level": entry.level.lower()})[:-1]
    return "\n".join(
        [
            f'{head}, "message": "call {spelt[label]} {seconds * 1000:.1f} ms {outcome}",'
            f' "session": {session}}}'
            for session, label, seconds, outcome in calls
        ]
    )


class _Intercept(logging.Handler):
    """Leads the standard library's logging into loguru."""

    def emit(self, record: logging.LogRecord) -> None:
        """Forward one record."""
        level: str | int = record.levelname if record.levelname in SYSLOG_LEVELS else record.levelno
        if record.name.partition(".")[0] in QUIET:
            level = "DEBUG"
        logger.bind(logger=record.name).opt(exception=record.exc_info).log(level, "{}", record.getMessage())


GATHERED = 10_000
"""Calls that may wait to be logged; older ones are dropped, and counted. More than one interval gathers."""

EVERY_SECONDS = 0.25
"""How long a line may lag behind its call."""

CALLS_PER_RECORD = 250
"""So many are written in one go, a third of a millisecond, before the event loop runs again."""

Note: TypeAlias = tuple[int, str, float, str]
"""Number of the connection, label, seconds, outcome. The label may be what a client called a tool that nobody
has: as it came, and as long as it was."""


class CallLogger:
    """Notes calls: session, category and name, latency, outcome (seed 001, §8)."""

    def __init__(self) -> None:
        """Begin with nothing noted."""
        self._notes: deque[Note] = deque(maxlen=GATHERED)
        self._some = trio.Event()
        self._rests = True
        self.dropped = 0

    def note(self, session: int, label: str, seconds: float, outcome: str) -> None:
        """Note a call that ended. Never blocks."""
        notes = self._notes
        if len(notes) == GATHERED:
            self.dropped += 1
        notes.append((session, label, seconds, outcome))
        if self._rests:
            self._rests = False
            self._some.set()

    async def run(self) -> None:
        """Write what gathers, until cancelled; then the rest."""
        try:
            while True:
                await self._some.wait()
                await trio.sleep(EVERY_SECONDS)
                self._some = trio.Event()
                self._rests = True
                try:
                    await trio.to_thread.run_sync(self._write)
                except RuntimeError as error:
                    # No thread to be had: the machine is at its limit of tasks, and these lines can wait.
                    logger.debug("no thread for the log of calls: {}", error)
                    self._rests = False
                    self._some.set()
        finally:
            self._write()

    def _write(self) -> None:
        if self.dropped:
            lost, self.dropped = self.dropped, 0
            logger.warning("{} calls were not logged: they came faster than they could be", lost)
        while self._notes:
            notes = [self._notes.popleft() for _ in range(min(len(self._notes), CALLS_PER_RECORD))]
            logger.bind(calls=notes).info("{} calls", len(notes))
