"""What the end of a run means, told by what left the body of the child: exceptions become values here."""

from __future__ import annotations

from loguru import logger

from daemon.backoff import Ending
from daemon.errors import CannotStart, ConnectionLost, NeedsAuth, RunError


def ending_of(error: BaseException | None, *, asked: bool) -> Ending:
    """What kind of end it was.

    Args:
        error: what left the run; None if it returned.
        asked: whether we had ended it.
    """
    if asked:
        return Ending.ASKED
    match error:
        case CannotStart():
            return Ending.CANNOT_START
        case NeedsAuth():
            return Ending.NEEDS_AUTH
        case None:
            return Ending.NORMAL
        case ConnectionLost(normal=True):
            return Ending.NORMAL
        case _:
            return Ending.CRASHED


def reason_of(error: BaseException | None) -> str:
    """Why it ended, in words; a fault of our own is logged in full."""
    if error is None:
        return "it ended"
    if isinstance(error, RunError):
        return str(error)
    logger.opt(exception=error).error("a fault of mcpd's own, contained")
    return f"mcpd's own fault: {type(error).__name__}: {error}"
