"""Following what the daemon tells: asked again and again for what comes after the last answer.

Ctrl-C ends it, and so does a reader of the output that goes away.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from typing import TYPE_CHECKING

from daemon.cli import EX_PIPE
from daemon.cli.control import DaemonUnreachable, ask_with, note

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from daemon.cli.command import Answer

WAIT_SECONDS = 20.0
"""Seconds that the daemon waits for something to tell before it answers that there is nothing."""

GATHER_SECONDS = 0.1
"""Seconds between an answer and the next question: of a server that writes without end, much comes at once."""

AWAY_SECONDS = 0.5
"""Seconds between two looks for a daemon that is away: it may be restarting."""

_STDOUT = 1
"""The descriptor: `sys.stdout` may be something else in front of it."""


def follow(first: Answer, after: Callable[[Answer], Answer], show: Callable[[Answer], object]) -> int:
    """Show an answer and all that come after it; a daemon that is away is reported once and waited for.

    Args:
        first: the first answer.
        after: asks for what comes after an answer.
        show: prints an answer.

    Returns:
        0, once Ctrl-C has ended it.
    """
    end_without_reader()
    seen, away = first, False
    try:
        show(seen)
        while True:
            sys.stdout.flush()
            time.sleep(AWAY_SECONDS if away else GATHER_SECONDS)
            try:
                seen = after(seen)
            except DaemonUnreachable as error:
                if not away:
                    note(f"{error.since_known}. Waiting for it.")
                away = True
                continue
            if away:
                note("the daemon is back.")
            away = False
            show(seen)
    except KeyboardInterrupt:
        return 0


def end_without_reader() -> None:
    """From now on, end the process when nobody can read its output any more, even while there is none."""
    threading.Thread(target=_wait_for_no_reader, daemon=True).start()


def _wait_for_no_reader() -> None:
    output = select.poll()
    # No events: only what is always told, such as a pipe that nobody reads; a file never tells any.
    output.register(_STDOUT, 0)
    output.poll()
    # The other thread waits for the daemon, and has nothing that must be tidied up.
    os._exit(EX_PIPE)


def news(options: argparse.Namespace, method: str, params: Answer) -> Answer:
    """Ask the daemon, and have it wait until there is something to answer."""
    wanted = {**params, "wait": WAIT_SECONDS}
    return ask_with(options, method, wanted, timeout=options.timeout + WAIT_SECONDS)
