"""Clients that send too much at once, read too slowly, leave too early or take all the room."""

import socket
from http import HTTPStatus

import attrs
import h11
import pytest
import trio
import trio.testing

from daemon.clients.doors.http import http_connection
from daemon.clients.doors.http.binding import peer_of
from daemon.clients.doors.http.http_connection import HttpExchange
from daemon.clients.doors.http.http_sessions import ExchangeLink, PostReply
from daemon.clients.doors.http.reading import Refusal
from daemon.errors import ProtocolFault
from daemon.wire import envelope
from daemon.wire.envelope import Envelope, Line
from daemon.wire.link import STUCK_SECONDS
from daemon.wire.outbox import Outbox
from tests.unit.clients.doors.http.answering import ALICE, BOB, an_endpoint, begun, message
from tests.unit.clients.doors.http.test_connection import ticking
from tests.unit.clients.doors.http.visiting import HttpClient, visiting
from tests.unit.wire.fakes import RecordingReceiver
from tests.waiting import background, beside, until

pytestmark = pytest.mark.usefixtures("autojump_clock")

LARGE = 500_000
"""Bytes of an answer that no kernel takes at once here."""

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


def large(exchange: HttpExchange, _body: bytes = b"") -> None:
    exchange.respond(HTTPStatus.OK, (b"x" * LARGE,), http_connection.PLAIN)


async def test_who_does_not_read_is_not_served_on() -> None:
    served: list[HttpExchange] = []

    def serve(exchange: HttpExchange) -> None:
        served.append(exchange)
        large(exchange)

    async with visiting(serve) as visit:
        await visit.client.stream.send_all(GET * 10)
        await trio.testing.wait_all_tasks_blocked()
        assert len(served) == 1
        assert visit.connection.writer.queued <= LARGE + 1000
        with trio.fail_after(10):
            heard = 0
            while heard < 10 * LARGE:
                heard += len(await visit.client.stream.receive_some(1 << 20))
        assert len(served) == 10


async def test_requests_that_pile_up_behind_one_are_read_when_it_is_answered() -> None:
    served: list[HttpExchange] = []
    count = 900
    async with visiting(served.append) as visit, trio.open_nursery() as nursery:
        nursery.start_soon(visit.client.stream.send_all, GET * count)
        await trio.testing.wait_all_tasks_blocked()
        assert len(served) == 1
        heard = b""
        for number in range(count):
            served[number].respond(HTTPStatus.NO_CONTENT)
            visit.outbox.flush()
            heard += await visit.client.stream.receive_some(1 << 20)
            await trio.testing.wait_all_tasks_blocked()
        assert len(served) == count


async def test_who_leaves_while_requests_pile_up_is_noticed() -> None:
    async with visiting(lambda _exchange: None) as visit:
        with trio.move_on_after(1):
            await visit.client.stream.send_all(GET * 5000)
        await visit.client.stream.send_eof()
        with trio.fail_after(1):
            await visit.ended.wait()


async def reading(client: HttpClient) -> None:
    """Read until cancelled: who reads nothing is not served on."""
    while True:
        await client.stream.receive_some(1 << 16)


async def test_connections_take_turns_request_by_request() -> None:
    served: list[str] = []

    def serve(exchange: HttpExchange) -> None:
        served.append(exchange.head.path)
        exchange.respond(HTTPStatus.NO_CONTENT)

    outbox = Outbox()
    async with visiting(serve, outbox=outbox) as one, visiting(serve, outbox=outbox) as two:
        await one.client.stream.send_all(GET.replace(b"/", b"/1", 1) * 20)
        await two.client.stream.send_all(GET.replace(b"/", b"/2", 1) * 20)
        async with beside(reading, one.client) as readers:
            readers.start_soon(reading, two.client)
            await until(lambda: len(served) == 40)
    second = served.index("/2")
    assert second < 20
    # A turn ends by time, too, so on a busy machine one may bring no request.
    assert 6 <= served[second : second + 20].count("/1") <= 14


async def test_a_body_of_many_parts_takes_many_turns() -> None:
    served: list[str] = []

    def serve(exchange: HttpExchange) -> None:
        if exchange.head.method == "GET":
            served.append("a request")
            exchange.respond(HTTPStatus.NO_CONTENT)
        else:
            exchange.on_body = lambda body: served.append(f"{len(body)} bytes")

    outbox = Outbox()
    async with visiting(serve, outbox=outbox) as one, visiting(serve, outbox=outbox) as two:
        body = b"1\r\nx\r\n" * 900 + b"0\r\n\r\n"
        await one.client.stream.send_all(
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + body
        )
        await two.client.stream.send_all(GET * 20)
        async with beside(reading, two.client):
            await until(lambda: len(served) == 21)
    assert served.index("900 bytes") >= 2  # the other was served in between, and not only before or after


def refuse(_exchange: HttpExchange) -> None:
    raise Refusal(HTTPStatus.UNAUTHORIZED, "no\n", delay=5)


async def test_the_body_of_a_refused_request_is_not_read_before_the_answer() -> None:
    async with visiting(refuse) as visit, background() as nursery:
        head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        await visit.client.stream.send_all(head)
        await trio.testing.wait_all_tasks_blocked()
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                await visit.client.stream.send_all(b"1\r\nx\r\n" * 100)
                sent += 600

        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        before = sent
        await ticking(visit, 4)
        assert sent == before  # nothing more was read
    assert 0 < sent < 20 * http_connection.PIPELINED_BYTES


async def test_a_refused_request_with_a_body_is_answered_and_its_connection_closed() -> None:
    async with visiting(refuse) as visit:
        head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        await visit.client.stream.send_all(head + b"1\r\nx\r\n" * 100)
        await ticking(visit, 6)
        visit.outbox.flush()
        visit.client.http.send(h11.Request(method="POST", target="/", headers=[("host", "h")]))
        assert (await visit.client.response()).status == HTTPStatus.UNAUTHORIZED
        await ticking(visit, 2 * http_connection.LINGER_SECONDS)
        with trio.fail_after(1):
            await visit.ended.wait()


async def test_a_last_response_that_is_being_read_is_not_cut() -> None:
    async with visiting(large) as visit:
        await visit.client.send("GET", "/", {"connection": "close"})
        await trio.testing.wait_all_tasks_blocked()
        heard = 0
        while heard < LARGE:
            await ticking(visit, 2 * http_connection.LINGER_SECONDS)
            heard += len(await visit.client.stream.receive_some(50_000))
        with trio.fail_after(http_connection.LINGER_SECONDS):
            while await visit.client.stream.receive_some(50_000):
                pass
        await ticking(visit, http_connection.LINGER_SECONDS + 1)
        assert visit.ended.is_set()


# --- sessions -------------------------------------------------------------------------------------------------


class Breaking(RecordingReceiver):
    """A receiver that has had enough."""

    def on_lines(self, lines: list[Line]) -> None:
        """The hello comes first."""

    def on_message(self, message: Envelope, line: Line) -> None:
        raise ProtocolFault("a hundred malformed messages")


async def test_a_session_that_breaks_ends_and_not_the_connection_that_it_was_told_over() -> None:
    link: ExchangeLink[PostReply] = ExchangeLink(Outbox(), {})

    async def run() -> None:
        with pytest.raises(ProtocolFault):
            await link.run(Breaking())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        line = b'{"jsonrpc":"2.0","method":"x"}'
        link.post(envelope.decode(line), line)
    assert link.is_over


async def test_a_request_whose_session_ends_without_an_answer_is_not_left_open() -> None:
    async with an_endpoint() as endpoint, endpoint.visiting() as visit:
        headers = await begun(endpoint, visit.client)
        await visit.client.post(headers, message("tools/list", 2))
        endpoint.mcp.sessions.end_all()
        endpoint.outbox.flush()
        assert (await visit.client.response()).status == 404


async def test_who_begins_many_sessions_ends_nobody_elses() -> None:
    async with an_endpoint(places=4) as endpoint, endpoint.visiting() as visit:
        bobs = endpoint.mcp.sessions.begin(BOB)
        await trio.sleep(1)
        for _ in range(10):
            endpoint.mcp.sessions.begin(ALICE)
        assert len(endpoint.mcp.sessions) == 4
        assert endpoint.mcp.sessions.find(bobs.id, BOB) is bobs
        assert visit.connection.exchange is None


@attrs.frozen
class _Gone:
    """A connection whose client has reset it."""

    def setsockopt(self, *_: int) -> None:
        return

    def getpeername(self) -> tuple[str, int]:
        raise OSError(107, "Transport endpoint is not connected")


def test_who_has_left_before_being_accepted_has_no_address() -> None:
    gone: socket.socket = _Gone()  # type: ignore[assignment]
    assert peer_of(gone) is None


async def test_a_response_that_is_not_read_ends_its_connection() -> None:
    async with visiting(large) as visit:
        await visit.client.send("GET", "/", {"connection": "close"})
        await ticking(visit, STUCK_SECONDS - 1)
        assert not visit.ended.is_set()
        await ticking(visit, 3)
        assert visit.ended.is_set()
