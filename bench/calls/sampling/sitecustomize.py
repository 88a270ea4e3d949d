"""Samples the process that imports it, if `BENCH_SAMPLES` names a file: found because of PYTHONPATH.

A timer interrupts it whenever it has used so much CPU, and the stack at that moment is counted. Python takes a
signal between two bytecodes, so what a call into C takes is charged to the line that called it. SIGUSR2 begins
anew.
"""

import atexit
import os
import signal
import sys
from collections import Counter
from types import FrameType

EVERY = 0.001
"""Seconds of CPU between two samples, if the kernel ticks as often; many tick each 0.004 s."""

DEEPEST = 60

_counts: Counter[str] = Counter()


def _sample(_number: int, frame: FrameType | None) -> None:
    names = []
    while frame is not None and len(names) < DEEPEST:
        code = frame.f_code
        path = "/".join(code.co_filename.removesuffix(".py").split("/")[-2:])
        names.append(f"{path}:{code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    _counts[";".join(names)] += 1


def _forget(_number: int, _frame: FrameType | None) -> None:
    _counts.clear()


def _write(path: str) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - no imports
        file.writelines(f"{count} {stack}\n" for stack, count in _counts.most_common())


if (wanted := os.environ.pop("BENCH_SAMPLES", None)) and "connect" not in sys.argv:
    signal.signal(signal.SIGUSR2, _forget)
    signal.signal(signal.SIGPROF, _sample)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
    atexit.register(_write, wanted)
