"""What was freed is given back."""

from __future__ import annotations

import subprocess
import sys

STAY = """
import trio
from trio.testing import MockClock
from daemon.processes.own import spare
from daemon.main.lifetime import HEAP_SECONDS, _Life
from daemon.wire.frames import LineBuffer

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
