"""Logging: removes secrets from loguru's records, and writes the lines in a thread.

The event loop only queues finished lines: an unread terminal or pipe must not stop the daemon. Lines beyond the
queue's bound are dropped and counted. The standard library's loggers (trio's, mcp's, httpx's) write here, too.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, TextIO, TypeAlias

import msgspec
from loguru import logger

from daemon.history.event import Event, EventKind
from daemon.history.event_words import phrase, sentence
from daemon.host.private_files import own_file
from daemon.host.sockets import private_directory
from daemon.safety.escape import json_line, visible

if TYPE_CHECKING:
    from pathlib import Path

    from loguru import Message, Record

    from daemon.config.redaction import Redactors
    from daemon.safety.redact import Redactor


SOCKET = "/run/systemd/journal/socket"

AUDIT = "mcpd-audit"
"""The journal's identifier for heads of the audit."""

DETAILS_BYTES = 8 * 1024
"""Most bytes of an event's details in a journal entry, a datagram; `mcpd events --json` shows all."""

WARNING, INFO = 4, 6
"""Priorities (syslog(3))."""


def to_journal(event: Event) -> None:
    """Send an event to journald; neither blocks nor raises."""
    _send(entry(event))


def is_journal(environ: Mapping[str, str], fd: int | None = None) -> bool:
    """Whether a descriptor (None: stderr) leads to the journal, by JOURNAL_STREAM (systemd.exec(5))."""
    try:
        found = os.fstat(sys.stderr.fileno() if fd is None else fd)
    except (OSError, ValueError, AttributeError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def anchor(chain: str, seq: int, head: str) -> None:
    """Send the head of an audit chain to the journal, which the daemon's user cannot edit; never blocks."""
    fields = {
        "MESSAGE": f"audit head {seq} {head} of {chain}",
        "PRIORITY": str(INFO),
        "SYSLOG_IDENTIFIER": AUDIT,
        "MCPD_AUDIT_CHAIN": chain,
        "MCPD_AUDIT_SEQ": str(seq),
        "MCPD_AUDIT_HEAD": head,
    }
    _send(_encoded(fields))


def entry(event: Event) -> bytes:
    """An event as a journal entry."""
    fields = {
        "MESSAGE": visible(sentence(event)),
        "PRIORITY": str(WARNING if event.is_bad else INFO),
        "SYSLOG_IDENTIFIER": "mcpd",
        "MCPD_EVENT": str(event.kind),
        "MCPD_SERVER": event.server,
        "MCPD_INSTANCE": event.instance,
        "MCPD_SESSION": event.session,
        "MCPD_RUN": str(event.run or ""),
        "MCPD_CAUSE": str(event.cause or ""),
        "MCPD_DETAILS": _details(event),
    }
    return _encoded({name: visible(value) for name, value in fields.items() if value})


def _encoded(fields: Mapping[str, str]) -> bytes:
    return b"".join(_field(name, value.encode()) for name, value in fields.items())


def _send(entry: bytes) -> None:
    with suppress(OSError):
        _channel().sendto(entry, SOCKET)


@cache
def _channel() -> socket.socket:
    # Made with the first event, the daemon's start: when another has to be told, no descriptor may be left.
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def line_of(event: Event) -> str:
    """An event as a log line for programs, with the same data."""
    about = {"server": event.server, "instance": event.instance, "session": event.session, "run": event.run}
    fields: dict[str, object] = {
        "time": datetime.fromtimestamp(event.at).astimezone().isoformat(),
        "level": "warning" if event.is_bad else "info",
        "message": sentence(event),
        "event": str(event.kind),
        **{name: value for name, value in about.items() if value},
        "cause": None if event.cause is None else str(event.cause),
        "details": event.details,
    }
    return json_line(fields)


def _details(event: Event) -> str:
    encoded = msgspec.json.encode(event.details)
    return encoded.decode() if event.details and len(encoded) <= DETAILS_BYTES else ""


def _field(name: str, value: bytes) -> bytes:
    if b"\n" not in value:
        return f"{name}=".encode() + value + b"\n"
    return f"{name}\n".encode() + len(value).to_bytes(8, "little") + value + b"\n"


LOG = "daemon.log"
"""The log's file name, in the state directory."""

MOST_BYTES = 4 * 1024 * 1024
"""Bytes at which a new file begins; two files hold weeks of a quiet daemon, hours of a busy one."""

_STDERR = 2


class LogFile:
    """A file for log lines, and for stderr if nobody else reads it; a new file begins when one is too large."""

    def __init__(self, path: Path) -> None:
        """Open the file for the daemon's user only, and redirect stderr to it. Raises `OSError`."""
        private_directory(path.parent)
        self._path = path
        self._open()

    def write(self, text: str) -> None:
        """Write a text."""
        self._file.write(text)

    def flush(self) -> None:
        """Flush, and begin a new file if this one is too large. Raises OSError."""
        self._file.flush()
        # Not what was written here alone: stderr writes to it, too.
        if os.fstat(self._file.fileno()).st_size >= MOST_BYTES:
            self._file.close()
            self._path.replace(previous(self._path))
            self._open()

    def _open(self) -> None:
        self._file = open(self._path, "a", encoding="utf-8", errors="backslashreplace", opener=own_file)  # noqa: SIM115
        os.dup2(self._file.fileno(), _STDERR)


def previous(log: Path) -> Path:
    """The path of the previous log."""
    return log.with_name(log.name + ".1")


QUEUED_LINES = 10_000
"""Most lines that wait for a slow reader of stderr: seconds of a noisy start."""

TRACEBACK_CHARS = 64 * 1024
"""Most characters of a traceback: enough for Python's deepest recursion; a message that quotes data is cut."""

LABEL_BYTES = 256
"""Most bytes of a call's label in the log, such as a tool's name, which a client may have invented."""

FLUSH_SECONDS = 1.0
"""Seconds that a stopping daemon waits for its last lines."""

SYSLOG_LEVELS = {"TRACE": 7, "DEBUG": 7, "INFO": 6, "SUCCESS": 5, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
"""The priorities that journald reads from `<N>` at the start of a line (sd-daemon(3))."""


QUIET = frozenset({"mcp", "httpx2", "httpcore2"})
"""Libraries that log as errors what mcpd reports itself; their lines become details."""


Note: TypeAlias = tuple[int, str, float, str, float]
"""A call in the log: number of its connection, label, seconds, outcome, and its end (seconds since the epoch).
The label may be any name that a client has sent, unchecked and of any length."""


class LineWriter:
    """Writes lines to a stream in a thread, in order."""

    def __init__(self, stream: TextIO | LogFile) -> None:
        self.dropped = 0
        self.tell_event: Callable[[Event], None] = _tell_people
        """Logs an event with its fields, in place of a line with the same content (`configure`)."""
        self._closed = False
        self._reported = 0
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
        """Write the queued lines within `FLUSH_SECONDS`. Idempotent."""
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
                if self.dropped > self._reported and self._lines.empty():
                    self._stream.write(f"mcpd: {self.dropped - self._reported} lines of log were dropped\n")
                    self._reported = self.dropped
                if self._lines.empty():
                    self._stream.flush()
            except (OSError, ValueError):
                self.dropped += 1


def _tell_people(event: Event) -> None:
    if event.kind is EventKind.QUESTION_REFUSED:
        logger.bind(server=event.server).warning("{}", phrase(event))


def configure(style: str, level: str, redact: Redactors, stream: TextIO | LogFile | None = None) -> LineWriter:
    """Send all logging to a stream, stderr by default.

    `style` is `text` for people, `dated` for people's files, `journal` for systemd's journal, `json` for
    programs. The last two get events with fields (`LineWriter.tell_event`) in place of the lines with the same
    content, which are bound to `event`. A line about a server loses the secrets that the server must not know.
    """
    writer = LineWriter(sys.stderr if stream is None else stream)
    tell: Callable[[Event], None] = _tell_people
    if style == "json":
        tell = lambda event: writer(line_of(event))  # noqa: E731 - as `tell_event` below
    elif style == "journal" and stream is None and is_journal(os.environ):
        tell = to_journal
    apart = tell is not _tell_people
    all_of_them = logger.level(level).no <= logger.level("INFO").no
    writer.tell_event = lambda event: tell(event) if all_of_them or event.is_bad else None
    write = {"text": _text, "dated": _dated, "journal": _journal, "json": _json}[style]
    write_calls = _json_of_calls if style == "json" else partial(_lines_of_calls, style)

    def sink(message: Message) -> None:
        if apart and "event" in message.record["extra"]:
            return
        # Redacted before formatting, which may escape a secret beyond recognition or cut it in two.
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
    def __init__(self, record: Record, redact: Redactor | Redactors) -> None:
        self.time = record["time"]
        self.clock = f"{self.time:HH:mm:ss.SSS}"
        self.level = record["level"].name
        # It may quote up to 16 MiB from servers and clients: it is cut as well.
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
        """Subject, message and traceback; quoted texts cannot forge lines or move the cursor."""
        subject = " ".join(f"{key}={self.extra[key]}" for key in _SUBJECTS if key in self.extra)
        text = visible(f"[{subject}] {self.message}" if subject else self.message)
        return f"{text}\n{self.traceback}" if self.traceback else text


_SUBJECTS = ("server", "session", "token", "category")


def _text(entry: _Entry) -> str:
    return f"{entry.clock} {entry.level:<7} {entry.body}"


def _dated(entry: _Entry) -> str:
    return f"{entry.time:YYYY-MM-DD} {_text(entry)}"


def _journal(entry: _Entry) -> str:
    """Give each physical line a priority: journald would show the rest of a traceback as information."""
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
    """The written form of each label, redacted: only labels come from outside."""
    return {label: spell(_short(redact(label))) for label in {label for _, label, *_ in calls}}


def _short(label: str) -> str:
    shown = visible(label[:LABEL_BYTES])
    whole = len(label) <= LABEL_BYTES and len(shown.encode()) <= LABEL_BYTES
    return shown if whole else shown.encode()[: LABEL_BYTES - len("…".encode())].decode(errors="ignore") + "…"


def _lines_of_calls(style: str, entry: _Entry, calls: Sequence[Note], redact: Redactors) -> str:
    spelt = _spelt(calls, redact, str)
    head = f"{'%Y-%m-%d ' if style == 'dated' else ''}%H:%M:%S.{{}} {entry.level:<7} "
    if style == "journal":
        head = f"<{SYSLOG_LEVELS.get(entry.level, 6)}>"
    heads = {second: _at(second).strftime(head) for second in {int(at) for *_, at in calls}}
    return "\n".join(
        [
            f"{heads[int(at)].format(f'{int(at % 1 * 1000):03}')}[session={session}]"
            f" call {spelt[label]} {seconds * 1000:.1f} ms {outcome}"
            for session, label, seconds, outcome, at in calls
        ]
    )


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds).astimezone()


def _json_of_calls(entry: _Entry, calls: Sequence[Note], redact: Redactors) -> str:
    spelt = _spelt(calls, redact, lambda label: json_line(label)[1:-1])
    times = {at: _at(at).isoformat(timespec="microseconds") for *_, at in calls}
    return "\n".join(
        [
            f'{{"time": "{times[at]}", "level": "{entry.level.lower()}",'
            f' "message": "call {spelt[label]} {seconds * 1000:.1f} ms {outcome}", "session": {session}}}'
            for session, label, seconds, outcome, at in calls
        ]
    )


class _Intercept(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        level: str | int = record.levelname if record.levelname in SYSLOG_LEVELS else record.levelno
        if record.name.partition(".")[0] in QUIET:
            level = "DEBUG"
        logger.bind(logger=record.name).opt(exception=record.exc_info).log(level, "{}", record.getMessage())
