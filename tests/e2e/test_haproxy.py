"""`config/haproxy.cfg`, run by HAProxy itself in front of stand-ins for two daemons.

A stand-in begins sessions, and does to its connections what a test says. What the balancer makes of a daemon's
answers, and of one that breaks off, is seen with it; that mcpd gives these answers, `test_balancer` sees.
"""

import base64
import contextlib
import csv
import hashlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest
import trustme

from tests.e2e.balancing import SHIPPED, Balancer, balanced, checked
from tests.e2e.harness import free_port
from tests.pages import Page
from tests.waiting import WAIT, eventually

WEBSOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, 1.3."""


@attrs.define(eq=False)
class StandIn:
    """One daemon, as the test sees it."""

    name: str
    port: int = attrs.field(factory=free_port)
    drains: bool = False
    """Whether /readyz says 503."""
    requests: list[tuple[str, str, dict[str, str]]] = attrs.field(factory=list)
    """Method, path and headers of what has reached it, without the checks."""
    hosts: list[str] = attrs.field(factory=list)
    """The Host of each check."""
    go_on: threading.Event = attrs.field(factory=threading.Event)
    """Has a call to `/mcp/wait` answered, and a stream go on."""
    waiting: threading.Event = attrs.field(factory=threading.Event)
    """A call to `/mcp/wait` has begun."""
    left: threading.Event = attrs.field(factory=threading.Event)
    """Its client has hung up."""
    _server: "_Server | None" = None

    def start(self) -> None:
        """Listen."""
        self._server = _Server(("127.0.0.1", self.port), _handler(self))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}).start()

    def stop(self) -> None:
        """Be gone: connections to it are refused."""
        if self._server is not None:
            self.go_on.set()
            self._server.shutdown()
            self._server.server_close()
            self._server.hang_up()
            self._server = None


class _Server(ThreadingHTTPServer):
    request_queue_size = 64
    # Connections that the balancer keeps end with it, after the stand-in.
    daemon_threads = True
    block_on_close = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """A connection has ended."""
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End all connections, and wait until the balancer has."""
        # It would give one that is just ending another call, which nobody could answer.
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_WR)
        eventually(lambda: not self._open)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: the balancer resets connections that it does not need."""


def _handler(owner: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        daemon = owner

    return Handler


class _Handler(Page):
    daemon: StandIn
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Checks, streams and upgrades."""
        if self.path == "/readyz":
            self.daemon.hosts.append(self.headers["Host"])
            self._answer(503 if self.daemon.drains else 200)
            return
        self._note()
        if "upgrade" in self.headers:
            self._echo()
        else:
            self._stream()

    def do_POST(self) -> None:
        """A call."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._note()
        if self.path == "/mcp/begin":
            self._answer(200, **{"Mcp-Session-Id": f"session-of-{self.daemon.name}"})
        elif self.path == "/mcp/die":
            # As if it was killed while it worked: the connection ends without an answer.
            self.close_connection = True
        elif self.path == "/mcp/wait":
            self._wait()
        else:
            self._answer(200)

    def _wait(self) -> None:
        self.daemon.waiting.set()
        self.connection.settimeout(0.01)
        for _ in range(int(WAIT / 0.01)):
            if self.daemon.go_on.is_set():
                break
            try:
                gone = not self.connection.recv(1)
            except TimeoutError:
                gone = False
            except ConnectionResetError:
                gone = True
            if gone:
                self.daemon.left.set()
                self.close_connection = True
                return
        self.connection.settimeout(None)
        self._answer(200)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in (b": first\n\n", b"data: second\n\n"):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            assert self.daemon.go_on.wait(WAIT)
        self.wfile.write(b"0\r\n\r\n")

    def _echo(self) -> None:
        key = self.headers["Sec-WebSocket-Key"] + WEBSOCKET_GUID
        accepted = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Sec-WebSocket-Accept", accepted)
        self.send_header("Connection", "upgrade")
        self.end_headers()
        self.wfile.write(self.rfile.readline())
        self.close_connection = True

    def _note(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.daemon.requests.append((self.command, self.path, headers))

    def _answer(self, status: int, **headers: str) -> None:
        body = json.dumps({"by": self.daemon.name}).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def standing_in(*names: str) -> Iterator[list[StandIn]]:
    """Stand-ins that listen."""
    made = [StandIn(name) for name in names]
    try:
        for each in made:
            each.start()
        yield made
    finally:
        for each in made:
            each.stop()


# --- `config/haproxy -----------------------------------------------------------------------------------------


@contextmanager
def two() -> Iterator[tuple[Balancer, StandIn, StandIn]]:
    """A balancer that takes two stand-ins for ready."""
    with standing_in("one", "two") as (one, other), balanced({"one": one.port, "two": other.port}) as balancer:
        balancer.sees(one="UP", two="UP")
        yield balancer, one, other


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Balancer, StandIn, StandIn]]:
    """For tests that leave both as they were."""
    with two() as found:
        yield found


def connected(balancer: Balancer) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", balancer.port, timeout=WAIT)


def post(balancer: Balancer, path: str, **headers: str) -> tuple[int, str, str | None]:
    """A call in a connection of its own: status, who has answered, and the session that was begun."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(connected(balancer)) as connection:
        connection.request("POST", path, b"{}", {"Content-Type": "application/json", **named})
        answer = connection.getresponse()
        body = answer.read()
        by = json.loads(body)["by"] if answer.status == 200 else ""
        return answer.status, by, answer.headers["Mcp-Session-Id"]


def get(balancer: Balancer, path: str) -> int:
    with closing(connected(balancer)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


# --- the file ------------------------------------------------------------------------------------------------


def test_haproxy_takes_the_file_with_and_without_tls(tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    trustme.CA().issue_cert("mcp.example.org").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    for given in (None, certificate):
        done = checked(Balancer(tmp_path, {"one": 1, "two": 2}, given).file)
        assert (done.returncode, done.stderr) == (0, ""), done


def test_no_line_of_the_file_asks_for_more_than_a_new_connection() -> None:
    lines = [line.split() for line in SHIPPED.read_text().splitlines()]
    assert [line[1:] for line in lines if line[:1] == ["retry-on"]] == [["conn-failure"]]


def test_it_ends_tls(tmp_path: Path) -> None:
    authority, certificate = trustme.CA(), tmp_path / "certificate.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with standing_in("one", "two") as (one, other):
        ports = {"one": one.port, "two": other.port}
        with balanced(ports, certificate=certificate) as balancer:
            balancer.sees(one="UP", two="UP")
            with closing(HTTPSConnection("localhost", balancer.port, timeout=WAIT, context=trusting)) as client:
                client.request("POST", "/mcp", b"{}")
                assert client.getresponse().status == 200


# --- who gets a request --------------------------------------------------------------------------------------


def test_without_a_session_both_are_asked(shared: tuple[Balancer, StandIn, StandIn]) -> None:
    assert {post(shared[0], "/mcp")[1] for _ in range(6)} == {"one", "two"}


def test_a_session_stays_with_the_daemon_that_began_it(shared: tuple[Balancer, StandIn, StandIn]) -> None:
    for _ in range(4):
        _, began, session = post(shared[0], "/mcp/begin")
        assert session is not None
        assert [post(shared[0], "/mcp", Mcp_Session_Id=session)[1] for _ in range(3)] == [began] * 3


def test_idle_clients_do_not_take_the_places_of_requests(shared: tuple[Balancer, StandIn, StandIn]) -> None:
    balancer, *_ = shared
    all_places = int(
        dict(line.split(": ", 1) for line in balancer.ask("show info").splitlines() if line)["Maxconn"]
    )
    rows = csv.DictReader(balancer.ask("show stat").lstrip("# ").splitlines())
    [clients] = [int(row["slim"]) for row in rows if (row["pxname"], row["svname"]) == ("mcp", "FRONTEND")]
    # Each request of a client takes a place of its own in the second stage.
    assert 2 * clients <= all_places


def test_only_the_doors_for_clients_are_open(shared: tuple[Balancer, StandIn, StandIn]) -> None:
    balancer, one, other = shared
    before = len(one.requests) + len(other.requests)
    closed = ("/metrics", "/mcp/../metrics", "/healthz", "/readyz", "/", "/mcpx", "//metrics")
    assert [get(balancer, path) for path in closed if ".." not in path] == [404] * 6
    assert len(one.requests) + len(other.requests) == before


def test_the_address_of_a_client_is_what_the_balancer_saw(shared: tuple[Balancer, StandIn, StandIn]) -> None:
    balancer, *daemons = shared
    _, by, _ = post(balancer, "/mcp/address", X_Forwarded_For="203.0.113.7", Host="mcp.example.org")
    [daemon] = [each for each in daemons if each.name == by]
    *_, (_, path, headers) = daemon.requests
    assert (path, headers["x-forwarded-for"], headers["host"]) == (
        "/mcp/address",
        "127.0.0.1",
        "mcp.example.org",
    )
    assert set(daemon.hosts) == {"localhost"}


def test_an_event_is_passed_on_while_the_stream_is_open(shared: tuple[Balancer, StandIn, StandIn]) -> None:
    balancer, *daemons = shared
    with closing(connected(balancer)) as connection:
        connection.request("GET", "/mcp")
        answer = connection.getresponse()
        assert answer.read(len(b": first\n\n")) == b": first\n\n"
        for each in daemons:
            each.go_on.set()
        assert answer.read() == b"data: second\n\n"
        for each in daemons:
            each.go_on.clear()


def test_a_websocket_is_passed_on(shared: tuple[Balancer, StandIn, StandIn]) -> None:
    with closing(connected(shared[0])) as connection:
        keys = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
        connection.request("GET", "/ws", headers={"Upgrade": "websocket", "Connection": "upgrade", **keys})
        connected_to = connection.sock
        assert connected_to is not None
        with connected_to.makefile("rwb") as line:
            while line.readline() not in {b"\r\n", b""}:
                pass
            line.write(b"anything\n")
            line.flush()
            assert line.readline() == b"anything\n"


# --- daemons that go -----------------------------------------------------------------------------------------


def test_who_hangs_up_is_seen_by_the_daemon_that_works_for_it() -> None:
    with two() as (balancer, *daemons):
        with closing(connected(balancer)) as connection:
            connection.request("POST", "/mcp/wait", b"{}")
            [at_work] = eventually(lambda: [each for each in daemons if each.waiting.is_set()])
        assert at_work.left.wait(WAIT)


def test_a_call_that_has_reached_a_daemon_is_never_sent_to_another() -> None:
    with two() as (balancer, *daemons):
        assert [post(balancer, "/mcp/die")[0] for _ in range(4)] == [502] * 4
        assert sum(len(each.requests) for each in daemons) == 4


def test_who_has_asked_before_is_not_told_to_ask_again() -> None:
    with two() as (balancer, *daemons), closing(connected(balancer)) as connection:
        for path, status in (("/mcp", 200), ("/mcp/die", 502), ("/mcp", 200), ("/mcp/die", 502)):
            connection.request("POST", path, b"{}")
            used, answer = connection.sock, connection.getresponse()
            answer.read()
            assert (answer.status, connection.sock) == (status, used), "the connection was closed"
        assert sum(len(each.requests) for each in daemons) == 4


def test_a_call_to_a_daemon_that_is_gone_goes_to_the_other_one_also_in_a_session() -> None:
    with two() as (balancer, *daemons):
        _, began, session = post(balancer, "/mcp/begin")
        assert session is not None
        [gone] = [each for each in daemons if each.name == began]
        gone.stop()
        answers = [post(balancer, "/mcp", Mcp_Session_Id=session) for _ in range(4)]
        assert [status for status, _, _ in answers] == [200] * 4
        assert began not in {by for _, by, _ in answers}


def test_a_daemon_that_drains_ends_what_it_has_begun_and_gets_nothing_more() -> None:
    with two() as (balancer, *daemons), closing(connected(balancer)) as connection:
        connection.request("POST", "/mcp/wait", b"{}")
        [draining] = eventually(lambda: [each for each in daemons if each.waiting.is_set()])
        draining.drains = True
        balancer.sees(**{draining.name: "DOWN"})
        assert draining.name not in {post(balancer, "/mcp")[1] for _ in range(4)}
        draining.go_on.set()
        assert connection.getresponse().status == 200
