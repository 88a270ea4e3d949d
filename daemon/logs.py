"""Logging: loguru's records, written by a thread of their own, without secrets.

The event loop only puts a finished line on a queue: a terminal or a pipe that does not read must not stop the
daemon. The queue is bounded; what does not fit is dropped and counted. The standard library's loggers (trio's,
mcp's, httpx's) are led here too.
"""

from __future__ import annotations

import atexit
import json
import logging
import queue
import sys
import threading
import traceback
from typing import TYPE_CHECKING, TextIO

from loguru import logger

if TYPE_CHECKING:
    from loguru import Message, Record

    from daemon.redact import Redactor

QUEUED_LINES = 10_000
"""Lines that may wait for a slow reader of our stderr: seconds of a noisy start."""

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
        """Write what is queued, within `FLUSH_SECONDS`."""
        try:
            self._lines.put(None, timeout=FLUSH_SECONDS)
        except queue.Full:
            return
        self._thread.join(FLUSH_SECONDS)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(line + "\n")
                if self._lines.empty():
                    self._stream.flush()
            except (OSError, ValueError):
                self.dropped += 1


def configure(style: str, level: str, redact: Redactor) -> LineWriter:
    """Send all logging to stderr.

    Args:
        style: `text` for people, `journal` for systemd's journal, `json` for programs.
        level: the least severe level shown, in loguru's names.
        redact: takes secrets out of every line.
    """
    writer = LineWriter(sys.stderr)
    write = {"text": _text, "journal": _journal, "json": _json}[style]

    def sink(message: Message) -> None:
        writer(redact(write(message.record)))

    logger.remove()
    logger.add(sink, level=level, format="{message}", catch=True, diagnose=False, backtrace=False)
    logging.basicConfig(handlers=[_Intercept()], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)
    atexit.register(writer.close)
    return writer


def _subject(record: Record) -> str:
    extra = record["extra"]
    return " ".join(f"{key}={extra[key]}" for key in ("server", "session", "category") if key in extra)


def _body(record: Record) -> str:
    subject = _subject(record)
    text = f"[{subject}] {record['message']}" if subject else record["message"]
    error = record["exception"]
    if error is not None and error.value is not None:
        text += "\n" + _traceback(error.value)
    return text


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def _text(record: Record) -> str:
    return f"{record['time']:HH:mm:ss.SSS} {record['level'].name:<7} {_body(record)}"


def _journal(record: Record) -> str:
    """One priority per physical line, or journald shows the rest of a traceback as information."""
    prefix = f"<{SYSLOG_LEVELS.get(record['level'].name, 6)}>"
    return "\n".join(prefix + line for line in _body(record).split("\n"))


def _json(record: Record) -> str:
    error = record["exception"]
    fields: dict[str, object] = {
        "time": record["time"].isoformat(),
        "level": record["level"].name.lower(),
        "message": record["message"],
        **{key: value for key, value in record["extra"].items() if isinstance(value, (str, int, float))},
    }
    if error is not None and error.value is not None:
        fields["exception"] = _traceback(error.value)
    return json.dumps(fields, ensure_ascii=False)


class _Intercept(logging.Handler):
    """Leads the standard library's logging into loguru."""

    def emit(self, record: logging.LogRecord) -> None:
        """Forward one record."""
        level: str | int = record.levelname if record.levelname in SYSLOG_LEVELS else record.levelno
        if record.name.partition(".")[0] in QUIET:
            level = "DEBUG"
        logger.bind(logger=record.name).opt(exception=record.exc_info).log(level, "{}", record.getMessage())
