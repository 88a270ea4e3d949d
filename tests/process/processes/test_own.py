"""What a daemon knows of processes: itself, its memory, the table of all, and the marks of its servers."""

import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.processes import leftovers, marks, proc
from tests.unit.processes.dying import DyingDaemon
from tests.unit.processes.scripts import PATIENCE, told_by


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


@pytest.mark.parametrize(
    "module",
    ["daemon.scripting.runner", "daemon.scripting.text_search", "daemon.authorization.login_process"],
)
def test_servers_of_the_same_user_cannot_read_the_daemons_other_processes(module: str) -> None:
    # 3: PR_GET_DUMPABLE
    script = f"""
import ctypes, runpy
try:
    runpy.run_module({module!r}, run_name="__main__")
finally:
    print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        program = [sys.executable, "-c", script]
        done = subprocess.run(
            program, stdin=theirs.fileno(), capture_output=True, timeout=PATIENCE, check=False
        )
    assert done.stdout == b"0\n", done.stderr


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


# --- what was freed is given back ----------------------------------------------------------------------------


STAY = """
import trio
from trio.testing import MockClock
from daemon.processes.own import spare
from daemon.main.lifetime import HEAP_SECONDS, _Life
from daemon.wire.envelope import LineBuffer

def take_in():
    lines = LineBuffer(20_000_000)
    for _ in range(160):
        lines.feed(bytes(64 * 1024).replace(bytes(1), b"x"))
    assert len(lines.feed(b"end" + bytes([10]))) == 1

async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_Life(None).stay_small)
        for _ in range(3):
            take_in()
        before = spare()
        await trio.sleep(HEAP_SECONDS * 2)
        print(before, spare())
        nursery.cancel_scope.cancel()

trio.run(main, clock=MockClock(autojump_threshold=0))
"""


def test_a_daemon_gives_it_back_a_moment_after_a_large_message() -> None:
    ran = subprocess.run([sys.executable, "-c", STAY], capture_output=True, text=True, timeout=60, check=True)
    before, after = map(int, ran.stdout.split())
    # How much is kept at all is the C library's own affair.
    assert after <= max(1_000_000, before // 5)


# --- what the kernel tells of processes ----------------------------------------------------------------------


NOBODY = 1 << 22
"""Above the largest number that a process can have (proc(5), pid_max)."""


def test_a_process_is_known_by_its_parent_state_and_start() -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        found, own = proc.read(child.pid), proc.read(os.getpid())
        assert found is not None
        assert own is not None
        assert (found.pid, found.parent, own.parent) == (child.pid, os.getpid(), os.getppid())
        assert found.started >= own.started > 0
        assert not found.is_dead
        assert child.pid in proc.own_children()
        assert child.pid in proc.numbers()
    finally:
        child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    zombie = proc.read(child.pid)
    assert zombie is not None
    assert zombie.is_dead
    child.wait()


def test_a_name_like_the_rest_of_the_line_misleads_nobody() -> None:
    script = """
open("/proc/self/comm", "w").write("a) Z 1 (b")
tell([proc.read(os.getpid()).parent == os.getppid(), proc.read(os.getpid()).state])
"""
    assert told_by(script) == [True, "R"]


def test_of_a_child_that_is_hidden_wait_says_whether_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "read", lambda _pid: None)
    with subprocess.Popen(["sleep", "600"]) as child:
        alive = proc.read_child(child.pid)
        assert alive == (child.pid, os.getpid(), "?", 0, 0)
        assert not alive.is_dead
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        dead = proc.read_child(child.pid)
        assert dead is not None
        assert dead.is_dead
    assert proc.read_child(child.pid) is None


def test_whom_a_signal_may_be_sent_to() -> None:
    assert proc.may_signal(os.getpid())
    assert proc.may_signal(1) is (os.getuid() in {0, Path("/proc/1").stat().st_uid})
    assert not proc.may_signal(NOBODY)


# --- whose a process is --------------------------------------------------------------------------------------


SERVER = """
own.adopt_orphans()
mark = marks.new()
with own.handing_down(mark):
    server = sleeper()
marks.started(mark, server.pid)
"""


def test_an_orphan_is_its_servers_by_its_mark_and_nobodys_without_one() -> None:
    script = """
marks.sweep_strays(others=False)
loyal, traitor, late = orphan((mark, -1)), orphan((0, 0)), orphan((marks.HIGHEST - 1, -1))
tell([
    trees() == {mark: sorted([server.pid, loyal])},
    set(marks.find().strays) == set(marks.strays()) == {traitor, late},
])
"""
    assert told_by(SERVER + script) == [True, True]


def test_who_carries_the_mark_of_a_server_that_has_ended_is_a_stray() -> None:
    script = """
marks.sweep_strays(others=False)
left = orphan((mark, -1))
before = marks.strays()
marks.forget(mark)
tell([before, sorted(marks.strays()) == sorted([server.pid, left])])
"""
    assert told_by(SERVER + script) == [[], True]


@pytest.mark.parametrize(("others", "strays"), [(True, 1), (False, 2)])
def test_where_children_may_be_others_only_what_stems_from_us_for_sure_is_a_stray(
    others: bool, strays: int
) -> None:
    script = f"""
marks.sweep_strays(others={others})
found = [orphan((0, 0)), orphan((-1, -1))]
tell([len(marks.strays()), found[0] in marks.strays()])
"""
    assert told_by(SERVER + script) == [strays, True]


def test_while_a_process_is_started_elsewhere_nobody_is_a_stray() -> None:
    script = """
own.take_charge({})
left = orphan((0, 0))
mark = marks.new()
marks.started(mark, marks.ELSEWHERE)
child = sleeper().pid
unknown = [marks.strays(), marks.find().strays]
marks.started(mark, child)
tell([unknown, [marks.strays(), marks.find().strays] == [[left], [left]]])
"""
    assert told_by(script) == [[[], []], True]


def test_a_child_that_is_just_being_started_is_no_stray() -> None:
    script = """
marks.sweep_strays(others=False)
early = marks.new()
with own.handing_down(early):
    child = sleeper()
tell([marks.strays(), marks.find().strays, marks.find().trees[early] == [child.pid]])
"""
    assert told_by(SERVER + script) == [[], [], True]


# --- whether a server works or waits, seen from outside ------------------------------------------------------


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


# --- what a killed daemon has left is found and ended, and nobody else ---------------------------------------


POLITE, DEAF = ["polite", "marked"], ["deaf", "marked"]


def files(state: Path) -> list[Path]:
    return list((state / leftovers.FOLDER).iterdir())


def test_what_a_killed_daemon_has_left_is_ended_with_all_below_it(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": [*DEAF, *DEAF], "b": POLITE}) as daemon:
        daemon.kill()
        assert len(daemon.alive) == 3
        found = {each.server: [process.pid for process in each.processes] for each in leftovers.look(tmp_path)}
        assert found == {name: sorted(pids) for name, pids in daemon.pids.items()}
        ended, left = leftovers.end(tmp_path)
        assert ([each.server for each in ended], left) == (["a", "b"], [])
        assert {each.daemon for each in ended} == {daemon.pid}
        assert not daemon.alive
        assert not files(tmp_path)
    assert leftovers.end(tmp_path) == ([], [])


def test_a_daemon_that_lives_is_left_alone_with_its_servers(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": POLITE}) as living, DyingDaemon(tmp_path, {"a": POLITE}) as killed:
        killed.kill()
        leftovers.end(tmp_path)
        assert living.alive == living.all
        assert not killed.alive
        assert len(files(tmp_path)) == 1


def test_a_child_without_its_mark_is_known_by_its_number_and_its_time(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": ["deaf", "unmarked", "deaf", "unmarked"]}) as daemon:
        daemon.kill()
        leftovers.end(tmp_path)
        assert not daemon.alive


def test_a_number_that_is_anothers_now_is_left_alone(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": ["polite", "unmarked"]}) as daemon:
        daemon.kill()
        [path] = files(tmp_path)
        process = proc.read(daemon.all[0])
        assert process is not None
        text = path.read_text()
        path.write_text(text.replace(f'"started":{process.started}', f'"started":{process.started - 1}'))
        assert path.read_text() != text
        leftovers.end(tmp_path)
        assert daemon.alive == daemon.all


def test_what_the_daemon_had_no_time_to_write_down_is_known_by_its_mark(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": POLITE}, note=False) as daemon:
        daemon.kill()
        [found] = leftovers.look(tmp_path)
        assert str(found) == f"a server that was just being started: pid {daemon.all[0]}"
        leftovers.end(tmp_path)
        assert not daemon.alive


@pytest.mark.parametrize("limit", [marks.HIGHEST, marks.series() << marks.COUNT_BITS])
def test_another_daemon_below_a_leftover_is_spared_with_all_below_it(tmp_path: Path, limit: int) -> None:
    with DyingDaemon(tmp_path, {"a": [*DEAF, *POLITE, "polite", "unmarked"]}) as daemon:
        [top, middle] = daemon.all
        # It carries what only daemons and their servers have, as one would that a server has started.
        resource.prlimit(middle, proc.RLIMIT_LOCKS, (limit, marks.HIGHEST))
        daemon.kill()
        [found] = leftovers.look(tmp_path)
        assert [process.pid for process in found.processes] == [top]
        [lowest] = [pid for pid in proc.numbers() if (at := proc.read(pid)) and at.parent == middle]
        leftovers.end(tmp_path)
        assert daemon.alive == [middle]
        os.kill(lowest, signal.SIGKILL)


def test_after_the_machine_was_started_again_nothing_is_left(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": POLITE}) as daemon:
        daemon.kill()
        [path] = files(tmp_path)
        path.write_text(path.read_text().replace(leftovers.boot(), "another"))
        assert leftovers.look(tmp_path) == []
        assert files(tmp_path) == [path]
        assert leftovers.end(tmp_path) == ([], [])
        assert daemon.alive == daemon.all
        assert not files(tmp_path)


def test_a_file_whose_numbers_count_elsewhere_is_kept_for_a_week(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": POLITE}) as daemon:
        daemon.kill()
        [path] = files(tmp_path)
        path.write_text(path.read_text().replace(f'"namespace":{leftovers.namespace()}', '"namespace":1'))
        assert leftovers.end(tmp_path) == ([], [])
        assert files(tmp_path) == [path]
        old = path.stat().st_mtime - leftovers.FOREIGN_SECONDS - 1
        os.utime(path, (old, old))
        assert leftovers.end(tmp_path) == ([], [])
        assert not files(tmp_path)
        assert daemon.alive == daemon.all


def test_a_file_of_another_user_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DyingDaemon(tmp_path, {"a": POLITE}) as daemon:
        daemon.kill()
        monkeypatch.setattr(os, "geteuid", lambda: files(tmp_path)[0].stat().st_uid + 1)
        assert leftovers.end(tmp_path) == ([], [])
        assert daemon.alive == daemon.all


def test_what_survives_is_not_told_as_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DyingDaemon(tmp_path, {"a": [*POLITE, *POLITE], "b": POLITE}) as daemon:
        daemon.kill()
        top, below = daemon.pids["a"]
        hanging = {top, *daemon.pids["b"]}
        opened: dict[int, int] = {}

        def open_pidfd(pid: int) -> int:
            opened[fd := pidfd_open(pid)] = pid
            return fd

        def send(fd: int, number: signal.Signals) -> None:
            if opened[fd] not in hanging:
                pidfd_send_signal(fd, number)

        # As a process that hangs in the kernel: it takes no signal.
        pidfd_open, pidfd_send_signal = os.pidfd_open, signal.pidfd_send_signal
        monkeypatch.setattr(os, "pidfd_open", open_pidfd)
        monkeypatch.setattr(signal, "pidfd_send_signal", send)
        ended, left = leftovers.end(tmp_path)
        assert [(each.server, [process.pid for process in each.processes]) for each in ended] == [
            ("a", [below])
        ]
        assert {process.pid for each in left for process in each.processes} == hanging


@pytest.mark.parametrize("words", [POLITE, DEAF], ids=["polite", "deaf"])
def test_of_two_at_the_same_time_one_ends_it_and_the_other_waits_until_that_is_done(
    words: list[str], tmp_path: Path
) -> None:
    """One of them holds the file meanwhile: for two seconds, if a leftover ignores SIGTERM."""
    with DyingDaemon(tmp_path, {"a": words}) as daemon:
        daemon.kill()
        end = (
            "import sys; from pathlib import Path; from daemon.processes import leftovers, proc;"
            "ended = len(leftovers.end(Path(sys.argv[1]))[0]); it = proc.read(int(sys.argv[2]));"
            "print(ended, 'left' if it and not it.is_dead else 'gone')"
        )
        argv = [sys.executable, "-c", end, str(tmp_path), str(daemon.all[0])]
        both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        assert sorted(each.communicate(timeout=PATIENCE)[0] for each in both) == ["0 gone\n", "1 gone\n"]
