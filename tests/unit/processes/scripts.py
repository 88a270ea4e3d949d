"""Python in a process of its own: what is tried there is not undone."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.waiting import run_to_end

ROOT = Path(__file__).parents[3]

PATIENCE = 60.0
"""Seconds that a script may take: an interpreter needs several on a busy machine."""

BEGIN = """
import json, os, resource, signal, subprocess, sys, time
from daemon.processes import proc
from daemon.processes import marks, own

def trees():
    # Those of other daemons are seen, too.
    return {mark: sorted(pids) for mark, pids in marks.find().trees.items() if mark in marks._children}

def tell(value):
    print(json.dumps(value))

def sleeper():
    return subprocess.Popen(["sleep", "600"])

def orphan(mark):
    # A grandchild that carries a mark, is handed to us, and is known by its pid.
    reading, writing = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            resource.prlimit(0, proc.RLIMIT_LOCKS, mark)
            os.write(writing, b"%d" % os.getpid())
            time.sleep(600)
        os._exit(0)
    os.wait()
    return int(os.read(reading, 16))
"""

END = """
own.adopt_orphans()
while children := proc.own_children():
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    os.wait()
"""


def told_by(script: str) -> Any:
    """The JSON that a script tells; whatever it has started is killed with it."""
    done = run_to_end([sys.executable, "-c", BEGIN + script + END], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
