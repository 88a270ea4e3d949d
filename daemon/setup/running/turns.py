"""One start of a daemon at a time, for each socket; who has waited for one that failed is told why."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from typing import TYPE_CHECKING

from daemon.host.private_files import own_file
from daemon.setup.running.presence import EX_CONFIG, NotStarted, pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from daemon.errors import McpdError

RECORD_BYTES = 256 * 1024
"""Bytes that are read of a record of a failure, more than is ever written."""


@contextlib.contextmanager
def turn(front: Path, deadline: float, *, shared: bool) -> Iterator[Callable[[McpdError], None]]:
    """Wait for our turn to start a daemon; yields what records why that failed.

    Args:
        front: the clients' socket that it is to serve.
        deadline: on the clock `time.monotonic`.
        shared: whether a failure of another's, while we waited, is ours as well: windows all want the same.

    Raises:
        NotStarted: that is so; or it was not our turn in time.
    """
    began = time.time()
    lock = own_file(front.with_name(front.name + ".start"))
    try:
        while not _locked(lock):
            pause(deadline, "another start of the daemon has not ended: `mcpd status` says whether it runs")
        if shared and (failed := _failure_since(lock, began)):
            raise failed
        yield lambda error: _record(lock, error)
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _record(lock: int, error: McpdError) -> None:
    status = error.status if isinstance(error, NotStarted) else EX_CONFIG
    raw = json.dumps({"at": time.time(), "status": status, "text": str(error)}).encode()
    os.ftruncate(lock, 0)
    os.pwrite(lock, raw, 0)


def _failure_since(lock: int, began: float) -> NotStarted | None:
    try:
        record = json.loads(os.pread(lock, RECORD_BYTES, 0) or b"{}")
        return NotStarted(record["text"], record["status"]) if record.get("at", 0) >= began else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
