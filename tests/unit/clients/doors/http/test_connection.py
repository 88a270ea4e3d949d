"""One HTTP/1.1 connection: bodies, deadlines, refusals, pipelining, and its end."""

import socket
from http import HTTPStatus

import h11
import pytest
import trio
import trio.testing

from daemon.clients.doors.http import http_connection
from daemon.clients.doors.http.binding import peer_of
from daemon.clients.doors.http.http_connection import HttpExchange
from daemon.clients.doors.http.http_sessions import COMMENT, COMMENT_SECONDS, ExchangeLink, PostReply
from daemon.clients.doors.http.reading import Refusal
from daemon.errors import ProtocolFault
from daemon.wire import envelope
from daemon.wire.envelope import Envelope, Line
from daemon.wire.link import STUCK_SECONDS
from daemon.wire.outbox import Outbox
from tests.unit.cases import cases
from tests.unit.clients.doors.http.answering import ALICE, BOB, an_endpoint
from tests.unit.clients.doors.http.visiting import MAX_BODY, HttpClient, Visit, taking, visiting
from tests.unit.wire.fakes import RecordingReceiver
from tests.waiting import background, beside, in_time, until

pytestmark = pytest.mark.usefixtures("autojump_clock")


BOUND = 1000.0
"""Seconds of the virtual clock that a test may take."""


def echo(exchange: HttpExchange, body: bytes) -> None:
    exchange.respond(HTTPStatus.OK, (exchange.head.path.encode(), b" ", body), http_connection.PLAIN)


@pytest.mark.parametrize("delay", [0.0, 1.0])
@pytest.mark.parametrize("by", ["head", "body"])
async def test_a_refusal_is_the_response_and_the_connection_goes_on(by: str, delay: float) -> None:
    def refuse(_exchange: HttpExchange, _body: bytes = b"") -> None:
        raise Refusal(HTTPStatus.FORBIDDEN, "not you\n", headers={"x-why": "you"}, delay=delay)

    async with visiting(refuse if by == "head" else taking(refuse)) as visit, beside(ticking, visit, BOUND):
        since = trio.current_time()
        for number in (1, 2):
            response = await visit.client.ask("GET", "/")
            assert (response.status, response.body) == (403, b"not you\n")
            assert response.headers["x-why"] == "you"
            assert trio.current_time() >= since + number * delay


async def test_a_pipelined_request_is_served_after_the_one_before() -> None:
    waiting: list[HttpExchange] = []
    async with visiting(waiting.append) as visit:
        await visit.client.stream.send_all(
            b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n"
        )
        await trio.testing.wait_all_tasks_blocked()
        assert [each.head.path for each in waiting] == ["/1"]
        waiting[0].respond(HTTPStatus.NO_CONTENT)
        visit.outbox.flush()
        assert [each.head.path for each in waiting] == ["/1"]  # others have their turns first
        await trio.testing.wait_all_tasks_blocked()
        assert [each.head.path for each in waiting] == ["/1", "/2"]


@pytest.mark.parametrize("framing", [f"content-length: {MAX_BODY + 1}\r\n", "transfer-encoding: chunked\r\n"])
async def test_a_body_over_the_limit_is_refused(framing: str) -> None:
    bodies = []
    async with visiting(taking(lambda _exchange, body: bodies.append(body))) as visit:
        head = f"POST / HTTP/1.1\r\nhost: h\r\n{framing}\r\n".encode()
        await visit.client.stream.send_all(head + b"%x\r\n%b\r\n" % (MAX_BODY + 1, bytes(MAX_BODY + 1)))
        answer = await visit.client.stream.receive_some(10_000)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in answer.lower()
        assert await visit.client.is_closed()
    assert not bodies


async def test_a_client_that_waits_for_it_is_told_to_go_on_unless_it_is_refused() -> None:
    head = b"POST /e HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    async with visiting(taking(echo)) as visit:
        await visit.client.stream.send_all(head)
        assert (await visit.client.stream.receive_some(1000)).startswith(b"HTTP/1.1 100 ")
        await visit.client.stream.send_all(b"ok")
        assert (await visit.client.stream.receive_some(1000)).endswith(b"/e ok")
    async with visiting(lambda exchange: exchange.respond(HTTPStatus.UNAUTHORIZED)) as visit:
        await visit.client.stream.send_all(head)
        assert (await visit.client.stream.receive_some(1000)).startswith(b"HTTP/1.1 401 ")
        assert await visit.client.is_closed()


@cases("sent", "status", raw={"sent"})
async def test_what_is_no_request_gets_a_status_and_is_closed(sent: bytes, status: int) -> None:
    async with visiting(taking(echo)) as visit:
        await visit.client.stream.send_all(sent)
        assert (await visit.client.stream.receive_some(1000)).startswith(b"HTTP/1.1 %d " % status)
        assert await visit.client.is_closed()


async def ticking(visit: Visit, seconds: float) -> None:
    """Pass some time, with the looks at what is due."""
    until = trio.current_time() + seconds
    while trio.current_time() < until:
        await trio.sleep(0.5)
        visit.connection.tick(trio.current_time())
        visit.outbox.flush()


async def test_a_slow_head_is_given_up() -> None:
    async with visiting(taking(echo)) as visit:
        await visit.client.stream.send_all(b"GET / HT")
        await ticking(visit, http_connection.HEAD_SECONDS - 1)
        assert not visit.ended.is_set()
        await ticking(visit, 2)
        assert visit.ended.is_set()


async def test_a_slow_body_is_refused_in_time() -> None:
    async with visiting(taking(echo)) as visit:
        await visit.client.stream.send_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabc")
        await ticking(visit, http_connection.BODY_SECONDS + 1)
        assert (await visit.client.stream.receive_some(1000)).startswith(b"HTTP/1.1 408 ")
        await ticking(visit, http_connection.LINGER_SECONDS + 1)
        assert visit.ended.is_set()


async def test_an_idle_connection_is_closed_and_a_working_one_is_not() -> None:
    waiting: list[HttpExchange] = []
    async with visiting(waiting.append) as visit:
        await visit.client.send("GET", "/")
        await ticking(visit, 10 * http_connection.BODY_SECONDS)
        assert not visit.ended.is_set()
        waiting[0].respond(HTTPStatus.NO_CONTENT)
        visit.outbox.flush()
        await ticking(visit, http_connection.IDLE_SECONDS - 1)
        assert not visit.ended.is_set()
        await ticking(visit, 2)
        assert visit.ended.is_set()


async def test_a_client_that_leaves_is_noticed_at_once() -> None:
    gone = trio.Event()
    waiting: list[HttpExchange] = []

    def serve(exchange: HttpExchange) -> None:
        exchange.on_gone = gone.set
        waiting.append(exchange)

    async with visiting(serve) as visit:
        await visit.client.send("GET", "/")
        await trio.testing.wait_all_tasks_blocked()
        await visit.client.stream.aclose()
        await gone.wait()
        assert not waiting[0].is_open
        waiting[0].respond(HTTPStatus.OK, (b"too late",))
        waiting[0].open_stream({})
        waiting[0].send((b"too late",))
        waiting[0].finish()


async def test_a_stopping_daemon_answers_what_is_under_way_and_closes_that_and_what_is_idle() -> None:
    waiting: list[HttpExchange] = []
    async with visiting(waiting.append) as visit:
        await visit.client.send("GET", "/")
        await trio.testing.wait_all_tasks_blocked()
        visit.connection.close_when_done()
        waiting[0].respond(HTTPStatus.OK, (b"done",))
        visit.outbox.flush()
        response = await visit.client.response()
        assert (response.body, response.headers["connection"]) == (b"done", "close")
        assert await visit.client.is_closed()
    async with visiting(taking(echo)) as visit:
        await visit.client.ask("GET", "/")
        visit.connection.close_when_done()
        await visit.ended.wait()


async def test_a_fault_of_the_application_is_answered_and_ends_its_connection() -> None:
    def serve(_exchange: HttpExchange) -> None:
        raise RuntimeError("broken")

    async with visiting(serve) as visit:
        response = await visit.client.ask("GET", "/")
        assert (response.status, b"broken" in response.body) == (500, False)
        assert await visit.client.is_closed()


def answer(exchange: HttpExchange) -> None:
    exchange.headers = {"x-always": "1"}
    exchange.respond(HTTPStatus.OK, (b"he", memoryview(b"llo")), {"x-once": "2"})


async def test_head_gets_no_body() -> None:
    async with visiting(answer) as visit:
        response = await visit.client.ask("HEAD", "/")
        assert (response.body, response.headers["content-length"]) == (b"", "5")
        assert (await visit.client.ask("GET", "/")).body == b"hello"


async def test_a_client_of_http_1_0_gets_a_stream_until_it_is_closed() -> None:
    def serve(exchange: HttpExchange) -> None:
        exchange.open_stream({})
        exchange.send((b"all",))
        exchange.finish()

    async with visiting(serve) as visit:
        await visit.client.stream.send_all(b"GET / HTTP/1.0\r\n\r\n")
        said = b"".join([chunk async for chunk in visit.client.stream])
    assert said.endswith(b"\r\n\r\nall")


async def test_what_is_due_is_called_once_and_the_last_wish_counts() -> None:
    called: list[str] = []

    def serve(exchange: HttpExchange) -> None:
        exchange.wait_until(1.0, lambda: called.append("never"))
        exchange.wait_until(2.0, lambda: called.append("once"))

    async with visiting(serve) as visit:
        await visit.client.send("GET", "/")
        await trio.testing.wait_all_tasks_blocked()
        for now in (1.5, 2.0, 2.5):
            visit.connection.tick(now)
    assert called == ["once"]


async def test_an_answer_that_takes_long_becomes_a_stream_with_comments() -> None:
    replies: list[PostReply] = []
    async with visiting(lambda exchange: replies.append(PostReply(exchange))) as visit:
        await visit.client.send("GET", "/")
        await trio.testing.wait_all_tasks_blocked()
        await ticking(visit, 2 * COMMENT_SECONDS + 2)
        replies[0].answer(envelope.response(b"1", b"{}"))
        visit.outbox.flush()
        response = await visit.client.response()
    assert response.status == 200
    assert response.body == 2 * COMMENT + b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'


async def test_who_gives_up_ends_the_response_whatever_it_is() -> None:
    replies: list[PostReply] = []
    async with visiting(lambda exchange: replies.append(PostReply(exchange))) as visit:
        await visit.client.send("GET", "/")
        await trio.testing.wait_all_tasks_blocked()
        replies[0].give_up()
        visit.outbox.flush()
        assert (await visit.client.response()).status == 404
        await visit.client.send("GET", "/")
        await trio.testing.wait_all_tasks_blocked()
        replies[1].notify((b"{}",))
        replies[1].give_up()
        visit.outbox.flush()
        assert (await visit.client.response()).body == b"data: {}\n\n"


# --- clients that misbehave ----------------------------------------------------------------------------------


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
        await in_time(visit.ended.wait(), 1)


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


@pytest.mark.parametrize(("events", "seconds"), [(http_connection.EVENTS_PER_TURN, BOUND), (1_000_000, 0.0)])
async def test_a_body_of_many_parts_takes_many_turns(
    events: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each bound ends turns without the other.
    monkeypatch.setattr(http_connection, "EVENTS_PER_TURN", events)
    monkeypatch.setattr(http_connection, "GUESTS_SECONDS", seconds)
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
        await in_time(visit.ended.wait(), 1)


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


async def test_who_begins_many_sessions_ends_nobody_elses() -> None:
    async with an_endpoint(places=4) as endpoint, endpoint.visiting() as visit:
        bobs = endpoint.mcp.sessions.begin(BOB)
        await trio.sleep(1)
        for _ in range(10):
            endpoint.mcp.sessions.begin(ALICE)
        assert len(endpoint.mcp.sessions) == 4
        assert endpoint.mcp.sessions.find(bobs.id, BOB) is bobs
        assert visit.connection.exchange is None


def test_who_has_left_before_being_accepted_has_no_address() -> None:
    with socket.socket() as gone:  # not connected, as one that its client has reset
        assert peer_of(gone) is None


async def test_a_response_that_is_not_read_ends_its_connection() -> None:
    async with visiting(large) as visit:
        await visit.client.send("GET", "/", {"connection": "close"})
        await ticking(visit, STUCK_SECONDS - 1)
        assert not visit.ended.is_set()
        await ticking(visit, 3)
        assert visit.ended.is_set()
