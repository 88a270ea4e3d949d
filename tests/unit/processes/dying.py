"""Daemons that start servers and are killed: as much of one as writes down what it starts."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import attrs

from daemon.processes import proc
from tests.unit.processes.scripts import PATIENCE, ROOT

SERVER = """
import os, resource, signal, subprocess, sys, time
program, deaf, unmarked, *below = sys.argv[1:]
if deaf == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = 0
if below:
    words = [sys.executable, "-c", program, program, *below]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    child = int(started.stdout.readline().split()[0])
if unmarked == "unmarked":
    resource.prlimit(0, 10, (0, 0))
import os
print(os.getpid(), child, flush=True)
time.sleep(600)
"""
"""Says its number and that of its child; then it is there, and ends of SIGTERM if it is not deaf."""

DAEMON = """
import json, os, subprocess, sys, time
from pathlib import Path
from daemon.processes import leftovers as starts, marks, own

state, program, servers, note = json.loads(sys.argv[1])
own.take_charge({})
begun = starts.Starts.begin(Path(state))
found = {}
for name, words in servers.items():
    mark = marks.new()
    with own.handing_down(mark):
        child = subprocess.Popen(
            [sys.executable, "-c", program, program, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    marks.started(mark, child.pid)
    if note:
        begun.note(mark, child.pid, name)
    found[name] = [int(word) for word in child.stdout.readline().split() if word != b"0"]
while note and len(starts.read(begun._fd)[1]) < len(servers):
    time.sleep(0.005)
print(json.dumps([os.getpid(), found]), flush=True)
sys.stdin.read()
begun.end(keep=False)
"""


@attrs.define(eq=False)
class DyingDaemon:
    """A daemon with servers: lists of words for `SERVER`, by name."""

    state: Path
    servers: dict[str, list[str]]
    note: bool = True
    """Whether it writes down what it starts; else only that it is there."""
    pids: dict[str, list[int]] = attrs.field(factory=dict)
    """What it has started, by server."""
    pid: int = 0
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        job = json.dumps([str(self.state), SERVER, self.servers, self.note])
        words = [sys.executable, "-c", DAEMON, job]
        self._process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        said: tuple[int, Any] = json.loads(self._process.stdout.readline())
        self.pid, self.pids = said
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        for pid in self.all:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def all(self) -> list[int]:
        """Everything that it has started."""
        return [pid for pids in self.pids.values() for pid in pids]

    @property
    def alive(self) -> list[int]:
        """What of it lives."""
        seen = [proc.read(pid) for pid in self.all]
        return [process.pid for process in seen if process is not None and not process.is_dead]

    def kill(self) -> None:
        """Kill it with SIGKILL; what it has started stays."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def stop(self) -> None:
        """Have it end as it should."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
