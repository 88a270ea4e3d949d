"""Waiting for what no event tells of: another thread, another process, the far end of a socket."""

import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import trio

T = TypeVar("T")

PATIENCE = 30.0
"""Real seconds after which a wait is in vain: long enough for a loaded machine."""

WAIT = 180.0
"""Real seconds that another process may take: a browser needs more than sixty on a very busy machine."""

LOOK_SECONDS, LONGEST_LOOK, GROWTH = 0.03, 0.2, 1.15
"""Between the first two looks at another process, between the last ones, and by what factor it grows."""


def pauses() -> Iterator[float]:
    """Seconds between looks at another process, which wants the processor as well.

    Whoever has waited for a while waits a seventh of it longer; a look costs milliseconds of a processor.
    """
    pause = LOOK_SECONDS
    while True:
        yield pause
        pause = min(GROWTH * pause, LONGEST_LOOK)


async def until(
    holds: Callable[[], object],
    why: Callable[[], object] = str,
    *,
    seconds: float = PATIENCE,
    every: float = 0.0,
) -> None:
    """Look again and again until something holds; `why` is shown if it never does.

    Args:
        holds: the look.
        why: what an expired wait says.
        seconds: the bound, by the real clock whatever trio's says.
        every: seconds of trio's clock between two looks. Without any, a virtual clock stands still meanwhile.
    """
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, why()
        if every:
            await trio.sleep(every)
        else:
            # A checkpoint alone would keep the interpreter busy, and other threads waiting for it.
            await trio.to_thread.run_sync(_nothing)


def _nothing() -> None: ...


async def in_time(awaited: Awaitable[T], seconds: float = PATIENCE) -> T:
    """What is awaited, unless it takes too long by trio's clock."""
    with trio.fail_after(seconds):
        return await awaited


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks are cancelled at the end of the block."""
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def beside(task: Callable[..., Awaitable[object]], *args: object) -> AsyncIterator[trio.Nursery]:
    """Run a task in the background of the block."""
    async with background() as nursery:
        nursery.start_soon(task, *args)
        yield nursery


def eventually(look: Callable[[], T | Literal[False] | None], why: Callable[[], object] = str) -> T:
    """What a look finds once it finds something, for tests without a loop; `why` is shown if it was in vain."""
    end, waits = time.monotonic() + WAIT, pauses()
    while not (found := look()):
        assert time.monotonic() < end, why()
        time.sleep(next(waits))
    return found


def run_to_end(
    words: Sequence[str | Path], *, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; returns what it printed, and its exit status, which is 0 if `check`."""
    return subprocess.run(words, capture_output=True, text=True, timeout=WAIT, check=check, **options)
