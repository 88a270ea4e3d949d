"""What errors and statuses mean: for the caller, and for the supervisor."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2
import pytest

from daemon.errors import (
    Busy,
    CannotStart,
    ConnectionLost,
    NeedsAuth,
    RequestTooLarge,
    UpstreamLost,
    UpstreamUnavailable,
)
from daemon.transports.failures import (
    NOT_RUN,
    Failure,
    Kind,
    error_code,
    head_of,
    of_error,
    of_status,
    retry_after,
)


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


NOON = "Sun, 06 Nov 1994 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds", "said"),
    [
        ({"retry-after": "7"}, 7, ", retry after 7 s"),
        ({"retry-after": " 300 "}, 300, ", retry after 300 s"),
        ({"retry-after": "86400"}, 300, ", retry after 300 s (it asks for 86400 s)"),
        ({"retry-after": "9" * 400}, 300, f", retry after 300 s (it asks for {'9' * 12} s)"),
        ({"retry-after": "Sun, 06 Nov 1994 12:02:00 GMT", "date": NOON}, 120, ", retry after 120 s"),
        ({"retry-after": "Sun, 06 Nov 1994 11:58:00 GMT", "date": NOON}, 0, ""),
        ({"retry-after": "Sun, 06 Nov 1994 11:58:00"}, 0, ""),
        ({"retry-after": "0"}, 0, ""),
        ({"retry-after": "-5"}, 0, ""),
        ({"retry-after": "soon"}, 0, ""),
        ({"retry-after": "\u0663"}, 0, ""),
        ({"retry-after": "Sun, 06 Nov 99999999 12:02:00 GMT"}, 0, ""),
        ({}, 0, ""),
    ],
    ids=str,
)
def test_when_to_come_back_is_understood_and_told(headers: dict[str, str], seconds: float, said: str) -> None:
    response = httpx2.Response(503, headers={name.encode(): text.encode() for name, text in headers.items()})
    failure = of_status(response, b"", "h:1", in_session=False)
    assert failure is not None
    assert failure.wait == seconds
    assert failure.text == f"h:1 answered HTTP 503 Service Unavailable{said}"


def test_who_is_sent_away_for_a_while_is_told_how_long() -> None:
    failure = of_status(httpx2.Response(429, headers={"retry-after": "7"}), b"", "h:1", in_session=True)
    assert failure is not None
    refusal = failure.for_call()
    assert isinstance(refusal, UpstreamUnavailable)
    assert refusal.details == {"retryAfterMs": 7000}
    assert "retry after 7 s. The call was not run" in refusal.message
    end = failure.for_run()
    assert isinstance(end, Busy)
    assert end.wait == 7


def test_a_date_is_compared_with_our_clock_where_the_server_does_not_show_its_own() -> None:
    now = datetime(1994, 11, 6, 12, 0, 0, tzinfo=UTC)
    assert retry_after(httpx2.Headers({"retry-after": "Sun, 06 Nov 1994 12:00:30 GMT"}), now) == 30


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
