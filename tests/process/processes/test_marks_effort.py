"""Whether a server works or waits, seen from outside."""

from __future__ import annotations

from tests.unit.processes.scripts import told_by

BEGIN = """
from daemon.processes.marks import efforts

own.adopt_orphans()

def server(code):
    mark = marks.new()
    with own.handing_down(mark):
        child = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    marks.started(mark, child.pid)
    return mark, child

BURN = "import time\\nwhile time.process_time() < 0.35: pass\\n"
"""


def test_a_server_that_computes_wants_more_and_one_that_sleeps_does_not() -> None:
    script = """
busy, computing = server("print(flush=True)\\nwhile True: pass")
computing.stdout.readline()
idle, sleeping = server("print(flush=True); import time; time.sleep(600)")
sleeping.stdout.readline()
asleep = lambda: efforts([idle])[idle].wants_more
while asleep():
    pass
before = efforts([idle, busy])
while efforts([busy])[busy].cpu < before[busy].cpu + 0.2:
    pass
after = efforts([idle, busy])
tell([after[busy].wants_more, after[idle].wants_more, after[idle].cpu - before[idle].cpu < 0.1])
"""
    assert told_by(BEGIN + script) == [True, False, True]


def test_what_ended_children_have_used_counts() -> None:
    script = """
mark, child = server("import subprocess, sys, time\\n"
    f"subprocess.run([sys.executable, '-S', '-c', {BURN!r}])\\nprint(flush=True); time.sleep(600)")
child.stdout.readline()
tell(efforts([mark])[mark].cpu >= 0.3)
"""
    assert told_by(BEGIN + script) is True
