"""What errors and statuses mean: for the caller, and for the supervisor."""

import errno
import socket
import ssl
from datetime import UTC, datetime

import httpx2
import pytest
import trio

from daemon import errors
from daemon.causes import Cause
from daemon.upstreams.transports import failures
from tests.unit.cases import cases


def made_from(why: OSError, error: Exception) -> Exception:
    error.__context__ = why
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (made_from(OSError(errno.ECONNREFUSED, "x"), httpx2.ConnectError("x")), Cause.REFUSED),
        (made_from(OSError(errno.EHOSTUNREACH, "x"), httpx2.ConnectError("x")), Cause.UNREACHABLE),
        (made_from(socket.gaierror(-2, "x"), httpx2.ConnectError("x")), Cause.NAME_NOT_FOUND),
        (httpx2.ConnectError("x"), Cause.CANNOT_CONNECT),
        (made_from(OSError(errno.ETIMEDOUT, "x"), httpx2.ReadError("x")), Cause.CONNECTION_LOST),
        (httpx2.ConnectTimeout("x"), Cause.CONNECT_TIMEOUT),
        (httpx2.PoolTimeout("x"), Cause.CONNECT_TIMEOUT),
        (httpx2.ProxyError("x"), Cause.CANNOT_CONNECT),
        (httpx2.ReadError("x"), Cause.CONNECTION_LOST),
        (httpx2.ReadTimeout("x"), Cause.CONNECTION_LOST),
        (httpx2.WriteError("x"), Cause.CONNECTION_LOST),
        (httpx2.RemoteProtocolError("x"), Cause.CONNECTION_LOST),
    ],
)
def test_only_what_came_before_sending_is_safe_to_repeat(error: Exception, cause: Cause) -> None:
    failure = failures.of_error(error, "h:1")
    assert "h:1" in failure.text
    told = errors.UpstreamLost if cause is Cause.CONNECTION_LOST else errors.UpstreamUnavailable
    assert type(failure.for_call()) is told
    end = failure.for_run().reason
    assert (end.cause, end.data["place"]) == (cause, "h:1")


def test_a_certificate_that_is_not_trusted_cannot_start_a_server() -> None:
    end = failures.of_error(made_from(expired(), httpx2.ConnectError("x")), "h:1").for_run()
    assert isinstance(end, errors.CannotStart)
    assert (end.reason.cause, end.reason.data["place"]) == (Cause.TLS_EXPIRED, "h:1")


def expired() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("x")
    error.verify_code, error.verify_message = 10, "certificate has expired"
    return error


@cases("status", "cause")
def test_statuses(status: int, cause: str | None) -> None:
    failure = failures.of_status(httpx2.Response(status), "h:1")
    assert (failure is None) is (cause is None)
    if failure is not None:
        end = failure.for_run().reason
        assert (end.cause, end.data) == (cause, {"place": "h:1", "status": status})


@cases("status", "body", "over", raw={"body"})
def test_the_end_of_a_session_is_told_by_status_and_code_to_who_named_one(
    status: int, body: bytes, over: bool | None
) -> None:
    named, unnamed = (
        httpx2.Response(status, request=httpx2.Request("POST", "http://h/", headers=headers))
        for headers in ({failures.SESSION_HEADER: "s1"}, {})
    )
    assert failures.ends_session(named, body) is over
    assert failures.ends_session(unnamed, body) is False
    ended = failures.of_status(named, "h:1", session_over=True)
    assert ended is not None
    assert ended.cause is Cause.SESSION_OVER


@cases("headers", "seconds", "said")
def test_when_to_come_back_is_understood_and_told(headers: dict[str, str], seconds: float, said: str) -> None:
    response = httpx2.Response(503, headers={name.encode(): text.encode() for name, text in headers.items()})
    failure = failures.of_status(response, "h:1")
    assert failure is not None
    assert failure.wait == seconds
    assert failure.text == f"h:1 answered HTTP 503 Service Unavailable{said}"


def test_who_is_sent_away_for_a_while_is_told_how_long() -> None:
    failure = failures.of_status(httpx2.Response(429, headers={"retry-after": "7"}), "h:1")
    assert failure is not None
    refusal = failure.for_call()
    assert isinstance(refusal, errors.UpstreamUnavailable)
    assert refusal.details == {"retryAfterMs": 7000}
    assert "retry after 7 s. The call was not run" in refusal.message
    end = failure.for_run()
    assert isinstance(end, errors.Busy)
    assert end.wait == 7
    assert end.reason.data == {"place": "h:1", "status": 429, "seconds": 7}


@cases("value", "seconds")
def test_retry_after_is_read_in_both_forms_and_a_date_by_our_clock_if_need_be(
    value: str, seconds: float
) -> None:
    now = datetime.fromtimestamp(1_700_000_000, UTC)
    assert failures.retry_after(httpx2.Headers({"retry-after": value}), now) == seconds


UNTRUSTED = {Cause.TLS_UNTRUSTED, Cause.TLS_EXPIRED, Cause.TLS_NAME}
FATAL = {*UNTRUSTED, Cause.UNAUTHORIZED, Cause.SESSION_OVER}
FATAL_TO_OURS = {Cause.FORBIDDEN, Cause.BUSY, Cause.GATEWAY, *failures.NOT_CONNECTED}
MAY_HAVE_RUN = {Cause.CONNECTION_LOST, Cause.GATEWAY, Cause.MESSAGE_TOO_LARGE}
MET = sorted(FATAL | FATAL_TO_OURS | MAY_HAVE_RUN)


@pytest.mark.parametrize("cause", MET)
def test_each_cause_has_a_meaning_for_both(cause: Cause) -> None:
    failure = failures.Failure(cause, "it broke", {"place": "h:1"})
    called = errors.UpstreamLost if cause in MAY_HAVE_RUN else errors.UpstreamUnavailable
    assert type(failure.for_call()) is {Cause.MESSAGE_TOO_LARGE: errors.RequestTooLarge}.get(cause, called)
    ended: type[errors.RunError] = errors.ConnectionLost
    if cause in UNTRUSTED:
        ended = errors.CannotStart
    elif cause in {Cause.UNAUTHORIZED, Cause.FORBIDDEN}:
        ended = errors.NeedsAuth
    end = failure.for_run()
    assert type(end) is ended
    assert (end.reason.cause, end.reason.data) == (cause, {"place": "h:1"})


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"id":[]}', b"\xff", b'{"error":1}', b'{"error":"no"}', b'{"error":null}']
)
def test_what_is_no_error_response_holds_no_error(body: bytes) -> None:
    assert failures.error_in(body) is None


def test_an_error_object_is_found_as_it_was_sent() -> None:
    found = failures.error_in(b'{"error": {"code" :-5},"id":null}')
    assert found is not None
    assert bytes(found) == b'{"code" :-5}'


AWAY = failures.Failure(Cause.REFUSED, "away")


@pytest.mark.parametrize("cause", MET)
@pytest.mark.parametrize("own", [False, True])
async def test_what_ends_the_connection(cause: Cause, own: bool) -> None:
    state = failures.LinkState()
    end = state.judge(failures.Failure(cause, "over"), own=own)
    assert state.end is end
    assert (end is not None) is state.ended.is_set() is (cause in FATAL or (own and cause in FATAL_TO_OURS))
    state.end_with(errors.ConnectionLost("second"))
    assert str(state.end) == ("second" if end is None else "over")


async def test_calls_that_cannot_connect_count_until_a_sign_of_life() -> None:
    state = failures.LinkState()
    for _ in range(5):
        state.heard()
        for _ in range(failures.UNREACHABLE_CALLS - 1):
            assert state.judge(AWAY, own=False) is None
    assert state.judge(AWAY, own=False) is not None


async def test_who_wants_to_be_left_alone_is_not_silent_meanwhile() -> None:
    state = failures.LinkState()
    now = trio.current_time()
    for wait in (40.0, 4.0):
        state.judge(failures.Failure(Cause.BUSY, "later", wait=wait), own=False)
        state.heard()
        assert state.busy_until == state.last_heard >= now + 40
