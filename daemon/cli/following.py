"""Follows the daemon's news until Ctrl-C, or until the reader of the output leaves."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from daemon.cli import EX_PIPE
from daemon.cli.control import DaemonUnreachable, ask_with, note

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from daemon.cli.control import Message

WAIT_SECONDS = 20.0
"""Seconds that the daemon holds a question without news."""

GATHER_SECONDS = 0.1
"""Seconds between an answer and the next question, so that a busy server's lines come in bulk."""

AWAY_SECONDS = 0.5
"""Seconds between two attempts to reach a daemon that may be restarting."""

_STDOUT = 1
"""The descriptor, since `sys.stdout` may be a wrapper."""


def follow(first: Any, after: Callable[[Any], Any], show: Callable[[Any], object]) -> int:
    """Show an answer and all later ones until Ctrl-C; a daemon that is away is reported once and awaited."""
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
    """From now on, end the process as soon as nobody can read its output."""
    threading.Thread(target=_wait_for_no_reader, daemon=True).start()


def _wait_for_no_reader() -> None:
    output = select.poll()
    # Without events poll reports errors only, such as a pipe without a reader; a file has none.
    output.register(_STDOUT, 0)
    output.poll()
    # The main thread waits for the daemon, and has nothing to clean up.
    os._exit(EX_PIPE)


def news(options: argparse.Namespace, method: str, params: Message) -> Any:
    """Ask the daemon, and have it hold the question until there is an answer."""
    wanted = {**params, "wait": WAIT_SECONDS}
    return ask_with(options, method, wanted, timeout=options.timeout + WAIT_SECONDS)
