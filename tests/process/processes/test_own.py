"""What the daemon asks of the kernel for itself."""

from __future__ import annotations

from tests.unit.processes.scripts import told_by


def test_whoever_takes_charge_is_closed_adopts_orphans_and_leaves_no_core() -> None:
    script = """
import ctypes
prctl = ctypes.CDLL(None).prctl
own.take_charge({})
adopting = ctypes.c_int()
prctl(37, ctypes.byref(adopting), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
stray = orphan((0, 0))
core = resource.prlimit(0, resource.RLIMIT_CORE)[0]
tell([prctl(3, 0, 0, 0, 0), adopting.value, core, marks.strays() == [stray]])  # 3: PR_GET_DUMPABLE
"""
    assert told_by(script) == [0, 1, 0, True]


def test_a_child_that_was_there_before_is_nobodys_business() -> None:
    script = """
before = sleeper()
own.take_charge({})
stray = orphan((0, 0))
tell(marks.strays() == [stray])
"""
    assert told_by(script)


def test_while_a_server_lives_that_could_be_given_no_mark_nobody_is_a_stray() -> None:
    script = """
from loguru import logger
said = []
logger.remove()
logger.add(lambda line: said.append(str(line)), level="ERROR")
own.take_charge({})
resource.prlimit(0, proc.RLIMIT_LOCKS, (0, 0))
given = [marks.new(), marks.new()]
for mark in given:
    with own.handing_down(mark):
        marks.started(mark, sleeper().pid)
left = orphan((0, 0))
found = [marks.strays(), marks.find().strays]
for mark in given:
    marks.forget(mark)
tell([found, left in marks.strays(), ["lowered the daemon's RLIMIT_LOCKS" in line for line in said]])
"""
    assert told_by("os.setresuid(4711, 4711, 4711) if os.getuid() == 0 else None\n" + script) == [
        [[], []],
        True,
        [True],
    ]
