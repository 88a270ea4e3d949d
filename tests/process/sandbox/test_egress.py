"""The proxy of a sandboxed server over loopback, with names of its own and a clock that only the tests move."""

import errno
import math
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from daemon.causes import Cause
from daemon.config.hosts import HostRefusal, HostRules
from daemon.errors import CannotStart
from daemon.processes.peers import Peers, TcpPeers, other_end, shares
from daemon.sandbox import egress
from daemon.sandbox.egress import Egress, SeenHost, proxy_environment, received, server_behind
from tests.unit.cases import cases
from tests.waiting import PATIENCE, background, beside, until

API = "api.internal"
HERE = "127.0.0.1"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfine"

Handler = Callable[[trio.SocketStream], Awaitable[None]]


@define(eq=False)
class Names:
    """What names resolve to, and who asked; a name without addresses has none, `slow` ones wait for `go`."""

    addresses: dict[str, list[str]] = field(factory=lambda: {API: [HERE]})
    asked: list[str] = field(factory=list)
    go: threading.Event = field(factory=threading.Event)

    def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        if host.startswith("slow"):
            assert self.go.wait(PATIENCE)
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in self.addresses[host]]


@define(eq=False)
class Proxy:
    """A running proxy, its records, and connections to it."""

    egress: Egress
    port: int
    refusals: list[SeenHost]
    scope: trio.CancelScope

    async def connect(self, said: bytes = b"") -> trio.SocketStream:
        stream = await trio.open_tcp_stream(HERE, self.port)
        await stream.send_all(said)
        return stream

    async def answer(self, said: bytes) -> bytes:
        """All that comes back for a request."""
        async with await self.connect(said) as stream:
            return await rest(stream)

    async def tunnel(self, host: str, port: int, early: bytes = b"") -> trio.SocketStream:
        stream = await self.connect(
            b"CONNECT %b:%d HTTP/1.1\r\nHost: x\r\n\r\n" % (host.encode(), port) + early
        )
        assert (await stream.receive_some(39)).startswith(b"HTTP/1.1 200 ")
        return stream


@pytest.fixture
def names() -> Iterator[Names]:
    made = Names()
    yield made
    made.go.set()


@asynccontextmanager
async def proxy(names: Names, *allowed: str, denied: tuple[str, ...] = ()) -> AsyncIterator[Proxy]:
    refusals: list[SeenHost] = []
    rules = HostRules(allowed or (API,), denied)
    made = Egress("github", rules, refusals.append, getaddrinfo=names)
    (listener,) = await trio.open_tcp_listeners(0, host=HERE)
    with trio.fail_after(math.inf if isinstance(trio.lowlevel.current_clock(), MockClock) else PATIENCE):
        async with background() as nursery:
            await nursery.start(made.serve, listener)
            yield Proxy(made, listener.socket.getsockname()[1], refusals, nursery.cancel_scope)


@asynccontextmanager
async def host(handler: Handler) -> AsyncIterator[int]:
    """A host of the world: its port."""
    listeners = await trio.open_tcp_listeners(0, host=HERE)
    async with beside(trio.serve_listeners, handler, listeners):
        yield listeners[0].socket.getsockname()[1]


async def rest(stream: trio.SocketStream) -> bytes:
    found = b""
    while data := await stream.receive_some(1 << 16):
        found += data
    return found


async def echo(stream: trio.SocketStream) -> None:
    """Repeats all once the other side has ended."""
    await stream.send_all(await rest(stream))


@asynccontextmanager
async def web(body: bytes = b"") -> AsyncIterator[tuple[int, list[bytes]]]:
    """A web server that answers once the request's body is there; its port, and the requests."""
    requests: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        found = b""
        while not (b"\r\n\r\n" in found and found.endswith(body)):
            found += await stream.receive_some(1 << 16)
        requests.append(found)
        await stream.send_all(ANSWER)

    async with host(serve) as port:
        yield port, requests


async def leap(clock: MockClock, seconds: float, done: Callable[[], object]) -> None:
    """Let time pass until something has happened."""

    def look() -> object:
        clock.jump(seconds)
        return done()

    await until(look)


both_forms = pytest.mark.parametrize(
    "form", ["CONNECT {}:{} HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://{}:{}/ HTTP/1.1\r\nHost: x\r\n\r\n"]
)


# --- what is allowed


async def test_a_tunnel_carries_bytes_both_ways_and_each_way_ends_by_itself(names: Names) -> None:
    async with (
        proxy(names) as proxied,
        host(echo) as port,
        await proxied.tunnel(API, port, b"early ") as stream,
    ):
        await stream.send_all(b"and late")
        await stream.send_eof()
        assert await rest(stream) == b"early and late"
    assert proxied.egress.allowed.hosts == {API: SeenHost(API, port, count=1)}
    assert not proxied.refusals


async def test_a_door_of_the_daemons_own_tells_a_servers_proxy_from_the_daemon(names: Names) -> None:
    peers = Peers("http", shares(0), uids=())
    with socket.create_server((HERE, 0)) as door:
        async with proxy(names) as run, await run.tunnel(API, door.getsockname()[1]):
            with door.accept()[0] as ours:
                assert (end := other_end(ours)) is not None
                assert server_behind(end.inode) == "github"
                assert await TcpPeers(peers).admit(ours)
                assert not await TcpPeers(peers, lambda inode: bool(server_behind(inode))).admit(ours)
        assert peers.report()["refused"] == {"server": 1}
        with socket.create_connection(door.getsockname()) as other:
            assert server_behind(os.fstat(other.fileno()).st_ino) == ""


async def test_a_plain_request_goes_in_the_form_for_the_host_without_fields_for_the_proxy(names: Names) -> None:
    async with proxy(names) as proxied, web(b"body") as (port, requests):
        said = (
            f"POST HTTP://API.internal:{port}/a?b=%20c HTTP/1.1\r\nHost: other.example\r\nX-Own: 1\r\n"
            "Proxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\n"
            "Connection: x-hop, Content-Length\r\n"
            "X-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nbody"
        )
        assert await proxied.answer(said.encode()) == ANSWER
        expected = (
            f"POST /a?b=%20c HTTP/1.1\r\nHost: API.internal:{port}\r\nX-Own: 1\r\nContent-Length: 4\r\n"
            "Connection: close\r\n\r\nbody"
        )
        assert [each.decode() for each in requests] == [expected]


@pytest.mark.parametrize(("path", "sent"), [("", b"GET / HTTP/1.1"), ("?q", b"GET /?q HTTP/1.1")])
async def test_a_target_without_a_path_gets_one(names: Names, path: str, sent: bytes) -> None:
    async with proxy(names) as proxied, web() as (port, requests):
        await proxied.answer(f"GET http://{API}:{port}{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert requests[0].startswith(sent)


async def test_chunks_are_framed_again_and_overrule_a_length(names: Names) -> None:
    async with proxy(names) as proxied, web(b"0\r\n\r\n") as (port, requests):
        head = f"POST http://{API}:{port}/ HTTP/1.1\r\nHost: x\r\n"
        head += "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"
        async with await proxied.connect(head.encode()) as stream:
            for part in (b"3;ext=1\r\nabc\r\n", b"1\r\nd\r\n0\r\n\r\n"):
                await stream.send_all(part)
            assert await rest(stream) == ANSWER
        head, _, sent = requests[0].decode().partition("\r\n\r\n")
        assert "content-length" not in head.lower()
        assert sent.replace("\r\n", " ") == "3 abc 1 d 0  "


async def test_another_request_on_the_connection_is_sent_to_nobody(names: Names) -> None:
    seen = trio.Event()
    heard: list[bytes] = []

    async def silent(stream: trio.SocketStream) -> None:
        heard.append(await stream.receive_some(1 << 16))
        seen.set()
        heard.append(await rest(stream))

    async with proxy(names) as proxied, host(silent) as port:
        said = f"GET http://{API}:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        async with await proxied.connect(said) as stream:
            await seen.wait()
            await stream.send_all(said.replace(API.encode(), b"other.example"))
            assert await rest(stream) == b""
        await until(lambda: heard[1:])
        assert heard[1] == b""


async def test_addresses_are_tried_in_turn_and_looked_up_once(names: Names) -> None:
    names.addresses[API] = ["169.254.169.254", "127.0.0.9", HERE]
    async with proxy(names) as proxied, host(echo) as port, await proxied.tunnel(API, port) as stream:
        await stream.send_eof()
        assert await rest(stream) == b""
    assert names.asked == [API]


# --- what is refused


@cases("asked", "text", "reason", "allow")
@both_forms
async def test_a_refusal_says_what_to_do_is_told_and_recorded(
    names: Names, asked: str, text: str, reason: str, allow: str, form: str
) -> None:
    names.addresses |= {"inner.example.com": ["10.0.0.5"], "meta.example.com": ["169.254.169.254", "10.0.0.5"]}
    async with proxy(names, "*.example.com", denied=("no.example.com",)) as proxied:
        answer = await proxied.answer(form.format(asked, 81).encode())
    line = f"mcpd's sandbox of github {text}"
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert body == f"{line}\n"
    assert head.splitlines()[0] == f"HTTP/1.1 403 {line}"
    assert f"Content-Length: {len(body)}" in head
    (told,) = proxied.refusals
    assert told == SeenHost(told.host, 81, HostRefusal(reason), allow, 1)
    assert proxied.egress.refused.hosts == {told.host: told}
    assert not proxied.egress.allowed.hosts
    assert bool(names.asked) is (reason == HostRefusal.NOT_PUBLIC), "a refused name is never looked up"


async def test_a_refusal_of_a_large_request_is_read_before_the_connection_ends(names: Names) -> None:
    body = bytes(300_000)
    async with proxy(names) as proxied, await proxied.connect() as stream:
        head = b"POST http://no.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        await stream.send_all(head + body)
        assert (await rest(stream)).startswith(b"HTTP/1.1 403 ")


async def test_the_records_are_bounded_and_count_each_host(names: Names) -> None:
    async with proxy(names) as proxied:
        for number in range(egress.HOSTS + 6):
            await proxied.answer(f"CONNECT h{number}.example:1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await proxied.answer(b"CONNECT h0.example:2 HTTP/1.1\r\nHost: x\r\n\r\n")
    refused = proxied.egress.refused
    assert len(refused.hosts) == egress.HOSTS
    assert refused.others == 6
    assert (refused.hosts["h0.example"].count, refused.hosts["h0.example"].port) == (2, 2)
    assert len(proxied.refusals) == egress.HOSTS + 7
    *_, other, again = proxied.refusals
    assert (other.host, other.allow, other.count) == ("", "", 6)
    assert (again.host, again.count) == ("h0.example", 2)


async def test_a_name_that_is_longer_than_any_is_cut(names: Names) -> None:
    long = "a" * egress.NAME_CHARACTERS
    async with proxy(names) as proxied:
        await proxied.answer(f"CONNECT {long}{long}:1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert list(proxied.egress.refused.hosts) == [f"{long}..."]


@cases("request_", "status")
async def test_what_is_no_request_to_a_proxy_is_answered_as_such(
    names: Names, request_: str, status: int, said: list[str]
) -> None:
    async with proxy(names) as proxied:
        answer = await proxied.answer(request_.replace("HUGE", "x" * egress.HEAD_BYTES).encode("latin-1"))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert not names.asked
    assert not said


async def test_an_unknown_host_and_one_that_refuses_are_told_apart(names: Names) -> None:
    async with proxy(names, API, "none.example") as proxied:
        unknown = await proxied.answer(b"CONNECT none.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        with socket.socket() as bound:
            bound.bind((HERE, 0))
            closed = b"CONNECT %b:%d HTTP/1.1\r\nHost: x\r\n\r\n" % (API.encode(), bound.getsockname()[1])
            refused = await proxied.answer(closed)
    assert unknown.startswith(b"HTTP/1.1 502 mcpd finds no host none.example: Name or service not known")
    assert refused.startswith(b"HTTP/1.1 502 mcpd cannot connect to api.internal:")
    assert b"Connection refused" in refused


# --- bounds


async def test_a_slow_head_ends(names: Names, mock_clock: MockClock) -> None:
    async with proxy(names) as proxied, await proxied.connect(b"CONNECT api.int") as stream:
        found = Found(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.read)
            await leap(mock_clock, egress.HEAD_SECONDS, lambda: found.ended)
    assert found.data.startswith(b"HTTP/1.1 408 no request came within 10 s")


@define(eq=False)
class Found:
    """What a stream has said until it ended."""

    stream: trio.SocketStream
    data: bytes = b""
    ended: bool = False

    async def read(self) -> None:
        async with self.stream:
            self.data = await rest(self.stream)
            self.ended = True


async def test_a_slow_name_ends_in_time_and_its_thread_still_counts(
    names: Names, mock_clock: MockClock
) -> None:
    hosts = [f"slow{number}.example" for number in range(egress.LOOKUPS + 2)]
    async with proxy(names, *hosts) as proxied, trio.open_nursery() as nursery:
        found = [
            Found(await proxied.connect(f"CONNECT {each}:1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()))
            for each in hosts
        ]
        for each in found:
            nursery.start_soon(each.read)
        await until(lambda: proxied.egress._lookups.statistics().tasks_waiting == len(hosts) - egress.LOOKUPS)
        await until(lambda: len(names.asked) == egress.LOOKUPS)
        await leap(mock_clock, egress.LOOKUP_SECONDS, lambda: all(each.ended for each in found))
        assert all(each.data.startswith(b"HTTP/1.1 504 mcpd could not resolve slow") for each in found)
        assert len(names.asked) == egress.LOOKUPS
        names.go.set()


async def test_a_host_that_never_answers_is_given_up(names: Names, mock_clock: MockClock) -> None:
    with socket.socket() as full, socket.socket() as one, socket.socket() as other:
        full.bind((HERE, 0))
        full.listen(0)
        for each in (one, other):
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        async with proxy(names) as proxied, trio.open_nursery() as nursery:
            found = Found(await proxied.connect(f"CONNECT {API}:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()))
            nursery.start_soon(found.read)
            await until(lambda: proxied.egress.allowed.hosts)
            await leap(mock_clock, egress.CONNECT_SECONDS, lambda: found.ended)
    assert f"502 mcpd cannot connect to {API}:{port}: no answer in 5 s" in found.data.decode()


@both_forms
async def test_an_idle_connection_ends_on_both_sides(names: Names, mock_clock: MockClock, form: str) -> None:
    far: list[Found] = []

    async def silent(stream: trio.SocketStream) -> None:
        far.append(Found(stream))
        await far[0].read()

    async with proxy(names) as proxied, host(silent) as port, trio.open_nursery() as nursery:
        near = Found(await proxied.connect(form.format(API, port).encode()))
        nursery.start_soon(near.read)
        await until(lambda: far)
        await leap(mock_clock, egress.IDLE_SECONDS, lambda: near.ended and far[0].ended)


async def test_bytes_postpone_the_end_of_an_idle_tunnel(names: Names, mock_clock: MockClock) -> None:
    async def repeat(stream: trio.SocketStream) -> None:
        while data := await stream.receive_some(1):
            await stream.send_all(data)

    async with proxy(names) as proxied, host(repeat) as port, await proxied.tunnel(API, port) as stream:
        for _ in range(3):
            await stream.send_all(b"x")
            assert await stream.receive_some(1) == b"x"
            mock_clock.jump(egress.IDLE_SECONDS * 0.9)


async def test_a_side_that_does_not_read_holds_up_the_other(names: Names) -> None:
    size, sent, reads = 64 << 20, [0], trio.Event()

    async def later_count(stream: trio.SocketStream) -> None:
        await reads.wait()
        count = 0
        while data := await stream.receive_some(1 << 20):
            count += len(data)
        await stream.send_all(str(count).encode())

    async def send(stream: trio.SocketStream) -> None:
        while sent[0] < size:
            await stream.send_all(bytes(1 << 18))
            sent[0] += 1 << 18
        await stream.send_eof()

    async with proxy(names) as proxied, host(later_count) as port, trio.open_nursery() as nursery:
        stream = await proxied.tunnel(API, port)
        async with stream:
            nursery.start_soon(send, stream)
            await wait_all_tasks_blocked(0.01)
            assert sent[0] < size / 2
            reads.set()
            assert await rest(stream) == str(size).encode()


async def test_connections_beyond_the_bound_wait_for_a_place(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "CONNECTIONS", 2)
    async with proxy(names) as proxied, host(echo) as port, trio.open_nursery() as nursery:
        first = await proxied.tunnel(API, port)
        async with await proxied.tunnel(API, port):
            third = Found(await proxied.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
            nursery.start_soon(third.read)
            await wait_all_tasks_blocked(0.01)
            assert not third.ended
            await first.aclose()
            await until(lambda: third.ended)
        assert third.data.startswith(b"HTTP/1.1 400 ")


async def test_a_proxy_that_serves_again_has_all_its_places(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "CONNECTIONS", 1)
    async with proxy(names) as proxied:
        assert b" 400 " in await proxied.answer(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(2):
            (listener,) = await trio.open_tcp_listeners(0, host=HERE)
            again = attrs.evolve(proxied, port=listener.socket.getsockname()[1])
            async with background() as nursery:
                await nursery.start(proxied.egress.serve, listener)
                assert b" 400 " in await again.answer(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                await wait_all_tasks_blocked(0.01)


# --- faults


@both_forms
async def test_a_break_of_one_side_ends_the_other_silently(names: Names, form: str, said: list[str]) -> None:
    async def reset(stream: trio.SocketStream) -> None:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    async with proxy(names) as proxied, host(reset) as port:
        answer = await proxied.answer(form.format(API, port).encode())
        assert b"fine" not in answer
        left = await proxied.connect(b"GET")
        left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await left.aclose()
        assert (await proxied.answer(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 400")
    assert said == []


async def test_a_fault_costs_its_connection_only(names: Names, said: list[str]) -> None:
    def fault(*_: object) -> None:
        raise RuntimeError("a bug")

    async with proxy(names) as proxied:
        proxied.egress._on_refused = fault
        assert await proxied.answer(b"CONNECT no.example:1 HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        assert (await proxied.answer(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 400")
    assert said == ["the proxy of github dropped a connection"]


async def test_a_daemon_without_descriptors_accepts_later(
    names: Names, mock_clock: MockClock, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = trio.SocketListener.accept

    async def fail(self: trio.SocketListener) -> trio.SocketStream:
        monkeypatch.setattr(trio.SocketListener, "accept", accept)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(trio.SocketListener, "accept", fail)
    async with proxy(names) as proxied, trio.open_nursery() as nursery:
        found = Found(await proxied.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        nursery.start_soon(found.read)
        await leap(mock_clock, egress.ACCEPT_PAUSE, lambda: found.ended)
    assert said == ["the proxy of github cannot accept: Too many open files"]


async def test_a_cancelled_proxy_closes_all(names: Names) -> None:
    async with proxy(names) as proxied, host(echo) as port:
        stream = await proxied.tunnel(API, port)
        proxied.scope.cancel()
        with trio.CancelScope(shield=True):
            assert await rest(stream) == b""
            with pytest.raises(OSError, match=r"refused|connect"):
                await proxied.connect()
            await stream.aclose()


# --- its surroundings


def test_the_listener_comes_out_of_the_pair() -> None:
    daemons, stubs = socket.socketpair()
    with daemons, stubs, socket.create_server((HERE, 0)) as made:
        socket.send_fds(stubs, [b"\x0042"], [made.fileno()])
        pid, (passed,) = received(daemons)
        with socket.socket(fileno=passed) as listening:
            assert (pid, listening.getsockname()) == (42, made.getsockname())
            assert not listening.get_inheritable()
        assert daemons.getblocking()


@pytest.mark.parametrize(("told", "error"), [(b"unshare: no", "unshare: no"), (b"", "its maker ended early")])
def test_a_stub_that_fails_prevents_the_start(told: bytes, error: str) -> None:
    daemons, stubs = socket.socketpair()
    stubs.send(told)
    stubs.close()
    with daemons, pytest.raises(CannotStart, match=error) as raised:
        received(daemons)
    assert raised.value.reason.cause is Cause.SANDBOX_UNAVAILABLE
    assert raised.value.reason.data["error"] == error


def test_the_environment_names_the_proxy_and_leaves_the_servers_own_loopback_alone() -> None:
    found = proxy_environment(HostRules(["*"]))
    assert found["HTTPS_PROXY"] == found["http_proxy"] == "http://127.0.0.1:3128"
    assert found["NO_PROXY"] == found["no_proxy"] == "localhost,127.0.0.1,::1"
    assert found["NODE_USE_ENV_PROXY"] == "1"
    assert proxy_environment(HostRules(["localhost", "::1"]))["NO_PROXY"] == "127.0.0.1"
