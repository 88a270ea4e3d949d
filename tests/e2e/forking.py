"""Daemons and commands forked from a process that has imported all of mcpd, which saves half a second each.

Otherwise they are as with `python -m daemon run`: each daemon has its own environment, log and exit status.
Programs on an SDK can be forked in the same way.

`test_lifecycle` and the tests of `mcpd run` test the start with a new interpreter.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from tests.waiting import WAIT

ROOT = Path(__file__).parents[2]

ENDS_WITHIN = 60.0
"""Seconds for the forking process to begin, and to end after its standard input."""

MCPD = """
import anyio._backends._trio, anyio.streams.tls, email.message, encodings.idna
import httpcore2, importlib, jsonschema_rs, pkgutil, rapidfuzz.process, rich.markdown, rich.prompt, tenacity
import daemon.checks
import daemon.cli
from daemon import tree
from daemon.actors import control, summarizer
from daemon.clients.doors import websocket
from daemon.clients.doors.http import door
from daemon.console import application, console
from daemon.host import logs
from daemon.main import lifetime, run
from daemon.operators import command_table
from daemon.state import postgres, store
from daemon.upstreams.transports import http, sse, stdio, ws

for room in daemon.checks, daemon.cli:
    for each in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
        importlib.import_module(each.name)
main = daemon.cli.main
"""
"""What daemons and commands need, imported, also what they import when it is asked for; `main` is a life."""

FORKER = """
import atexit, fcntl, gc, json, os, select, sys, termios

def live(job, terminal):
    if terminal is None:
        log = os.open(job["log"], os.O_WRONLY | os.O_APPEND)
        null = os.open(os.devnull, os.O_RDWR)
        given = os.open(job["given"], os.O_RDONLY) if job["given"] else null
        out = os.open(job["out"], os.O_WRONLY | os.O_APPEND) if job["out"] else null
    else:
        # A session of its own, whose terminal this is: Ctrl-C reaches nobody else.
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        given = out = log = terminal
    for number, fd in enumerate((given, out, log)):
        os.dup2(fd, number)
    os.closerange(3, 1024)
    if terminal is not None:
        # Those of before know that they are no terminal.
        sys.stdin, sys.stdout, sys.stderr = (open(fd, mode, 1, closefd=False) for fd, mode in enumerate("rww"))
    os.chdir(job["directory"])
    os.environ.clear()
    os.environ.update(job["environ"])
    sys.argv[1:] = job["words"]
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code or 0
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    # To take an interpreter to pieces that has imported all of this costs more than the rest of a life.
    os._exit(status)

def tell(**event):
    os.write(1, json.dumps(event).encode() + b"\\n")

# No life looks through what all share.
gc.collect()
gc.freeze()
lives = {}
rest = b""
while True:
    ready, _, _ = select.select([0, *lives], [], [])
    for fd in set(ready) - {0}:
        pid = lives.pop(fd)
        os.close(fd)
        tell(ended=pid, status=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    if 0 in ready:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            break
        *jobs, rest = (rest + chunk).split(b"\\n")
        for job in map(json.loads, jobs):
            # Open before the life is told: a terminal that nobody has open ends for who reads its other end.
            terminal = os.open(job["terminal"], os.O_RDWR | os.O_NOCTTY) if job["terminal"] else None
            pid = os.fork()
            if pid == 0:
                live(job, terminal)
            if terminal is not None:
                os.close(terminal)
            lives[os.pidfd_open(pid)] = pid
            tell(began=pid)
"""
"""Reads jobs; reports the pid of each started process, and the exit status of each ended one."""


@attrs.define(eq=False)
class Life:
    """A forked process, with the part of `subprocess.Popen` that tests need."""

    pid: int
    returncode: int | None = None
    _ended: threading.Event = attrs.field(factory=threading.Event)

    def poll(self) -> int | None:
        """The exit status, if it has ended."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status; raises `TimeoutExpired` after `timeout` seconds."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"the daemon with pid {self.pid}", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Signal the process, unless it is known to have ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def end(self, status: int) -> None:
        """Note the exit status."""
        self.returncode = status
        self._ended.set()


class Forker:
    """The process that forks daemons, or other programs with a `main`; one for all tests of a folder."""

    def __init__(self, imports: str = MCPD) -> None:
        self._imports = imports
        self._process: subprocess.Popen[bytes] | None = None
        self._lives: dict[int, Life] = {}
        self._begun: list[Life] = []
        self._turn = threading.Lock()
        self._news = threading.Condition()

    def fork(
        self,
        words: list[str],
        environ: Mapping[str, str],
        directory: Path,
        log: Path,
        out: Path | None = None,
        given: Path | None = None,
    ) -> Life:
        """Begin `mcpd WORDS` in a directory; stderr, and stdout if given, go to the end of files that exist.

        What it is `given` on stdin is the content of a file.
        """
        places = {"log": str(log), "out": str(out or ""), "given": str(given or ""), "terminal": ""}
        return self._begin(words, environ, directory, **places)

    def at_terminal(self, words: list[str], environ: Mapping[str, str], directory: Path, name: str) -> Life:
        """Begin `mcpd WORDS` in a session of its own, at the terminal of this name."""
        return self._begin(words, environ, directory, log="", out="", terminal=name)

    def _begin(self, words: list[str], environ: Mapping[str, str], directory: Path, **places: str) -> Life:
        assert self._process is not None
        assert self._process.stdin is not None
        job = {"words": words, "environ": dict(environ), "directory": str(directory), **places}
        with self._turn, self._news:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            assert self._news.wait_for(lambda: self._begun, ENDS_WITHIN), "nothing was forked"
            return self._begun.pop()

    def run(
        self, words: list[str], environ: Mapping[str, str], directory: Path, given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """`mcpd WORDS` to its end, as `subprocess.run` does it."""
        with (
            tempfile.NamedTemporaryFile() as out,
            tempfile.NamedTemporaryFile() as err,
            tempfile.NamedTemporaryFile("w") as stdin,
        ):
            stdin.write(given)
            stdin.flush()
            life = self.fork(words, environ, directory, Path(err.name), Path(out.name), Path(stdin.name))
            try:
                status = life.wait(WAIT)
            finally:
                life.kill()
            return subprocess.CompletedProcess(words, status, out.read().decode(), err.read().decode())

    @property
    def is_running(self) -> bool:
        """Whether daemons can be forked: between `start` and `stop`."""
        return self._process is not None

    def start(self) -> None:
        """Start the process and import everything."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._imports + FORKER],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in iter(said.readline, b""):
                with self._news:
                    self._take(json.loads(line))
                    self._news.notify_all()

    def _take(self, event: dict[str, Any]) -> None:
        if "began" in event:
            life = self._lives[event["began"]] = Life(event["began"])
            self._begun.append(life)
        else:
            self._lives.pop(event["ended"]).end(event["status"])

    def stop(self) -> None:
        """End the process."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(ENDS_WITHIN)
        self._process = None


FORKS = Forker()
"""The forker of this test run."""
