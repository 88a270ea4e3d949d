"""The listener: where paths lead, who makes room for whom, what draining and expelling end."""

import errno
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
import trustme

from daemon.catalog.offer import Offers
from daemon.clients.client import Principal
from daemon.clients.doors.http.binding import address_of, adopt, bind_http
from daemon.clients.doors.http.door import MAX_STRANGERS, HttpDoor
from daemon.clients.doors.listening import Front
from daemon.clients.doors.tls import tls_context
from daemon.config.config_model import Config, Metrics, Profile
from daemon.config.listen import AccessToken, HttpListen, Listen, Tls
from daemon.config.redaction import Redactors
from daemon.config.tuning import Limits
from daemon.errors import ConfigError, RunError
from daemon.host.notify import Readiness
from daemon.wire.outbox import Link, Outbox
from tests.houses import registry_and_servers
from tests.unit.cases import cases
from tests.unit.clients.doors.http.answering import INITIALIZE, POST, Served, message
from tests.unit.clients.doors.http.visiting import HttpClient
from tests.unit.clients.doors.test_websocket import OPENING
from tests.waiting import PATIENCE, beside

BOUND = 30.0
"""Seconds that a test may take."""
ALICE, BOB = "a" * 20, "b" * 20
TOKENS = {"alice": ALICE, "bob": BOB}

REVOKED: list[str] = []
"""The owners of revoked tokens, as the door tells them."""


def bearer(token: str) -> dict[str, str]:
    return {**POST, "authorization": f"Bearer {token}"}


def opening() -> bytes:
    """The opening handshake of a WebSocket, with a token."""
    return OPENING.replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {ALICE}\r\n\r\n".encode())


@attrs.define(eq=False)
class Opened:
    """A listener under test, whose sessions answer `initialize` and leave everything else open."""

    door: HttpDoor
    port: int
    served: "list[Answering]" = attrs.field(factory=list)
    refused: list[str] = attrs.field(factory=list)
    clients: list[HttpClient] = attrs.field(factory=list)

    async def connect(self) -> HttpClient:
        self.clients.append(HttpClient(await trio.open_tcp_stream("127.0.0.1", self.port)))
        return self.clients[-1]

    async def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, bytes]:
        client = await self.connect()
        response = await client.ask(method, path, headers, body)
        return response.status, response.body


async def export() -> str:
    return "a 1\n"


async def nobody(link: Link, visitor: Principal) -> None:
    raise AssertionError((link, visitor))


def a_door(
    listener: socket.socket,
    state: Path,
    http: HttpListen,
    *,
    limits: Limits | None = None,
    serve: Callable[[Link, Principal], Awaitable[None]] = nobody,
    count: Callable[[str], None] = lambda _reason: None,
    outbox: Outbox | None = None,
) -> HttpDoor:
    profiles = {name: Profile(name=name) for name in ("default", "reader")}
    metrics = Metrics(enabled=True, listen=None)
    registry, _ = registry_and_servers(
        Config(listen=Listen(http=http), limits=limits or Limits(), profiles=profiles, metrics=metrics)
    )
    return HttpDoor(
        listener=listener,
        tls=None if http.tls is None else tls_context(http.tls),
        state=state,
        redact=Redactors(),
        catalog=registry.catalog,
        offers=Offers(),
        surfaces=("category", "full"),
        export=export,
        readiness=lambda: Readiness.SERVING,
        count=count,
        serve=serve,
        revoked=REVOKED.append,
        outbox=outbox or Outbox(),
        console=lambda: None,
    )


@asynccontextmanager
async def opened(tmp_path: Path, limits: Limits | None = None) -> AsyncIterator[Opened]:
    known = (AccessToken(name="alice", value=ALICE), AccessToken(name="bob", value=BOB, profiles=("reader",)))
    outbox = Outbox()
    listener = bind_http("127.0.0.1:0")
    refused: list[str] = []
    served: list[Answering] = []

    def make(link: Link, _number: int, visitor: Principal) -> Answering:
        served.append(Answering(link, visitor, outbox))
        return served[-1]

    door = a_door(
        listener,
        tmp_path,
        HttpListen(tokens=known),
        limits=limits,
        serve=Front(make).serve,
        count=refused.append,
        outbox=outbox,
    )
    here = Opened(door, listener.getsockname()[1], served, refused)
    with trio.fail_after(BOUND), listener:
        async with beside(door.run):
            yield here
            for client in here.clients:
                await client.stream.aclose()


class Answering(Served):
    """Answers `initialize`."""

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await self.peer.run()
            except RunError:
                nursery.cancel_scope.cancel()

    def on_request(self, request_id: bytes, method: str, params: object) -> None:
        if method == "initialize":
            self.peer.answer(request_id, b"{}")


@cases("method", "path", "who", "status")
async def test_a_path_leads_to_what_it_names(
    method: str, path: str, who: str, status: int, tmp_path: Path
) -> None:
    async with opened(tmp_path) as here:
        answer = await (await here.connect()).ask(method, path, bearer(TOKENS[who]) if who else None)
        assert (answer.status, "allow" in answer.headers) == (status, status in {204, 405})


async def test_strangers_make_room_for_each_other_and_keep_nobody_out(tmp_path: Path) -> None:
    async with opened(tmp_path) as here:
        first = await here.connect()
        for _ in range(MAX_STRANGERS):
            async with (another := await here.connect()).stream:
                await another.ask("GET", "/healthz")
        assert (await first.ask("GET", "/healthz")).status == 200, "who has left takes no place"
        for _ in range(MAX_STRANGERS):
            await here.connect()
        assert await first.is_closed()
        headers = bearer(ALICE)
        assert (await here.ask("POST", "/mcp", headers, message("initialize", 1, **INITIALIZE)))[0] == 200


async def test_more_clients_than_there_are_places_are_told_so(tmp_path: Path) -> None:
    async with opened(tmp_path, attrs.evolve(Limits(), connections=1)) as here:
        client = await here.connect()
        await client.ask("POST", "/mcp", bearer(ALICE), message("initialize", 1, **INITIALIZE))
        status, text = await here.ask("POST", "/mcp", bearer(ALICE), message("initialize", 1, **INITIALIZE))
        assert (status, b"limits.connections" in text) == (503, True)
        assert (await client.ask("GET", "/metrics", bearer(ALICE))).status == 200


async def test_one_token_leaves_half_of_the_places_to_others(tmp_path: Path) -> None:
    async with opened(tmp_path, attrs.evolve(Limits(), connections=4)) as here:
        for _ in range(2):
            assert (await here.ask("GET", "/metrics", bearer(ALICE)))[0] == 200
        status, text = await here.ask("GET", "/metrics", bearer(ALICE))
        assert (status, here.refused) == (503, ["places"])
        assert text.startswith(
            b"token alice: 2 clients are connected by one token, half of limits.connections (4)"
        )
        assert (await here.ask("GET", "/mcp", bearer(BOB)))[0] == 400


async def test_a_drained_listener_accepts_nobody_and_ends_what_is_idle(tmp_path: Path) -> None:
    async with opened(tmp_path) as here:
        client = await here.connect()
        await client.ask("GET", "/healthz")
        await here.door.drain()
        assert await client.is_closed()


async def test_an_expelled_visitor_is_cut_off_and_others_are_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as here:
        alice, bob = await here.connect(), await here.connect()
        for client, token in ((alice, ALICE), (bob, BOB)):
            await client.ask("POST", "/mcp", bearer(token), message("initialize", 1, **INITIALIZE))
        here.door.expel(here.served[0].visitor)
        assert REVOKED.pop() == here.served[0].visitor.owner
        assert await alice.is_closed()
        assert (await bob.ask("GET", "/healthz")).status == 200


async def test_a_client_that_does_not_wait_for_its_websocket_is_told_so_and_is_done(tmp_path: Path) -> None:
    async with opened(tmp_path) as here:
        client = await here.connect()
        await client.stream.send_all(opening() + b"\x81\x80\0\0\0\0")
        said = b"".join([data async for data in client.stream])
        assert said.startswith(b"HTTP/1.1 400 ")
        assert b"wait for the answer" in said
        assert not here.served


# --- HTTP as the daemon has it -------------------------------------------------------------------------------


TOKEN = "0123456789abcdef0123"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with bind_http("127.0.0.1:0") as bound:
        yield bound


async def test_balancers_have_time_to_look_elsewhere(
    listener: socket.socket, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    door = a_door(listener, tmp_path, HttpListen(tokens=TOKEN, drain=7))
    await door.drain()
    assert trio.current_time() == 7


async def test_a_certificate_is_renewed_and_a_faulty_one_changes_nothing(
    listener: socket.socket, tmp_path: Path
) -> None:
    paths = tmp_path / "cert.pem", tmp_path / "key.pem"

    def issue() -> bytes:
        made = trustme.CA().issue_cert("localhost")
        made.cert_chain_pems[0].write_to_path(paths[0])
        made.private_key_pem.write_to_path(paths[1])
        return made.cert_chain_pems[0].bytes()

    async def shown() -> bytes:
        stream = await trio.open_ssl_over_tcp_stream("localhost", port, ssl_context=anybody)
        await stream.do_handshake()
        certificate = stream.getpeercert(binary_form=True)
        await trio.aclose_forcefully(stream)
        assert isinstance(certificate, bytes)
        return certificate

    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    port, first = listener.getsockname()[1], ssl.PEM_cert_to_DER_cert(issue().decode())
    door = a_door(listener, tmp_path, HttpListen(tokens=TOKEN, tls=Tls(cert=str(paths[0]), key=str(paths[1]))))
    with trio.fail_after(BOUND):
        async with beside(door.run):
            assert await shown() == first
            second = ssl.PEM_cert_to_DER_cert(issue().decode())
            await door.renew()
            assert await shown() == second
            paths[0].write_text("none")
            await door.renew()
            assert await shown() == second


# --- the address of HTTP -------------------------------------------------------------------------------------


LISTEN = """
import socket, sys
held = socket.create_server((sys.argv[1], 0))
print(held.getsockname()[1], flush=True)
sys.stdin.read()
"""


def has_ipv6() -> bool:
    """Machines and containers without are common."""
    try:
        with closing(socket.create_server(("::1", 0), family=socket.AF_INET6)):
            return True
    except OSError:
        return False


@pytest.fixture
def somebody() -> Iterator[subprocess.Popen[str]]:
    """Another process, which listens on 127.0.0.1 and prints where."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN, "127.0.0.1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("address", "bound"),
    [
        ("127.0.0.1:0", "127.0.0.1"),
        ("localhost:0", "127.0.0.1"),
        ("LOCALHOST:0", "127.0.0.1"),
        ("0.0.0.0:0", "0.0.0.0"),
        *([("[::1]:0", "[::1]"), ("[::]:0", "[::]")] if has_ipv6() else []),
    ],
)
def test_what_is_bound_listens_and_does_not_block(address: str, bound: str) -> None:
    with bind_http(address) as listener:
        assert address_of(listener) == f"{bound}:{listener.getsockname()[1]}"
        assert not listener.getblocking()
        assert not listener.get_inheritable()
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_an_address_can_be_had_again_at_once_although_a_connection_was_closed_here_first() -> None:
    with bind_http("127.0.0.1:0") as first, socket.create_connection(first.getsockname()) as client:
        address = address_of(first)
        first.settimeout(PATIENCE)
        first.accept()[0].close()
        assert client.recv(1) == b""
    bind_http(address).close()


def test_whoever_holds_the_port_is_named(somebody: subprocess.Popen[str]) -> None:
    assert somebody.stdout is not None
    port = int(somebody.stdout.readline())
    for address in (f"127.0.0.1:{port}", f"0.0.0.0:{port}"):
        with pytest.raises(OSError, match=address) as refused:
            bind_http(address)
        assert refused.value.errno == errno.EADDRINUSE
        program = Path(sys.executable).name
        assert str(refused.value).endswith(
            f"cannot listen on {address}: Address already in use. A process listens there"
            f" ({program}, pid {somebody.pid}): stop it, or choose another address"
        )


def test_if_nobody_can_be_named_it_is_told_how_to_find_out() -> None:
    """It is this process itself, which does not look for itself."""
    with bind_http("127.0.0.1:0") as taken, pytest.raises(OSError, match="as root, names what listens there"):
        bind_http(address_of(taken))
    with pytest.raises(ValueError, match="is not ADDRESS:PORT"):
        bind_http("127.0.0.1:65536")


def test_a_socket_that_was_handed_over_goes_on_listening_when_our_descriptor_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        ours = socket.socket(fileno=os.dup(theirs.fileno()))
        assert adopt(ours) == f"127.0.0.1:{theirs.getsockname()[1]}"
        assert not ours.getblocking()
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        ours.close()
        with socket.create_connection(theirs.getsockname(), timeout=PATIENCE):
            theirs.settimeout(PATIENCE)
            theirs.accept()[0].close()


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_DGRAM),
        # Not listening: what Accept=yes hands over is a connection.
        (socket.AF_INET, socket.SOCK_STREAM),
    ],
)
def test_what_is_no_listening_tcp_socket_is_a_fault_of_the_unit(
    family: socket.AddressFamily, kind: socket.SocketKind
) -> None:
    with (
        socket.socket(family, kind) as wrong,
        pytest.raises(ConfigError, match="is not a listening TCP socket") as told,
    ):
        adopt(wrong)
    assert "mcpd-http.socket" in str(told.value)
    assert "ListenStream=127.0.0.1:7337" in str(told.value)
