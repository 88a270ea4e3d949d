"""What is made of a server's JSON-RPC error: what a model can read, or an error of the client's own request."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from daemon.catalog.authorship import authored_elicitation, words_of
from daemon.clients.elicitations import REQUIRED
from daemon.errors import UpstreamCallError
from daemon.wire.envelope import INVALID_PARAMS, read_error
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from msgspec import Raw

    from daemon.wire.envelope import Buffer

MISSING_CAPABILITY = -32021
"""JSON-RPC code of 2026-07-28 for a call that needs a capability which its client has not declared."""


def read_refusal(error: Buffer, redact: Callable[[str], str]) -> UpstreamCallError:
    """A server's JSON-RPC error as one that a model can read (`without_secrets`)."""
    code, message, data = without_secrets(error, redact)
    told = {"code": code, "message": message, "data": data}
    return UpstreamCallError(f"the server refused the call: {message} ({code})", upstream=told)


def with_author(server: str, refusal: tuple[int, str, object]) -> tuple[int, str, object]:
    """A refusal whose text and URLs name the server that sends users there (`elicitations.REQUIRED`).

    Raises:
        UnsafeQuestion: a URL is not to be shown.
    """
    code, message, data = refusal
    if code != REQUIRED or not isinstance(data, dict) or not isinstance(data.get("elicitations"), list):
        return refusal
    asked = [authored_elicitation(server, each) for each in data["elicitations"] if isinstance(each, dict)]
    return code, words_of(server, message), {**data, "elicitations": asked}


def without_secrets(error: Buffer, redact: Callable[[str], str]) -> tuple[int, str, object]:
    """Code, message and data of a server's JSON-RPC error, without the secrets that the server may quote.

    Long data become text, cut to its beginning.
    """
    remote = RemoteError.from_wire(error)
    message = redact(remote.message)
    data: object = redact(remote.data.decode(errors="replace"))
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        data = msgspec.json.decode(str(data))
    return remote.code, message, data


def concerns_client(error: Buffer, others: Mapping[str, Raw]) -> bool:
    """Whether an error is about how a client of MCP 2026-07-28 has called, and not about what it has called.

    Args:
        error: the server's error object, raw.
        others: the members of the call's params beside name, arguments and `_meta`.
    """
    code = read_error(error)[0]
    return code == MISSING_CAPABILITY or (code == INVALID_PARAMS and "requestState" in others)
