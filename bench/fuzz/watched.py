"""`mcpd`, with an eye on its loop: run as `python watched.py FILE run ...`, as `python -m daemon run ...`.

FILE gets eight bytes, a double that can be mapped: the longest turn of the loop in milliseconds of its thread's
processor time, which says the same on a busy machine and on an idle one. Whoever reads it may set it to 0.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from functools import partial
from pathlib import Path

import trio

from daemon.cli import main


class Turns(trio.abc.Instrument):
    """Measures from one wait for input to the next."""

    def __init__(self, path: Path) -> None:
        """Begin with 0."""
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8)
        self._begun = time.thread_time()

    def after_io_wait(self, timeout: float) -> None:
        """A turn begins."""
        self._begun = time.thread_time()

    def before_io_wait(self, timeout: float) -> None:
        """It has ended."""
        took = (time.thread_time() - self._begun) * 1000
        if took > struct.unpack("d", self._shared)[0]:
            self._shared[:] = struct.pack("d", took)


if __name__ == "__main__":
    turns = Turns(Path(sys.argv.pop(1)))
    trio.run = partial(trio.run, instruments=[turns])  # type: ignore[assignment]  # before anybody runs it
    main()
