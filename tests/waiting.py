"""Waiting for what no event tells of: another thread, another process, the far end of a socket."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

import trio

T = TypeVar("T")

PATIENCE = 30.0
"""Real seconds after which a wait is in vain: long enough for a loaded machine."""

WAIT = 180.0
"""Real seconds that another process may take: a browser needs more than sixty on a very busy machine."""

LOOK_SECONDS = 0.03
"""Between two looks at another process: it wants the processor as well."""


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


def eventually(look: Callable[[], T | Literal[False] | None], why: Callable[[], object] = str) -> T:
    """What a look finds once it finds something, for tests without a loop; `why` is shown if it was in vain."""
    end = time.monotonic() + WAIT
    while not (found := look()):
        assert time.monotonic() < end, why()
        time.sleep(LOOK_SECONDS)
    return found
