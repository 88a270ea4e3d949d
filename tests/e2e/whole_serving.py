"""Serves `whole_server` on a unix socket, a WebSocket, streamable HTTP and SSE, in threads of the tests."""

import contextlib
import json
import queue
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.e2e import whole_server
from tests.e2e.sockets import WebSocket
from tests.e2e.whole_server import Conversation, WholeServer
from tests.pages import Page, at_work

Json = dict[str, Any]

SESSION = "Mcp-Session-Id"
END = None
"""The end of a stream of events."""


@contextmanager
def served(transport: str, name: str, *, modern: bool, directory: Path) -> Iterator[Json]:
    """The `mcpServers` entry of such a server, which listens during the block."""
    if transport == "stdio":
        words = [str(Path(whole_server.__file__)), name, "modern" if modern else "handshake"]
        yield {"command": sys.executable, "args": words}
        return
    server = WholeServer(name, modern=modern)
    path = str(directory / name)
    made = {"unix": _unix, "websocket": _websocket, "http": _http, "sse": _sse}[transport](server, path)
    with at_work(made):
        yield _entry(transport, made.server_address)


def _entry(transport: str, address: Any) -> Json:
    place = "" if transport == "unix" else f"127.0.0.1:{address[1]}"
    return {
        "unix": {"url": address},
        "websocket": {"url": f"ws://{place}/"},
        "http": {"type": "http", "url": f"http://{place}/mcp"},
        "sse": {"type": "sse", "url": f"http://{place}/sse"},
    }[transport]


class _Threads(socketserver.ThreadingMixIn):
    daemon_threads = True
    block_on_close = False


class _UnixServer(_Threads, socketserver.UnixStreamServer):
    pass


class _TcpServer(_Threads, socketserver.TCPServer):
    pass


class _WebServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: clients disconnect from streams."""


def _unix(server: WholeServer, path: str) -> socketserver.BaseServer:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            send = _writer(lambda data: self.connection.sendall(data + b"\n"))
            conversation = Conversation(server, send)
            for line in self.rfile:
                conversation.receive(json.loads(line), send)

    return _UnixServer(path, Handler)


def _websocket(server: WholeServer, _path: str) -> socketserver.BaseServer:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            link = WebSocket.accepted(self.request)
            send = _writer(link.send)
            conversation = Conversation(server, send)
            for data in link:
                conversation.receive(json.loads(data), send)

    return _TcpServer(("127.0.0.1", 0), Handler)


def _writer(write: Callable[[bytes], None]) -> Callable[[Json], None]:
    lock = threading.Lock()

    def send(message: Json) -> None:
        with lock, contextlib.suppress(OSError):
            write(json.dumps({"jsonrpc": "2.0", **message}).encode())

    return send


class _Events:
    """A stream of server-sent events, written by the thread of its request."""

    def __init__(self) -> None:
        self._queue: queue.Queue[bytes | None] = queue.Queue()

    def send(self, message: Json) -> None:
        """Queue a message."""
        self.event(json.dumps({"jsonrpc": "2.0", **message}))

    def event(self, data: str, kind: str = "message") -> None:
        """Queue an event of any kind."""
        self._queue.put(f"event: {kind}\ndata: {data}\n\n".encode())

    def end(self) -> None:
        """End the stream."""
        self._queue.put(END)

    def write_to(self, handler: BaseHTTPRequestHandler) -> None:
        """Write the stream as the response, to its end."""
        while (event := self._queue.get()) is not END:
            handler.wfile.write(event)
            handler.wfile.flush()


class _Handler(Page):
    def message(self) -> Json:
        """The body."""
        found: Json = json.loads(self.body())
        return found

    def head(self, status: int, kind: str = "", **headers: str) -> None:
        """Write the head of the response, which ends with the connection."""
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Connection": "close", **headers}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()


def _http(server: WholeServer, _path: str) -> socketserver.BaseServer:
    sessions: dict[str, tuple[Conversation, _Events]] = {}
    everyone = (Conversation(server, lambda _message: None), _Events())

    class Handler(_Handler):
        def do_POST(self) -> None:
            message, session = self.message(), self.headers.get(SESSION, "")
            if message.get("method") == "initialize":
                session = f"{server.name}-{len(sessions)}"
                events = _Events()
                sessions[session] = Conversation(server, events.send), events
            conversation, _ = everyone if server.modern else sessions[session]
            if "id" not in message or "method" not in message:
                conversation.receive(message, lambda _message: None)
                self.head(202, **{"Content-Length": "0"})
                return
            events = _Events()

            def send(each: Json) -> None:
                events.send(each)
                if each.get("id") == message["id"] and "method" not in each:
                    events.end()

            self.head(200, "text/event-stream", **{SESSION: session})
            conversation.receive(message, send)
            events.write_to(self)

        def do_GET(self) -> None:
            if server.modern:
                self.head(405)
                return
            self.head(200, "text/event-stream")
            sessions[self.headers[SESSION]][1].write_to(self)

        def do_DELETE(self) -> None:
            sessions[self.headers[SESSION]][1].end()
            self.head(200, **{"Content-Length": "0"})

    return _WebServer(("127.0.0.1", 0), Handler)


def _sse(server: WholeServer, _path: str) -> socketserver.BaseServer:
    streams: list[tuple[Conversation, _Events]] = []

    class Handler(_Handler):
        def do_GET(self) -> None:
            events = _Events()
            streams.append((Conversation(server, events.send), events))
            self.head(200, "text/event-stream")
            events.event(f"/messages?{len(streams) - 1}", "endpoint")
            events.write_to(self)

        def do_POST(self) -> None:
            conversation, events = streams[int(self.path.partition("?")[2])]
            conversation.receive(self.message(), events.send)
            self.head(202, **{"Content-Length": "0"})

    return _WebServer(("127.0.0.1", 0), Handler)
