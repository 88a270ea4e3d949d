"""What the end of a run means: exceptions become values here, and causes decide about the next run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.causes import Cause, Reason
from daemon.errors import RunError, leaf
from daemon.supervision.backoff import Ending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ENDED = Reason("it ended", Cause.ENDED)
"""Of a run that returned."""

PARKED_STATUSES = frozenset({78, 126, 127})
"""Exit statuses that trying again does not cure: EX_CONFIG (sysexits.h), and a shell's words for a program that
it may not execute or does not find."""

_ENDINGS = {
    Cause.ENDED: Ending.NORMAL,
    Cause.UNAUTHORIZED: Ending.NEEDS_AUTH,
    Cause.FORBIDDEN: Ending.NEEDS_AUTH,
} | dict.fromkeys(
    (
        Cause.COMMAND_NOT_FOUND,
        Cause.DIRECTORY_UNUSABLE,
        Cause.NOT_EXECUTABLE,
        Cause.NOT_A_PROGRAM,
        Cause.CANNOT_START,
        Cause.BAD_URL,
        Cause.TLS_UNTRUSTED,
        Cause.TLS_EXPIRED,
        Cause.TLS_NAME,
    ),
    Ending.CANNOT_START,
)
"""All others are crashes, tried again with backoff."""


def ending_of(reason: Reason) -> Ending:
    """What kind of end it was, for the policy."""
    if reason.cause is Cause.EXITED and reason.data.get("status") in PARKED_STATUSES:
        return Ending.CANNOT_START
    return Ending.CRASHED if reason.cause is None else _ENDINGS.get(reason.cause, Ending.CRASHED)


def reason_of(error: BaseException | None) -> Reason:
    """Why a run ended that raised `error`, or returned; a fault of our own is logged in full."""
    if error is None:
        return ENDED
    if isinstance(error, RunError):
        return error.reason
    logger.opt(exception=error).error("a fault of mcpd's own, contained")
    said = f"{type(error).__name__}: {error}"
    return Reason(f"mcpd's own fault: {said}", Cause.INTERNAL, {"error": said})


async def contained(
    run: Callable[[], Awaitable[None]], scope: trio.CancelScope, name: str
) -> BaseException | None:
    """The exception boundary: returns whatever `run` raises, but for a cancellation from outside of `scope`."""
    try:
        with scope:
            await run()
    except Exception as error:  # noqa: BLE001 - the boundary that keeps neighbours alive
        return leaf(error) if isinstance(error, BaseExceptionGroup) else error
    except BaseExceptionGroup as group:
        cancelled, rest = group.split(trio.Cancelled)
        if cancelled is None or rest is None or not isinstance(rest, ExceptionGroup):
            raise
        if trio.current_effective_deadline() > -math.inf:
            # Nobody cancels us: the body raised somebody else's cancellation along with its own failure.
            return leaf(rest)
        logger.bind(server=name).opt(exception=rest).warning("failed while being stopped")
        raise cancelled from None
    return None
