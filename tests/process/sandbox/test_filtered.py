"""The kernel and bubblewrap take the filter, and it refuses real calls and spares real programs."""

import errno
import json
import os
import sys
import tempfile

from daemon.sandbox.bubblewrap import filter_for
from tests.unit.sandbox.calls import MACHINES, REFUSED
from tests.waiting import run_to_end

MACHINE = os.uname().machine
COLUMN = MACHINES.index(MACHINE)

CALLS = """
import ctypes, json, os, sys
call = ctypes.CDLL(None, use_errno=True).syscall
found = {}
for name, number, *arguments in json.loads(sys.argv[1]):
    ctypes.set_errno(0)
    value = call(ctypes.c_long(number), *map(ctypes.c_ulong, arguments))
    found[name] = ctypes.get_errno() if value == -1 else 0
print(json.dumps(found))
"""

PROGRAM = """
import concurrent.futures, multiprocessing, os, socket, subprocess, threading
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert sum(pool.map(abs, range(-9, 0))) == 45
with multiprocessing.get_context("fork").Pool(2) as workers:
    assert workers.map(abs, [-1, 2]) == [1, 2]
for start in ({}, {"start_new_session": True}, {"preexec_fn": lambda: None}):
    assert subprocess.run(["sh", "-c", "echo a | cat; (exit 3)"], capture_output=True, **start).returncode == 3
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
    socket.socket(family, socket.SOCK_DGRAM).close()
one, other = socket.socketpair()
parent, child = os.openpty()
assert os.get_terminal_size(child) and os.isatty(child)
print("all well")
"""


def inside(*words: str, filtered: bool = True) -> str:
    """The output of a command under bubblewrap."""
    bwrap = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all"]
    code = filter_for(MACHINE)
    assert code
    with tempfile.TemporaryFile() as file:
        file.write(code)
        file.seek(0)
        if filtered:
            bwrap += ["--seccomp", str(file.fileno())]
        done = run_to_end(
            [*bwrap, "--cap-drop", "ALL", "--die-with-parent", "--", *words], pass_fds=[file.fileno()]
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def answers(*calls: tuple[str | int, ...], filtered: bool = True) -> dict[str, int]:
    """The errno that the kernel answers each call with."""
    words = [sys.executable, "-I", "-S", "-c", CALLS, json.dumps(calls)]
    found: dict[str, int] = json.loads(inside(*words, filtered=filtered))
    return found


def test_real_calls_are_refused_that_the_kernel_would_have_answered_otherwise() -> None:
    # Whether the filter is there or not, vhangup(2) and reboot(2) are better not tried.
    numbers = {name: each[COLUMN] for name, each in REFUSED.items() if name not in {"vhangup", "reboot"}}
    odd = 2**63
    calls = [(name, number, odd, odd, odd, odd, odd) for name, number in numbers.items()]
    assert set(answers(*calls).values()) == {errno.EPERM}
    otherwise = answers(*calls, filtered=False)
    spared = {name for name, found in otherwise.items() if found != errno.EPERM}
    assert spared >= {"process_vm_readv", "ptrace", "pidfd_getfd", "kcmp", "unshare"}


def test_threads_processes_sockets_and_terminals_work() -> None:
    assert inside(sys.executable, "-I", "-c", PROGRAM) == "all well\n"
