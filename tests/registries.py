"""A registry of MCP servers (API v0.1) from a directory of server.json documents; misbehaves if told.

`python -m tests.registries DIR [--hostile NAME] [--port N]` runs one until it is interrupted.
"""

import argparse
import gzip
import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import attrs

from tests.pages import Page, at_work

PAGE = 30
"""Servers of a page, as in the official registry."""

OFFICIAL = "io.modelcontextprotocol.registry/official"

PIECE = b"x" * 65536


@attrs.define
class LocalRegistry:
    """A registry that runs, and its requests so far."""

    documents: list[dict[str, Any]]
    """The published documents, the newest version of a server last."""
    hostile: str = ""
    """A name of `HOSTILE`, or none for a registry that behaves."""
    leads_to: str = ""
    """The target of the redirects of `redirects`."""
    port: int = 0
    answers: Callable[["_Handler"], None] | None = None
    """An answer in place of the registry's."""
    asked: list[str] = attrs.field(factory=list)
    headers: dict[str, str] = attrs.field(factory=dict)
    """Those of the last request."""
    closing: threading.Event = attrs.field(factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def listed(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """A page of the servers that a query finds."""
        latest = {each["name"]: each for each in self.documents}
        found = [*latest.values()] if query.get("version") == ["latest"] else self.documents
        search = query.get("search", [""])[0].lower()
        found = [each for each in found if search in each["name"].lower()]
        begin = int(query.get("cursor", ["0"])[0])
        limit = int(query.get("limit", [str(PAGE)])[0])
        page, rest = found[begin : begin + limit], found[begin + limit :]
        more = {"nextCursor": str(begin + limit)} if rest else {}
        return {"servers": [self.wrapped(each) for each in page], "metadata": {"count": len(page), **more}}

    def published(self, name: str, version: str) -> dict[str, Any] | None:
        """A document by its name and version, or `latest`."""
        found = [each for each in self.documents if each["name"] == name]
        found = [each for each in found if version in {"latest", each["version"]}]
        return self.wrapped(found[-1]) if found else None

    def wrapped(self, document: dict[str, Any]) -> dict[str, Any]:
        is_latest = [each for each in self.documents if each["name"] == document["name"]][-1] is document
        return {"server": document, "_meta": {OFFICIAL: {"status": "active", "isLatest": is_latest}}}


class _Handler(Page):
    registry: LocalRegistry

    def do_GET(self) -> None:
        self.registry.asked.append(self.path)
        self.registry.headers = dict(self.headers)
        # Who asks may have left.
        with suppress(OSError):
            (self.registry.answers or HOSTILE.get(self.registry.hostile, answer))(self)

    def head(self, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def send(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.head(status, content_type="application/json", content_length=str(len(body)), **headers)
        self.wfile.write(body)

    def tell(self, value: Any, status: int = 200) -> None:
        self.send(json.dumps(value).encode(), status)


def answer(handler: _Handler) -> None:
    """Answer as the API describes."""
    parts = urlsplit(handler.path)
    match parts.path.strip("/").split("/"):
        case ["v0.1", "servers"]:
            handler.tell(handler.registry.listed(parse_qs(parts.query)))
        case ["v0.1", "servers", name, "versions", version]:
            found = handler.registry.published(unquote(name), unquote(version))
            missing = {"title": "Not Found", "status": 404, "detail": "Server not found"}
            handler.tell(found or missing, 200 if found else 404)
        case _:
            handler.tell({"title": "Not Found", "status": 404}, 404)


def pages_without_end(handler: _Handler) -> None:
    """A page of servers for each cursor, and always another."""
    number = int(parse_qs(urlsplit(handler.path).query).get("cursor", ["0"])[0])
    page = handler.registry.listed({"version": ["latest"]})
    page["metadata"]["nextCursor"] = str(number + 1)
    handler.tell(page)


def same_cursor(handler: _Handler) -> None:
    page = handler.registry.listed({"version": ["latest"]})
    page["metadata"]["nextCursor"] = "again"
    handler.tell(page)


def drips(handler: _Handler) -> None:
    """A byte of the body at a time, for ever."""
    handler.head(content_length="1000000")
    while not handler.registry.closing.wait(0.01):
        handler.wfile.write(b" ")


def drips_headers(handler: _Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nx: ")
    while not handler.registry.closing.wait(0.01):
        handler.wfile.write(b"x")


def silent(handler: _Handler) -> None:
    handler.registry.closing.wait()


def endless(handler: _Handler) -> None:
    handler.head()
    while not handler.registry.closing.is_set():
        handler.wfile.write(PIECE)


def gzip_bomb(handler: _Handler) -> None:
    """A hundred megabytes in a hundred kilobytes."""
    handler.send(gzip.compress(b" " * 1_000_000, 9) * 100, content_encoding="gzip")


def cut_short(handler: _Handler) -> None:
    handler.head(content_length="1000")
    handler.wfile.write(b'{"server": {')


def redirects(handler: _Handler) -> None:
    handler.head(302, location=handler.registry.leads_to or handler.registry.url, content_length="0")


def deep(handler: _Handler) -> None:
    handler.send(b'{"servers": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}")


def no_json(handler: _Handler) -> None:
    handler.send(b"<html>Sign in to the network</html>")


def down(handler: _Handler) -> None:
    handler.tell({"title": "Internal Server Error"}, 500)


def other_server(handler: _Handler) -> None:
    """Another server than the one asked for."""
    handler.tell(handler.registry.wrapped(handler.registry.documents[-1]))


HOSTILE: dict[str, Callable[[_Handler], None]] = {
    each.__name__: each
    for each in (
        *(pages_without_end, same_cursor, drips, drips_headers, silent, endless, gzip_bomb, cut_short),
        *(redirects, deep, no_json, down, other_server),
    )
}


def documents_in(directory: Path) -> list[dict[str, Any]]:
    """The documents of a directory, sorted by the names of their files."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))]


def path_of(name: str, version: str = "latest") -> str:
    """The path of a version of a server."""
    return f"/v0.1/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}"


@contextmanager
def registry(
    documents: Sequence[dict[str, Any]] | Path = (),
    hostile: str = "",
    *,
    leads_to: str = "",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> Iterator[LocalRegistry]:
    """Run a registry on a port of the loopback interface."""
    if isinstance(documents, Path):
        documents = documents_in(documents)
    made = LocalRegistry(documents=[*documents], hostile=hostile, leads_to=leads_to)
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"registry": made}))
    made.port = server.server_port
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    with at_work(server):
        try:
            yield made
        finally:
            made.closing.set()


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("directory", type=Path)
    made.add_argument("--hostile", choices=HOSTILE, default="")
    made.add_argument("--port", type=int, default=0)
    options = made.parse_args()
    with (
        registry(options.directory, options.hostile, port=options.port) as running,
        suppress(KeyboardInterrupt),
    ):
        sys.stdout.write(f"{running.url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
