"""What clients can do wrong over HTTP: a status or a closed connection, and nobody else is affected."""

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from daemon.clients.doors.http.door import MAX_STRANGERS
from daemon.clients.doors.http.http_connection import IDLE_SECONDS
from tests.e2e.harness import Daemon, scripted, serving
from tests.e2e.raw_http import (
    INITIALIZE,
    META,
    MODERN,
    OTHER_TOKEN,
    TOKEN,
    RawHttp,
    data_of,
    listening,
    message,
    modern,
    request,
    tool_call,
)
from tests.fuzz.requesting import fuzz
from tests.unit.cases import rows_of
from tests.waiting import eventually

PORT, LISTEN = listening()

PING = message("ping", request_id="p")
MANY = 1000


class Record:
    """What the server tells of itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def count(self, event: str) -> int:
        """How often it has told of something."""
        return sum(json.loads(line)["event"] == event for line in self.path.read_text().splitlines())

    def next(self, event: str) -> Callable[[], bool]:
        """Whether it has told so once more since now."""
        before = self.count(event)
        return lambda: self.count(event) > before


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return Record(tmp_path_factory.mktemp("server") / "record")


@pytest.fixture(scope="module")
def daemon(record: Record) -> Iterator[Daemon]:
    tools = ["echo", "sleep", "progress", "bytes", "announce"]
    server = scripted(tools=tools, record=str(record.path))
    with serving({"mcpServers": {"s": server}, "listen": LISTEN}) as daemon:
        yield daemon
        assert "internal error in mcpd" not in daemon.said()


@pytest.fixture
def neighbour(daemon: Daemon) -> Iterator[RawHttp]:
    """Another client, which must go on as if nothing happened."""
    with ExitStack() as connections:
        client = connections.enter_context(RawHttp(PORT))
        session = client.initialize()
        used = time.monotonic()
        yield client
        # A connection that was idle that long, as on a loaded machine, may be closed: clients open another one.
        is_open = time.monotonic() - used < IDLE_SECONDS
        own = client if is_open else connections.enter_context(RawHttp(PORT))
        own.send(request(body=tool_call("s", "echo", text="still here"), Mcp_Session_Id=session))
        assert "still here" in json.dumps(own.json())


@pytest.fixture
def session(daemon: Daemon) -> str:
    with RawHttp(PORT) as client:
        return client.initialize()


# --- requests that are none ---------------------------------------------------------------------------------


def changed(old: bytes, new: bytes) -> bytes:
    """A sound request with something else in it."""
    whole = request(body=PING)
    assert old in whole
    return whole.replace(old, new)


LENGTH = b"Content-Length: %d" % len(PING)
HOST = b"Host: localhost\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        *(
            (changed(old.encode(), new.encode(errors="surrogateescape")), status)
            for old, new, status in rows_of(Path(__file__), "malformed")
        ),
        (b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4" + b"\0" * 200 + b"\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /healthz HTTP/3.0\r\nHost: h\r\n\r\n", 505),
        (changed(LENGTH, b"Transfer-Encoding: chunked").replace(PING, b"zz\r\n"), 400),
        (changed(HOST, HOST + b"X: " + b"x" * 17_000 + b"\r\n"), 431),
        (changed(HOST, HOST + b"a:b\r\n" * 11_000), 431),
        (request(body=b""), 400),
        (request(body=PING[:-1]), 400),
        (request(body=b"[" * 100_000), 400),
        (request(body=b"[" + PING + b"]"), 400),
        (request(body=b"\xff" + PING), 400),
        (request(body=PING), 400),
        (request(body=PING, Content_Type="text/plain"), 415),
        (request(body=PING, Accept="text/html"), 406),
        (request(body=PING, Mcp_Session_Id="guessed"), 404),
        (request(body=PING, Mcp_Session_Id="\xe9"), 404),
        (request("GET", Mcp_Session_Id="guessed", Accept="text/event-stream"), 404),
        (request("DELETE", Mcp_Session_Id="guessed"), 404),
        (request("DELETE"), 400),
        (request("CONNECT", "localhost:80"), 405),
        (request("CONNECT", "/healthz"), 405),
        (request("TRACE"), 405),
        (request("HEAD"), 405),
        (request(body=PING, MCP_Protocol_Version="tomorrow"), 400),
        (request(body=message("tools/list", {"_meta": META}), MCP_Protocol_Version=MODERN), 400),
    ],
)
def test_what_is_no_request_has_the_status_that_says_so(neighbour: RawHttp, data: bytes, status: int) -> None:
    with RawHttp(PORT) as client:
        client.send(data)
        assert client.status(data.partition(b" ")[0].decode("latin-1")) == status


def test_what_was_sent_after_a_request_that_is_none_is_not_taken_for_another(neighbour: RawHttp) -> None:
    smuggled = b"0\r\n\r\n" + request("GET", "/healthz")
    with RawHttp(PORT) as client:
        client.send(request(body=smuggled, Transfer_Encoding="chunked"))
        assert client.status() == 400
        assert client.is_closed()


def test_a_refusal_repeats_no_token(neighbour: RawHttp) -> None:
    with RawHttp(PORT) as client:
        client.send(b"GET /mcp HTTP/1.1\r\nHost: h\r\nAuthorization : Bearer %b\r\n\r\n" % TOKEN.encode())
        response = client.head()
        assert response.status == 400
        assert TOKEN.encode() not in response.read()


@pytest.mark.parametrize(
    "data",
    [
        request(body=PING, path="http://localhost/mcp"),
        request(
            body=b"%x;extension=1\r\n%b\r\n0\r\nTrailer: 1\r\n\r\n" % (len(PING), PING), Content_Length=None
        ).replace(b"Host", b"Transfer-Encoding: chunked\r\nHost"),
        request(body=PING, Upgrade="h2c", Connection="Upgrade"),
        request(body=PING).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["an absolute target", "extensions of chunks", "an upgrade that is not served", "1.0"],
)
def test_what_is_odd_and_allowed_is_served(neighbour: RawHttp, session: str, data: bytes) -> None:
    with RawHttp(PORT) as client:
        client.send(data.replace(b"\r\n", b"\r\nMcp-Session-Id: %b\r\n" % session.encode(), 1))
        assert client.json() == {"jsonrpc": "2.0", "id": "p", "result": {}}


def test_an_endless_body_ends_with_its_limit(neighbour: RawHttp) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with RawHttp(PORT) as client:
        client.send(request(Transfer_Encoding="chunked", Content_Length=None) + chunk * 100)
        assert client.status() == 413
        assert client.is_closed()


# --- many, and slow ones ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first", [PING, tool_call("s", "sleep", seconds=0.2)], ids=["all at once", "after a call"]
)
def test_a_thousand_requests_in_one_piece_are_answered_in_order(
    neighbour: RawHttp, session: str, first: bytes
) -> None:
    pieces = [request(body=first, Mcp_Session_Id=session)]
    pieces += [request(body=message("ping", request_id=n), Mcp_Session_Id=session) for n in range(MANY)]
    with RawHttp(PORT) as client:
        sender = threading.Thread(target=client.send, args=(b"".join(pieces),))
        sender.start()
        answers = [client.json() for _ in pieces]
        sender.join()
    assert "result" in answers[0]
    assert [each["id"] for each in answers[1:]] == list(range(MANY))


def test_hundreds_of_half_open_connections_keep_nobody_out(daemon: Daemon, neighbour: RawHttp) -> None:
    held = []
    try:
        for _ in range(2 * MAX_STRANGERS):
            held.append(RawHttp(PORT))
            held[-1].send(b"POST /mcp HTTP/1.1\r\nHost: loc")
        with RawHttp(PORT) as client:
            client.initialize()
    finally:
        for each in held:
            each.close()


def test_clients_that_leave_before_they_are_accepted_are_no_matter(daemon: Daemon, neighbour: RawHttp) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        for _ in range(20):
            RawHttp(PORT).reset()
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    with RawHttp(PORT) as client:
        client.initialize()


def test_an_answer_that_is_read_slowly_holds_nobody_and_is_whole(neighbour: RawHttp, session: str) -> None:
    with RawHttp(PORT, receive_buffer=4096) as slow, RawHttp(PORT) as quick:
        call = tool_call("s", "bytes", count=15_000_000)
        slow.send(request(body=call, Mcp_Session_Id=session, Connection="close"))
        response = slow.head()
        other = quick.initialize()
        for number in range(20):
            quick.send(request(body=tool_call("s", "echo", number), Mcp_Session_Id=other))
            assert quick.json()["id"] == number
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        assert len(response.read()) > 15_000_000


def test_a_stream_that_nobody_reads_holds_nobody(neighbour: RawHttp, session: str) -> None:
    with RawHttp(PORT, receive_buffer=4096) as deaf, RawHttp(PORT) as client:
        deaf.send(request("GET", Accept="text/event-stream", Mcp_Session_Id=session))
        assert deaf.head("GET").status == 200
        meta = {"progressToken": "x" * 100}
        flood = tool_call("s", "progress", "flood", meta, count=20_000, interval=0, seconds=0)
        with RawHttp(PORT, receive_buffer=4096) as caller:
            caller.send(request(body=flood, Mcp_Session_Id=session))
            client.send(request(body=tool_call("s", "announce", count=5000), Mcp_Session_Id=session))
            assert "result" in client.json()


# --- sessions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "token"),
    [("/mcp", OTHER_TOKEN), ("/mcp/default/full", TOKEN), ("/mcp/default/search", OTHER_TOKEN)],
)
def test_the_session_of_another_place_or_token_does_not_exist(
    neighbour: RawHttp, session: str, path: str, token: str
) -> None:
    whose: dict[str, Any] = {"Mcp_Session_Id": session, "Authorization": f"Bearer {token}"}
    with RawHttp(PORT) as client:
        client.send(request(path=path, body=PING, **whose))
        assert client.status() == 404
        client.send(request("GET", path, Accept="text/event-stream", **whose))
        assert client.status("GET") == 404
        client.send(request("DELETE", path, **whose))
        assert client.status("DELETE") == 404
        client.send(request(body=PING, Mcp_Session_Id=session))
        assert client.status() == 200


def test_a_session_that_was_deleted_is_gone_with_all_that_was_under_way(
    neighbour: RawHttp, record: Record, session: str
) -> None:
    with RawHttp(PORT) as caller, RawHttp(PORT) as listener, RawHttp(PORT) as client:
        listener.send(request("GET", Accept="text/event-stream", Mcp_Session_Id=session))
        stream = listener.head("GET")
        called, cancelled = record.next("message"), record.next("cancelled")
        caller.send(request(body=tool_call("s", "sleep", seconds=600), Mcp_Session_Id=session))
        eventually(called)
        client.send(request("DELETE", Mcp_Session_Id=session))
        assert client.status("DELETE") == 204
        assert caller.status() == 404
        stream.read()
        eventually(cancelled)
        client.send(request("DELETE", Mcp_Session_Id=session))
        assert client.status("DELETE") == 404


def test_a_client_that_initializes_twice_or_sends_what_is_neither_request_nor_answer_keeps_its_session(
    neighbour: RawHttp, session: str
) -> None:
    with RawHttp(PORT) as client:
        client.send(request(body=message("initialize", INITIALIZE), Mcp_Session_Id=session))
        assert "result" in client.json()
        for _ in range(120):
            client.send(request(body=b'{"jsonrpc":"2.0","id":5}', Mcp_Session_Id=session))
            assert client.status() == 400
        client.send(request(body=PING, Mcp_Session_Id=session))
        assert client.json()["result"] == {}


# --- clients that leave, and come back ----------------------------------------------------------------------


def test_a_call_goes_on_when_its_client_leaves_and_its_answer_waits_in_the_session(
    neighbour: RawHttp, record: Record, session: str
) -> None:
    cancelled = record.next("cancelled")
    with RawHttp(PORT) as client:
        meta = {"progressToken": 1}
        call = tool_call("s", "progress", "left", meta, count=1, interval=0, seconds=0.2)
        client.send(request(body=call, Mcp_Session_Id=session, MCP_Protocol_Version="2025-11-25"))
        stream = client.head()
        first, _ = data_of(stream)
        client.reset()
    with RawHttp(PORT) as one, RawHttp(PORT) as two:
        resume = request("GET", Accept="text/event-stream", Mcp_Session_Id=session, Last_Event_ID=first)
        one.send(resume)
        assert one.head("GET").status == 200
        two.send(resume)
        again = two.head("GET")
        while "id" not in (said := data_of(again)[1] or {"id": None}):
            pass
        assert said["id"] == "left"
    with RawHttp(PORT) as later:
        later.send(resume)
        assert b'"id":"left"' in later.head("GET").read()
    assert not cancelled()


def test_of_two_that_resume_one_stream_the_first_is_ended(neighbour: RawHttp, session: str) -> None:
    with RawHttp(PORT) as client, RawHttp(PORT) as one, RawHttp(PORT) as two:
        meta = {"progressToken": 1}
        call = tool_call("s", "progress", "both", meta, count=1, interval=0, seconds=600)
        client.send(request(body=call, Mcp_Session_Id=session, MCP_Protocol_Version="2025-11-25"))
        stream = client.head()
        first, _ = data_of(stream)
        resume = request("GET", Accept="text/event-stream", Mcp_Session_Id=session, Last_Event_ID=first)
        one.send(resume)
        resumed = one.head("GET")
        stream.read()
        two.send(resume)
        assert two.head("GET").status == 200
        resumed.read()


@pytest.mark.parametrize("given", ["7-7", "0-0", "x", "", "-1", "1-99999999999999999999", "\xb2-\xb2"])
def test_an_event_that_was_never_sent_is_refused(neighbour: RawHttp, session: str, given: str) -> None:
    data = request("GET", Accept="text/event-stream", Mcp_Session_Id=session, X="1")
    with RawHttp(PORT) as client:
        client.send(data.replace(b"X: 1", b"Last-Event-ID: " + given.encode("latin-1")))
        assert client.status("GET") == 400


def test_the_events_of_another_session_are_not_given_out(neighbour: RawHttp, session: str) -> None:
    with RawHttp(PORT) as client:
        meta = {"progressToken": 1}
        call = tool_call("s", "progress", "mine", meta, count=1, interval=0, seconds=0)
        client.send(request(body=call, Mcp_Session_Id=session))
        event_id, _ = data_of(stream := client.head())
        stream.read()
        other = client.initialize()
        client.send(request("GET", Accept="text/event-stream", Mcp_Session_Id=other, Last_Event_ID=event_id))
        assert client.status("GET") == 400


def test_a_modern_call_is_cancelled_when_its_client_leaves(neighbour: RawHttp, record: Record) -> None:
    called, cancelled = record.next("message"), record.next("cancelled")
    with RawHttp(PORT) as client:
        params = {
            "name": "call-category-tool",
            "arguments": {"category": "s", "name": "sleep", "args": {"seconds": 600}},
        }
        client.send(modern("tools/call", params))
        eventually(called)
        client.reset()
    eventually(cancelled)


# --- the end ------------------------------------------------------------------------------------------------


def test_a_daemon_that_stops_answers_what_is_under_way_and_ends_all_streams() -> None:
    port, listen = listening()
    with (
        serving({"mcpServers": {"s": scripted(tools=["sleep"])}, "listen": listen}) as daemon,
        RawHttp(port) as caller,
        RawHttp(port) as listener,
        RawHttp(port) as idle,
        RawHttp(port) as half,
    ):
        session = idle.initialize()
        listener.send(request("GET", Accept="text/event-stream", Mcp_Session_Id=session))
        stream = listener.head("GET")
        half.send(b"POST /mcp HTTP/1.1\r\n")
        caller.send(request(body=tool_call("s", "sleep", seconds=600), Mcp_Session_Id=session))
        eventually(lambda: any(each["inFlight"] for each in daemon.ask("status")["sessions"]))
        assert daemon.stop() == 0
        answered = caller.head()
        assert (answered.status, answered.getheader("Connection")) == (200, "close")
        assert b"shutting down" in answered.read()
        stream.read()
        assert idle.is_closed()
        assert half.is_closed()


def test_what_is_malformed_at_random_hurts_nobody() -> None:
    """A few; `python -m tests.fuzz --side http` makes more."""
    assert not fuzz(150).faults
