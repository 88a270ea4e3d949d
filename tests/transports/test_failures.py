"""What errors and statuses mean: for the caller, and for the supervisor."""

from __future__ import annotations

import httpx2
import pytest

from daemon.errors import (
    CannotStart,
    ConnectionLost,
    NeedsAuth,
    RequestTooLarge,
    UpstreamLost,
    UpstreamUnavailable,
)
from daemon.transports.failures import NOT_RUN, Failure, Kind, error_code, head_of, of_error, of_status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ConnectError("x"), Kind.UNREACHABLE),
        (httpx2.ConnectTimeout("x"), Kind.UNREACHABLE),
        (httpx2.PoolTimeout("x"), Kind.UNREACHABLE),
        (httpx2.ProxyError("x"), Kind.UNREACHABLE),
        (httpx2.ReadError("x"), Kind.BROKEN),
        (httpx2.ReadTimeout("x"), Kind.BROKEN),
        (httpx2.WriteError("x"), Kind.BROKEN),
        (httpx2.RemoteProtocolError("x"), Kind.BROKEN),
    ],
)
def test_only_what_came_before_sending_is_safe_to_repeat(error: Exception, kind: Kind) -> None:
    failure = of_error(error, "h:1")
    assert failure.kind is kind
    assert "h:1" in failure.text


def rpc(code: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"about the session"}}' % code


@pytest.mark.parametrize(
    ("status", "body", "in_session", "kind"),
    [
        (401, b"", False, Kind.UNAUTHORIZED),
        (403, b"", False, Kind.FORBIDDEN),
        (404, b"", False, None),
        (404, b"", True, Kind.SESSION_OVER),
        (404, rpc(-32600), True, Kind.SESSION_OVER),
        (404, rpc(-32601), True, None),
        (410, b"", True, Kind.SESSION_OVER),
        (400, b"Bad Request", True, None),
        (400, b"No valid session ID", True, Kind.SESSION_OVER),
        (400, b"No valid session ID", False, None),
        (400, rpc(-32000), True, Kind.SESSION_OVER),
        (400, rpc(-32602), True, None),
        (413, b"", True, Kind.TOO_LARGE),
        (429, b"", True, Kind.BUSY),
        (500, b"", True, None),
        (502, b"", True, Kind.GATEWAY),
        (503, b"", True, Kind.BUSY),
        (504, b"", True, Kind.GATEWAY),
    ],
)
def test_statuses(status: int, body: bytes, in_session: bool, kind: Kind | None) -> None:
    failure = of_status(httpx2.Response(status), body, "h:1", in_session=in_session)
    assert (failure.kind if failure else None) is kind


def test_when_to_come_back_is_told() -> None:
    failure = of_status(httpx2.Response(503, headers={"retry-after": "7"}), b"", "h:1", in_session=False)
    assert failure is not None
    assert failure.text == "h:1 answered HTTP 503 Service Unavailable, retry after 7"


@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_has_a_meaning_for_both(kind: Kind) -> None:
    failure = Failure(kind, "it broke")
    told = {Kind.TOO_LARGE: RequestTooLarge}.get(kind, UpstreamUnavailable if kind in NOT_RUN else UpstreamLost)
    assert type(failure.for_call()) is told
    ended = {
        Kind.UNTRUSTED: CannotStart,
        Kind.UNAUTHORIZED: NeedsAuth,
        Kind.FORBIDDEN: NeedsAuth,
    }.get(kind, ConnectionLost)
    assert type(failure.for_run()) is ended


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"id":[]}', b"\xff", b'{"error":{"code":"x"}}', b'{"error":1}']
)
def test_what_is_no_message_has_no_head(body: bytes) -> None:
    assert head_of(body).method is None
    assert error_code(body) is None
