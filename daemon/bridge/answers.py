"""What the client is answered in the daemon's place."""

from __future__ import annotations

from daemon.bridge.requests import CALL

INTERNAL_ERROR = -32603
"""JSON-RPC's code for what is no fault of the client's; what it was stands in `data.code`."""

LOST = (
    "UpstreamLost",
    (
        "the connection to the daemon ended before the answer came; whether the call ran is unknown. Check what"
        " it was to do before you call again."
    ),
)
"""It was sent; the answer never came."""

TORN = (
    "UpstreamUnavailable",
    (
        "the connection to the daemon ended before it had all of this request, which is too long to be kept. It"
        " did not run: it is safe to send it again."
    ),
)
"""Its end was not sent."""

FULL = (
    "UpstreamUnavailable",
    (
        "the daemon is not there, and too much is waiting for it already. The request was not sent: it is"
        " safe to try again in a moment."
    ),
)
"""It came while there was no daemon, and found no room."""

_ABSENT = (
    "{trouble}\nThat was so for {seconds:.0f} s. The request was not sent: it is safe to try again once that"
    " is mended. If you cannot do that yourself, tell the user."
)

Refusal = tuple[str, str]
"""A code of the daemon's errors (`daemon.errors`), and what to do."""


def absent(trouble: str, seconds: float) -> Refusal:
    """It waited in vain.

    Args:
        trouble: why nobody is there, and what to do.
        seconds: how long it waited.
    """
    return "UpstreamUnavailable", _ABSENT.format(trouble=trouble, seconds=seconds)


def refuse(request_id: bytes, method: bytes | None, refusal: Refusal, *, modern: bool) -> bytes:
    """The line that answers a request.

    Args:
        request_id: as it was written.
        method: a call is answered with a result that its model reads, all else with an error of JSON-RPC's.
        refusal: what to say.
        modern: the era of the client: 2026-07-28 wants a `resultType`.
    """
    code, text = refusal
    if method != CALL:
        return error_line(request_id, INTERNAL_ERROR, f"{code}: {text}", {"code": code})
    result: dict[str, object] = {"resultType": "complete"} if modern else {}
    result["content"] = [{"type": "text", "text": f"{code}: {text}"}]
    result["structuredContent"] = {"error": {"code": code, "message": text}}
    result["isError"] = True
    return result_line(request_id, result)


def result_line(request_id: bytes, result: object) -> bytes:
    """The line of a result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (request_id, _encode(result))


def error_line(request_id: bytes, code: int, message: str, data: object) -> bytes:
    """The line of an error."""
    error = {"code": code, "message": message, "data": data}
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (request_id, _encode(error))


def notification_line(method: str, params: object) -> bytes:
    """The line of a notification."""
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}\n' % (method.encode(), _encode(params))


def _encode(body: object) -> bytes:
    import json  # noqa: PLC0415 - 6 ms, for which no client waits that only wants to start

    return json.dumps(body, separators=(",", ":")).encode()
