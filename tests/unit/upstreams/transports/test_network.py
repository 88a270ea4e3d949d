"""Places, and what a failed attempt to connect means."""

import errno
import socket
import ssl

import pytest
import trio
from trio.testing import MockClock

from daemon.causes import Cause
from daemon.config.config_model import TransportType
from daemon.errors import CannotStart, ConnectionLost, NeedsAuth
from daemon.upstreams.transports import http, network
from tests.unit.cases import cases
from tests.unit.host.test_network_errors import wrapped
from tests.unit.upstreams.transports.serving import context_for
from tests.waiting import background


@cases("url", "place")
def test_where_a_url_points(url: str, place: str) -> None:
    assert network.place_of(*network.host_and_port(url, "http", "https")) == place


@pytest.mark.parametrize("url", ["", "h", "ws://h", "http://", "http://:1", "http://h:99999/", "http://[::1/"])
def test_a_url_that_points_nowhere(url: str) -> None:
    with pytest.raises(CannotStart):
        network.host_and_port(url, "http", "https")


def unverified(code: int) -> ssl.SSLCertVerificationError:
    """What OpenSSL makes of a certificate."""
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "self-signed certificate"
    return error


async def test_a_server_that_does_not_take_the_connection_in_time_has_a_cause(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(http, "connect", hang)
    with pytest.raises(ConnectionLost, match="no answer within 5 s") as caught:
        async with http.open_connection(context_for(TransportType.HTTP, "http://h/mcp", connect=5)):
            pass
    assert caught.value.reason.cause is Cause.CONNECT_TIMEOUT


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Error connecting to 1.2.3.4"), Cause.REFUSED),
        (OSError(errno.ENETUNREACH, "no"), Cause.UNREACHABLE),
        (TimeoutError(errno.ETIMEDOUT, "late"), Cause.CONNECT_TIMEOUT),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), Cause.NAME_NOT_FOUND),
        (unverified(10), Cause.TLS_EXPIRED),
        (unverified(62), Cause.TLS_NAME),
        (unverified(18), Cause.TLS_UNTRUSTED),
        (OSError(errno.EPIPE, "x"), Cause.CANNOT_CONNECT),
    ],
)
def test_the_root_of_a_failure_is_its_cause(error: BaseException, cause: Cause) -> None:
    found = network.opening_error(wrapped(error), "h:443").reason
    assert (found.cause, found.data["place"]) == (cause, "h:443")


def test_a_certificate_that_does_not_verify_is_no_outage() -> None:
    error = unverified(18)
    assert network.is_untrusted(wrapped(error))
    found = network.opening_error(wrapped(error), "h:443")
    assert isinstance(found, CannotStart)
    assert str(found) == "tls: the certificate of h:443 is not trusted: self-signed certificate"
    assert isinstance(network.opening_error(OSError(), "h:443"), ConnectionLost)


def test_a_refusal_by_status() -> None:
    assert isinstance(network.refused(401, "h:1"), NeedsAuth)
    assert isinstance(network.refused(500, "h:1"), ConnectionLost)
    assert network.refused(403, "h:1").reason.cause is Cause.FORBIDDEN
    assert network.refused(404, "h:1").reason.data == {"place": "h:1", "status": 404}


async def test_a_later_step_of_an_attempt_has_what_the_earlier_ones_left(autojump_clock: MockClock) -> None:
    begun = trio.current_time()
    await trio.sleep(3)
    expected = pytest.raises(ConnectionLost, match="h:1 is slow within 5 s")
    with expected, network.in_time("h:1 is slow", "h:1", 5, begun=begun):
        await trio.sleep(4)
    assert trio.current_time() - begun == 5


@pytest.mark.process
async def test_tls_to_a_server_that_speaks_none_is_a_lost_connection() -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.send_all(b"plain text")

    async with background() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, hang_up, [listener])
        expected = pytest.raises(ConnectionLost, match=r"cannot connect to 127\.0\.0\.1:")
        with trio.fail_after(30), expected as raised:
            await network.connect("127.0.0.1", listener.socket.getsockname()[1], ssl.create_default_context())
    assert raised.value.reason.cause is Cause.NOT_TLS
