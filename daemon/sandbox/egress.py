"""A sandboxed server's way to the network: an HTTP proxy that connects to allowed hosts only.

It accepts `CONNECT host:port` for any port, and plain HTTP (`GET http://host/`), one request per connection. It
connects to the addresses that it has judged, without another lookup, which could give others.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import attrs
import msgspec
import trio
from loguru import logger

from daemon.causes import PASSING, Cause
from daemon.config.hosts import HostRefusal, HostRules
from daemon.errors import ConnectionLost
from daemon.kit.later import later
from daemon.sandbox import stub
from daemon.sandbox.policy import unavailable, unmade

if TYPE_CHECKING:
    import h11
else:
    h11 = later("h11")

CONNECTIONS = 256
"""Most open connections of a server, each with two descriptors. Others wait in the kernel's queue."""

HEAD_BYTES = 32 * 1024
"""Longest head of a request in bytes: plain HTTP may carry cookies."""

HEAD_SECONDS = 10.0
"""Seconds from a connection until its request's head is complete; programs connect when they have a request."""

LOOKUPS = 8
"""Most concurrent lookups of a server, in its own limiter: slow names must not use up the daemon's threads."""

LOOKUP_SECONDS = 15.0
"""Seconds for a lookup and its wait for a thread: the resolver tries two servers for five seconds each."""

ADDRESSES, CONNECT_SECONDS = 4, 5.0
"""Most addresses tried of a host, and seconds for each: programs themselves wait for 30 s or so."""

WAITING_BYTES = 64 * 1024
"""Most bytes of one direction that wait for the other side; nothing more is read until they are sent."""

IDLE_SECONDS = 600.0
"""Seconds without a byte in either direction: long polls and event streams send something within minutes."""

LINGER_SECONDS = 2.0
"""Seconds for a program to read a refusal before its unread bytes reset the connection."""

ACCEPT_PAUSE = 1.0
"""Seconds until connections are accepted again if the daemon has no descriptor left."""

HOSTS = 64
"""Most hosts on record: more than real servers use, and a server may invent names."""

NAME_CHARACTERS = 253
"""Most characters kept of a refused name: no host name is longer."""

STUB_SECONDS = 10.0
"""Seconds until a started stub has its socket: it takes milliseconds, or seconds on a swapping machine."""

ENDED, SILENT = PASSING
_ERROR_BYTES = 4096
_HTTP = 80
_HOP_BY_HOP = {b"connection", b"keep-alive", b"te", b"upgrade", b"http2-settings", b"host"}
_FRAMING = {b"transfer-encoding", b"content-length"}
_HOST = rb"(\[[^]]+\]|[^][:/?#@]+)"
_TUNNEL = re.compile(_HOST + rb":(\d{1,5})")
_PLAIN = re.compile(rb"(?i:http://)" + _HOST + rb"(?::(\d{1,5}))?([/?].*)?")


_reaching = WeakKeyDictionary[trio.socket.SocketType, str]()


def server_behind(inode: int) -> str:
    """The server for which a proxy of this process holds a socket; empty for any other socket."""
    held = [(each, name) for each, name in _reaching.items() if each.fileno() >= 0]
    return next((name for each, name in held if os.fstat(each.fileno()).st_ino == inode), "")


class SeenHost(msgspec.Struct):
    """A host that a server asked for."""

    host: str
    port: int
    """The port of the last request."""
    reason: HostRefusal | None = None
    allow: str = ""
    """The argument of `mcpd allow-host SERVER` that allows the host; empty if none can."""
    count: int = 0

    def remedy(self, server: str) -> str:
        """The command that allows the host to a server; empty if none can."""
        return f"mcpd allow-host {server} {self.allow}" if self.allow else ""


@attrs.define(eq=False)
class SeenHosts:
    """The first `HOSTS` hosts that a server asked for, and the number of requests for others."""

    hosts: dict[str, SeenHost] = attrs.field(factory=dict, init=False)
    others: int = attrs.field(default=0, init=False)

    def add(self, seen: SeenHost) -> SeenHost:
        """Count a request; returns its host with the count, or an empty host for all beyond `HOSTS`."""
        known = self.hosts.get(seen.host)
        if known is None and len(self.hosts) == HOSTS:
            self.others += 1
            return msgspec.structs.replace(seen, host="", allow="", count=self.others)
        self.hosts[seen.host] = msgspec.structs.replace(seen, count=1 + (known.count if known else 0))
        return self.hosts[seen.host]


class _NotConnected(Exception):
    """A failed connection, with the HTTP status and the line that the program gets."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@attrs.define(eq=False)
class Egress:
    """The proxy of one sandboxed server."""

    _server: str
    _rules: HostRules
    _on_refused: Callable[[SeenHost], None]
    """Gets every refused host with its count."""
    _getaddrinfo: Callable[..., list[Any]] = attrs.field(default=socket.getaddrinfo, kw_only=True)
    """Called in threads."""
    refused: SeenHosts = attrs.field(factory=SeenHosts, init=False)
    """The hosts that the server asked for in vain."""
    allowed: SeenHosts = attrs.field(factory=SeenHosts, init=False)
    _lookups: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(LOOKUPS), init=False)

    async def serve(
        self, listener: trio.SocketListener, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled, then close the listener; a fault of one connection ends only that one."""
        places = trio.Semaphore(CONNECTIONS)
        async with listener, trio.open_nursery() as nursery:
            await trio.to_thread.run_sync(lambda: h11.SERVER)  # loads the module, which takes 30 ms
            task_status.started()
            while True:
                await places.acquire()
                try:
                    client = await listener.accept()
                except OSError as error:
                    logger.warning("the proxy of {} cannot accept: {}", self._server, error.strerror)
                    places.release()
                    await trio.sleep(ACCEPT_PAUSE)
                else:
                    nursery.start_soon(self._serve_one, client, places)

    async def _serve_one(self, client: trio.SocketStream, places: trio.Semaphore) -> None:
        try:
            async with client:
                try:
                    await self._converse(client)
                except _NotConnected as why:
                    await _answer(client, why)
        except trio.BrokenResourceError:
            pass  # the program left
        except Exception:  # noqa: BLE001 - the boundary of a connection
            logger.exception("the proxy of {} dropped a connection", self._server)
        finally:
            places.release()

    async def _converse(self, client: trio.SocketStream) -> None:
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        with trio.move_on_after(HEAD_SECONDS) as scope:
            request = await _head(client, parser)
        if scope.cancelled_caught:
            raise _NotConnected(HTTPStatus.REQUEST_TIMEOUT, f"no request came within {HEAD_SECONDS:.0f} s")
        if request is None:
            return
        is_tunnel = request.method == b"CONNECT"
        found = (_TUNNEL if is_tunnel else _PLAIN).fullmatch(request.target)
        port = int(found[2] or _HTTP) if found else 0
        if not found or not 0 < port < 1 << 16:
            text = f"the proxy of {self._server}'s sandbox accepts CONNECT host:port and GET http://host/ only"
            raise _NotConnected(HTTPStatus.BAD_REQUEST, text)
        async with await self._connect(found[1].decode("ascii"), port) as remote:
            if is_tunnel:
                await client.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with trio.CancelScope(deadline=trio.current_time() + IDLE_SECONDS) as idle:
                async with trio.open_nursery() as nursery:
                    if is_tunnel:
                        nursery.start_soon(_pump, client, remote, idle, parser.trailing_data[0])
                        await _pump(remote, client, idle)
                    else:
                        authority = found[1] if port == _HTTP else b"%b:%d" % (found[1], port)
                        sent = _for_host(request, authority, found[3] or b"/")
                        nursery.start_soon(_send, client, remote, idle, parser, sent)
                        await _pump(remote, client, idle)
                        idle.cancel()

    async def _connect(self, asked: str, port: int) -> trio.SocketStream:
        """Connect to an allowed host and address; raises _NotConnected: refused, unknown, unreachable."""
        verdict = self._rules.verdict(asked)
        host = verdict.host
        if verdict.refusal:
            raise self._refuse(host, port, verdict.refusal)
        missing = {each: self._rules.missing(host, each) for each in await self._look_up(host, port)}
        sound = [address for address, lacks in missing.items() if not lacks]
        if not sound:
            address, lacks = next(iter(missing.items()))
            raise self._refuse(host, port, HostRefusal.NOT_PUBLIC, address, lacks)
        self.allowed.add(SeenHost(host, port))
        why = f"no answer in {CONNECT_SECONDS:.0f} s"
        for address in sound[:ADDRESSES]:
            with trio.move_on_after(CONNECT_SECONDS):
                try:
                    return await self._reach(address, port)
                except OSError as error:
                    why = str(error)
        raise _NotConnected(HTTPStatus.BAD_GATEWAY, f"mcpd cannot connect to {host}:{port}: {why}")

    async def _reach(self, address: str, port: int) -> trio.SocketStream:
        made = trio.socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        _reaching[made] = self._server  # before it connects, as the other end may be the daemon's own door
        try:
            await made.connect((address, port))
        except BaseException:
            made.close()
            raise
        return trio.SocketStream(made)

    async def _look_up(self, host: str, port: int) -> list[str]:
        """The addresses of a host. A lookup counts against the limit until its thread ends, however late."""
        with trio.move_on_after(LOOKUP_SECONDS):
            try:
                look = partial(self._getaddrinfo, host, port, type=socket.SOCK_STREAM)
                found = await trio.to_thread.run_sync(look, limiter=self._lookups, abandon_on_cancel=True)
            except OSError as error:
                text = f"mcpd finds no host {host}: {error.strerror}"
                raise _NotConnected(HTTPStatus.BAD_GATEWAY, text) from None
            return [sockaddr[0] for *_, sockaddr in found]
        text = f"mcpd could not resolve {host} within {LOOKUP_SECONDS:.0f} s"
        raise _NotConnected(HTTPStatus.GATEWAY_TIMEOUT, text)

    def _refuse(
        self, host: str, port: int, reason: HostRefusal, address: str = "", lacks: str = ""
    ) -> _NotConnected:
        host = host if len(host) <= NAME_CHARACTERS else f"{host[:NAME_CHARACTERS]}..."
        allow = {HostRefusal.DENIED: "", HostRefusal.INVALID_NAME: ""}.get(reason, lacks or host)
        text = {
            HostRefusal.NOT_ALLOWED: f"does not allow {host}.",
            HostRefusal.DENIED: f"denies {host}. To allow it: remove it from `deniedDomains`",
            HostRefusal.IS_AN_ADDRESS: f"allows hosts by name, and {host} is an address.",
            HostRefusal.INVALID_NAME: f"allows hosts by name, and {host!r} is not a host name: use one",
            HostRefusal.NOT_PUBLIC: f"does not allow {host} at {address}, which is not a public address.",
        }[reason]
        seen = SeenHost(host, port, reason, allow)
        self._on_refused(self.refused.add(seen))
        if allow:
            text = f"{text} To allow it: {seen.remedy(self._server)}"
        return _NotConnected(HTTPStatus.FORBIDDEN, f"mcpd's sandbox of {self._server} {text}")


def received(channel: socket.socket) -> tuple[int, list[int]]:
    """Tell a stub that its file is complete; returns its pid and descriptors. Blocks up to `STUB_SECONDS`.

    Raises CannotStart: the stub failed, was killed (`ENDED`), or took longer (`SILENT`); and OSError: the
    system has no process for it.
    """
    passed = array("i")
    channel.settimeout(STUB_SECONDS)
    with suppress(OSError):  # the stub may have failed already, and says why
        channel.send(b"\0")
    try:
        text, held, *_ = channel.recvmsg(_ERROR_BYTES, socket.CMSG_LEN(8), socket.MSG_CMSG_CLOEXEC)
    except TimeoutError:
        raise unavailable(f"it was not ready in {STUB_SECONDS:.0f} s", problem=SILENT) from None
    except ConnectionResetError:  # killed before it has read what it was sent
        text, held = b"", []
    passed.frombytes(b"".join(each[2] for each in held))
    channel.settimeout(None)
    if passed:
        return int(text[1:]), passed.tolist()
    if text.startswith(b"\0-"):
        raise OSError(number := int(text[2:]), os.strerror(number))
    if text.startswith(b"\0"):
        raise ConnectionLost("no descriptor is left for the sandbox's proxy", Cause.OUT_OF_FILES)
    raise unmade(text.decode(errors="replace")) if text else unavailable("its maker ended early", problem=ENDED)


def stub_command(channel: int, *become: str) -> list[str]:
    """The command line of the stub: `channel` is its end of a unix socket pair."""
    return [sys.executable, "-I", "-S", stub.__file__, str(channel), *become]


def proxy_environment(rules: HostRules) -> dict[str, str]:
    """Variables, in upper and lower case, that send programs through the proxy except to their `localhost`."""
    proxy = f"http://127.0.0.1:{stub.PORT}"
    own = ",".join(each for each in ("localhost", "127.0.0.1", "::1") if each not in rules.allowed)
    names = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": own}
    return names | {name.lower(): value for name, value in names.items()} | {"NODE_USE_ENV_PROXY": "1"}


async def _head(client: trio.SocketStream, parser: h11.Connection) -> h11.Request | None:
    try:
        while (event := parser.next_event()) is h11.NEED_DATA:
            parser.receive_data(await client.receive_some(HEAD_BYTES))
    except h11.RemoteProtocolError as error:
        status = HTTPStatus(error.error_status_hint)
        raise _NotConnected(status, f"not a request of HTTP/1.1: {error}") from None
    return event if isinstance(event, h11.Request) else None


def _for_host(request: h11.Request, authority: bytes, path: bytes) -> h11.Request:
    """The request without fields for the proxy; chunks override a length, and the target overrides Host."""
    fields = [(raw.lower(), raw, value) for raw, value in request.headers.raw_items()]
    listed = b",".join(value.lower() for name, _, value in fields if name == b"connection")
    dropped = _HOP_BY_HOP | {each.strip() for each in listed.split(b",")} - _FRAMING
    if any(name == b"transfer-encoding" for name, *_ in fields):
        dropped |= {b"content-length"}
    kept = [(raw, value) for name, raw, value in fields if name not in dropped and name[:6] != b"proxy-"]
    target = path if path.startswith(b"/") else b"/" + path
    headers = [(b"Host", authority), *kept, (b"Connection", b"close")]
    return h11.Request(method=request.method, target=target, headers=headers)


async def _answer(client: trio.SocketStream, why: _NotConnected) -> None:
    """Answer with a line, and repeat it as the reason phrase: after a CONNECT, Python and Go show only that."""
    body = f"{why}\n".encode()
    phrase = str(why).encode("ascii", "replace")
    fields = f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close"
    head = b"HTTP/1.1 %d %b\r\n%b\r\n\r\n" % (why.status, phrase, fields.encode())
    with trio.move_on_after(LINGER_SECONDS):
        await client.send_all(head + body)
        await client.send_eof()
        while await client.receive_some(WAITING_BYTES):
            pass


async def _pump(
    source: trio.SocketStream, sink: trio.SocketStream, idle: trio.CancelScope, first: bytes = b""
) -> None:
    try:
        data = first or await source.receive_some(WAITING_BYTES)
        while data:
            await sink.send_all(data)
            idle.deadline = trio.current_time() + IDLE_SECONDS
            data = await source.receive_some(WAITING_BYTES)
        await sink.send_eof()
    except trio.BrokenResourceError:
        idle.cancel()


async def _send(
    client: trio.SocketStream,
    remote: trio.SocketStream,
    idle: trio.CancelScope,
    parser: h11.Connection,
    event: h11.Event,
) -> None:
    """Send a request with its body. A further request ends the connection: it may be for another host."""
    framing = h11.Connection(h11.CLIENT)
    try:
        while True:
            await remote.send_all(framing.send(event) or b"")
            if isinstance(event, h11.EndOfMessage):
                break
            while not isinstance(following := parser.next_event(), h11.Event):
                parser.receive_data(await client.receive_some(WAITING_BYTES))
                idle.deadline = trio.current_time() + IDLE_SECONDS
            event = following
        if await client.receive_some(WAITING_BYTES):
            idle.cancel()
    except (trio.BrokenResourceError, h11.ProtocolError):
        idle.cancel()
