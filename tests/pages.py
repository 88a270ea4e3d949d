"""HTTP servers of the standard library that tests need: on a thread, for as long as a block, and silent."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

from tests.waiting import WAIT

Server = TypeVar("Server", bound=socketserver.BaseServer)


class Page(BaseHTTPRequestHandler):
    """A request, and what answers it."""

    def body(self) -> bytes:
        """What was sent."""
        return self.rfile.read(int(self.headers["Content-Length"]))

    def say(self, body: bytes = b"", status: int = 200, kind: str = "application/json") -> None:
        """Answer."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Log nothing."""


@contextmanager
def at_work(server: Server) -> Iterator[Server]:
    """Have a server answer during the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(WAIT)
        server.server_close()


@contextmanager
def site(page: type[Page], host: str = "127.0.0.1") -> Iterator[str]:
    """The address of a server of such pages, without a path."""
    server = ThreadingHTTPServer((host, 0), page)
    server.daemon_threads = True
    with at_work(server):
        yield f"http://{host}:{server.server_port}"
