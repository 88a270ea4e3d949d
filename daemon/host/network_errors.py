"""Why something on a network could not be reached, out of the several exceptions that libraries wrap it in."""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def reason(error: BaseException) -> str:
    """The root of a failure in words: libraries wrap the one useful message in several others."""
    text = ""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
        if isinstance(cause, ssl.SSLError | socket.gaierror):
            text = cause.strerror or text
        elif isinstance(cause, OSError) and cause.errno:
            # Not its strerror: trio puts the address in front, and our text has it already.
            text = os.strerror(cause.errno)
    return text or str(error) or type(error).__name__


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, its causes and contexts, outermost first."""
    waiting, seen = [error], set[int]()
    while waiting:
        here = waiting.pop(0)
        if id(here) in seen:
            continue
        seen.add(id(here))
        yield here
        if isinstance(here, BaseExceptionGroup):
            waiting += here.exceptions
        # Even a suppressed context: the HTTP library hides the cause behind `from None`.
        waiting += [inner for inner in (here.__cause__, here.__context__) if inner is not None]
