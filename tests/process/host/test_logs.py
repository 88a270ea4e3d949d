"""What is logged, how, and what never is; most of it in a process of its own, whose stderr is looked at."""

import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from daemon.causes import Cause
from daemon.history.event import Event, EventKind
from daemon.host import logs
from daemon.safety.redact import CUT, SHOWN, Redactor
from tests.e2e.forking import Forker
from tests.unit.cli.daemons import environment
from tests.unit.host.test_private_files import place
from tests.waiting import PATIENCE

ROOT = Path(__file__).parent.parent.parent

PREPARE = """
import logging, sys, warnings
from loguru import logger
from daemon.host import logs
from daemon.config.redaction import Redactors

def main():
    global redact, writer
    redact = Redactors(sys.argv[3:])
    writer = logs.configure(sys.argv[1], "DEBUG", redact)
    exec(sys.argv[2], globals())
    writer.close()
"""

FORKS = Forker(PREPARE)


@pytest.fixture(scope="module", autouse=True)
def forks() -> Iterator[None]:
    """Most processes are forked from one that has imported all they need."""
    FORKS.start()
    yield
    FORKS.stop()


def logged(style: str, code: str, *secrets: str) -> str:
    """What a process that runs `code` writes to stderr."""
    done = FORKS.run([style, code, *secrets], os.environ, ROOT)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr


def records(code: str, *secrets: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in logged("json", code, *secrets).splitlines()]


# --- formats -----------------------------------------------------------------------------------------------


UNSAFE = """
from daemon.history.event import Event, EventKind
writer.tell_event(Event(kind=EventKind.QUESTION_REFUSED, server="git", text="its url is none", number=1))
writer.tell_event(Event(kind=EventKind.OVERLOADED, server="git", instance="x", session="ci", run=3, number=2))
"""
"""Two events, of which one has no line of its own."""


def test_a_question_that_was_refused_is_told_in_any_style_once_and_no_good_event_among_warnings() -> None:
    [line] = logged("text", UNSAFE).splitlines()
    assert line.endswith("WARNING [server=git] 1 question refused and not shown: its url is none")
    first, second = records(UNSAFE)
    assert [first["event"], "session" in first, second["event"]] == ["question-refused", False, "overloaded"]
    assert [second[each] for each in ("server", "instance", "session", "run")] == ["git", "x", "ci", 3]
    ready = 'writer.tell_event(Event(kind=EventKind.READY, server="git", number=3))'
    told = records(f'writer.close()\nwriter = logs.configure("json", "WARNING", redact)\n{UNSAFE}\n{ready}')
    assert [each["event"] for each in told] == ["question-refused", "overloaded"]


@pytest.mark.parametrize(("style", "is_told"), [("text", True), ("dated", True), ("json", False)])
def test_the_line_of_an_event_is_left_out_where_the_event_itself_is_told(style: str, is_told: bool) -> None:
    said = logged(style, "from loguru import logger; logger.bind(event=True).info('it refused h')")
    assert ("it refused h" in said) is is_told


def test_text_is_for_people() -> None:
    text = logged("text", 'logger.bind(server="git", session=3, other=1).warning("hello {}", "you")')
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} WARNING \[server=git session=3\] hello you\n", text)


def test_the_journal_gets_a_priority_on_every_line() -> None:
    code = """
logger.debug("d"); logger.info("a\\nb"); logger.warning("w")
try:
    1 / 0
except ZeroDivisionError:
    logger.bind(server="s").exception("oops")
"""
    lines = logged("journal", code).splitlines()
    # A line feed in what somebody said is shown, not obeyed: it could forge a line.
    assert lines[:3] == ["<7>d", "<6>a\\x0ab", "<4>w"]
    assert lines[3] == "<3>[server=s] oops"
    assert len(lines) > 5
    assert all(line.startswith("<3>") for line in lines[3:])
    assert lines[-1] == "<3>ZeroDivisionError: division by zero"


def test_json_holds_one_record_a_line_with_its_extras() -> None:
    code = """
logger.bind(server="git", session=3, thing=object()).info("line\\nbreak ☃")
try:
    raise KeyError("k")
except KeyError:
    logger.exception("oops")
"""
    first, second = records(code)
    assert (first["level"], first["message"]) == ("info", "line\nbreak ☃")
    assert (first["server"], first["session"]) == ("git", 3)
    assert "thing" not in first
    assert "T" in first["time"]
    assert (second["level"], second["message"]) == ("error", "oops")
    assert second["exception"].endswith("KeyError: 'k'")


def test_a_line_about_a_server_loses_what_that_server_was_given() -> None:
    code = (
        'redact.of("a").learn(["sunshine"])\nfor each in "ab": logger.bind(server=each).info("likes sunshine")'
    )
    said = logged("text", code)
    assert "[server=a] likes [redacted]" in said
    assert "[server=b] likes sunshine" in said


@pytest.mark.parametrize("style", ["text", "journal", "json"])
def test_whatever_a_server_or_a_client_says_a_record_has_a_bound(style: str) -> None:
    code = """
long = "x" * 5_000_000
logger.bind(server=long).info("{}", long)
try:
    raise ValueError(long)
except ValueError:
    logger.exception("oops")
"""
    said = logged(style, code)
    assert f"x{CUT}" in said
    assert len(said) < 4 * SHOWN + 2 * logs.TRACEBACK_CHARS


# --- the standard library's loggers ------------------------------------------------------------------------


def test_the_standard_librarys_loggers_are_led_here() -> None:
    code = """
logging.getLogger("httpx").warning("slow: %s", "url")
logging.getLogger("httpx").info("hidden")
logging.getLogger("odd").log(35, "between")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("trio").exception("oops")
warnings.warn("old")
"""
    first, second, third, warned = records(code)
    assert (first["level"], first["message"], first["logger"]) == ("warning", "slow: url", "httpx")
    assert second["message"] == "between"
    assert (third["level"], third["message"]) == ("error", "oops")
    assert "ZeroDivisionError" in third["exception"]
    assert "UserWarning: old" in warned["message"]


# --- secrets -----------------------------------------------------------------------------------------------

SECRETS = [
    "canary-0123456789",
    "canary ☃ é",
    "(canary)[.*]+",
    'canary "quoted"',
    "canary\\b\\slash",
    "c\tanary",
]
"""Values with everything that a format might write differently."""
LEAKS = """
for secret in sys.argv[3:]:
    logger.info("plain " + secret)
    logger.info("formatted {}", secret)
    logger.bind(server=secret, note=secret).info("extra")
    logging.getLogger("x").warning("library %s", secret)
    try:
        raise ValueError("exception " + secret)
    except ValueError:
        logger.exception("raised")
    try:
        try:
            raise ValueError("cause " + secret)
        except ValueError as error:
            raise KeyError("chained") from error
    except KeyError:
        logger.exception("raised from")
"""

SHAPES = [
    "Authorization: Bearer hunter2-canary",
    'config "password=hunter2-canary" is bad',
    '{"password": "hunter2-canary"}',
    "https://user:hunter2-canary@host/",
    "api_key='hunter2-canary'",
    "secret=hunter2-canary\nnext line",
]
"""What servers print of their own accord: the shape alone gives it away."""

# --- a reader that does not read ---------------------------------------------------------------------------


class Blocked(io.StringIO):
    """A stream that stands still until told."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.taken = threading.Semaphore(0)

    def write(self, text: str) -> int:
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        try:
            return super().write(text)
        finally:
            self.taken.release()

    def wait_taken(self, count: int) -> None:
        """Until so many writes were taken."""
        for _ in range(count):
            assert self.taken.acquire(timeout=PATIENCE)


def test_a_stream_that_stands_still_holds_nobody_up_and_has_a_bound() -> None:
    stream = Blocked()
    writer = logs.LineWriter(stream)
    writer("first")
    assert stream.entered.wait(PATIENCE)
    for number in range(logs.QUEUED_LINES + 7):
        writer(str(number))
    assert writer.dropped == 7
    stream.gate.set()
    wanted = ["first", *map(str, range(logs.QUEUED_LINES)), "mcpd: 7 lines of log were dropped"]
    stream.wait_taken(len(wanted))
    writer.close()
    assert stream.getvalue().splitlines() == wanted


def test_a_process_whose_stderr_nobody_reads_ends_all_the_same() -> None:
    """A terminal that was stopped, a journal that hangs: a daemon that is told to end must end (R17)."""
    reading, writing = os.pipe()
    code = "for number in range(2000): logger.info('x' * 1000)"
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{PREPARE}\nmain()", "text", code], cwd=ROOT, stderr=writing
        )
        try:
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(reading)
        os.close(writing)


STYLES = pytest.mark.parametrize("style", ["text", "journal", "json"])


@STYLES
def test_a_record_of_many_calls_is_a_short_line_for_each_that_no_name_forges(style: str) -> None:
    code = r"""
names = ["x", "ä", "\x1b", "\U000e0041", "\U0001f600"]
whole = "a" * (LABEL_BYTES - 2) + "/b"
logger.bind(calls=[(3, "a/b", 0.001, "ok", 0), (7, "c/d hunter2", 1.5, "UnknownTool", 0),
    (1, 'a\n"b"\x1b[2J\u202e', 0, "UnknownTool", 0), (1, whole, 0, "ok", 0),
    *((1, name * 100_000, 0, "UnknownTool", 0) for name in names)]).info("8")
"""
    lines = logged(style, code.replace("LABEL_BYTES", str(logs.LABEL_BYTES)), "hunter2").splitlines()
    if style == "json":
        told = [json.loads(line) for line in lines]
        assert {(each["level"], len(each["time"])) for each in told} == {("info", 32)}
        said = [f"[session={each['session']}] {each['message']}" for each in told]
    else:
        said = [line[line.index("[session=") :] for line in lines]
    assert said[:4] == [
        "[session=3] call a/b 1.0 ms ok",
        "[session=7] call c/d [redacted] 1500.0 ms UnknownTool",
        r'[session=1] call a\x0a"b"\x1b[2J\u202e 0.0 ms UnknownTool',
        f"[session=1] call {'a' * (logs.LABEL_BYTES - 2)}/b 0.0 ms ok",
    ]
    labels = [each.partition("call ")[2].partition(" 0.0 ms UnknownTool")[0] for each in said[4:]]
    assert len(labels) == 5
    assert all(label.endswith("…") for label in labels)
    assert all(logs.LABEL_BYTES - 8 < len(label.encode()) <= logs.LABEL_BYTES for label in labels)
    assert max(map(len, lines)) < 1000


@STYLES
def test_no_secret_and_nothing_that_looks_like_one_is_written(style: str) -> None:
    shapes = f"for shape in {SHAPES!r}: logger.info('{{}}', shape)"
    written = logged(style, LEAKS + shapes, *SECRETS)
    for word in ("plain", "formatted", "library", "exception", "cause"):
        assert written.count(f"{word} [redacted]") >= len(SECRETS), word
    for secret in (*SECRETS, "hunter2"):
        for spelling in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
            assert spelling not in written
    if style == "json":
        messages = [json.loads(line)["message"] for line in written.splitlines()]
        assert messages[-len(SHAPES) :] == [Redactor([])(shape) for shape in SHAPES]


# --- the log of a daemon that nobody watches stays small, private, and has what is written to s --------------


WRITES = f"""
import os, pathlib, sys
from daemon.host.logs import LogFile
log = LogFile(pathlib.Path(sys.argv[1]))
for text in ("first\\n", "x" * {logs.MOST_BYTES} + "\\n", "second\\n"):
    log.write(text)
    log.flush()
os.write(2, b"to stderr\\n")
"""


def log_written(path: Path) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-c", WRITES, str(path)]
    return subprocess.run(words, env=environment(), timeout=PATIENCE, check=False, capture_output=True)


def test_it_is_private_of_bounded_size_and_has_stderr(tmp_path: Path) -> None:
    path = tmp_path / "state" / "daemon.log"
    assert log_written(path).returncode == 0
    assert path.read_text() == "second\nto stderr\n"
    assert logs.previous(path).read_text().startswith("first\nxxx")
    assert {path.stat().st_mode & 0o777, logs.previous(path).stat().st_mode & 0o777} == {0o600}


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_is_no_file_is_refused_in_its_place(tmp_path: Path, kind: str) -> None:
    place(tmp_path / "daemon.log", kind)
    ran = log_written(tmp_path / "daemon.log")
    assert ran.returncode == 1
    assert b"is not a regular file: remove it" in ran.stderr
    assert not (tmp_path / "else").exists()


# --- events in systemd's journal, as a journal hears them ----------------------------------------------------


KILLED = Event(
    kind=EventKind.ENDED,
    at=100.0,
    server="git",
    instance="git#2",
    run=3,
    text="killed\x1b[2J by SIGKILL",
    cause=Cause.KILLED,
    details={"seconds": 2.5, "retrySeconds": 1.0},
)


def fields(said: bytes) -> dict[str, str]:
    """The fields of an entry, none of which spans lines here."""
    return dict(line.split("=", 1) for line in said.decode().splitlines())


def test_an_entry_has_fields_to_look_it_up_by(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SOCKET", str(sockets / "journal"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.bind(str(sockets / "journal"))
        journald.settimeout(30)
        logs.to_journal(KILLED)
        told = fields(journald.recv(65536))

    assert told["MESSAGE"] == "git#2: ended after 2.5s, next in 1.0s: killed\\x1b[2J by SIGKILL"
    assert (told["PRIORITY"], told["SYSLOG_IDENTIFIER"]) == ("4", "mcpd")
    assert (told["MCPD_EVENT"], told["MCPD_SERVER"], told["MCPD_INSTANCE"]) == ("ended", "git", "git#2")
    assert (told["MCPD_RUN"], told["MCPD_CAUSE"]) == ("3", "killed")
    assert json.loads(told["MCPD_DETAILS"])["seconds"] == 2.5
    assert "MCPD_SESSION" not in told


def test_nobody_forges_a_field_with_a_name_of_two_lines() -> None:
    hostile = Event(kind=EventKind.STARTED, server="git\nMCPD_CAUSE=none\nPRIORITY=0")
    told = fields(logs.entry(hostile))
    assert (told["PRIORITY"], "MCPD_CAUSE" in told) == ("6", False)


def test_without_a_journal_and_with_a_full_one_nothing_waits_and_an_event_needs_no_descriptor(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SOCKET", str(sockets / "journal"))
    logs.to_journal(KILLED)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.bind(str(sockets / "journal"))
        monkeypatch.setattr(socket, "socket", Mock(side_effect=OSError))
        for _ in range(10_000):
            logs.to_journal(KILLED)
        assert journald.recv(65536, socket.MSG_DONTWAIT)


def test_stderr_is_the_journals_if_systemd_says_so(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as stream:
        found = os.fstat(stream.fileno())
        said = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert logs.is_journal(said, stream.fileno())
        assert not logs.is_journal({}, stream.fileno())
        assert not logs.is_journal({"JOURNAL_STREAM": "1:2"}, stream.fileno())
