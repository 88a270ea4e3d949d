"""Why something could not be reached, in the words of the innermost exception that has some."""

import errno
import socket
import ssl

import httpx2
import pytest
import trio

from daemon.host.sockets import reason


def wrapped(error: BaseException) -> Exception:
    """As libraries do it."""
    try:
        try:
            raise OSError("all attempts to connect failed") from BaseExceptionGroup("several", [error])
        except OSError as inner:
            raise httpx2.ConnectError(str(inner)) from inner
    except httpx2.ConnectError as outer:
        return outer


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Error connecting to 1.2.3.4"), "Connection refused"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "[SSL] wrong version number"), "[SSL] wrong version number"),
    ],
)
def test_the_root_of_a_failure_is_named(error: BaseException, text: str) -> None:
    assert reason(wrapped(error)) == text


def test_an_error_without_words_has_a_name() -> None:
    assert reason(trio.BrokenResourceError()) == "BrokenResourceError"
