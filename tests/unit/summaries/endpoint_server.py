"""An OpenAI-compatible endpoint on loopback that answers as told, well or badly.

Real sockets, and bytes written by hand where an HTTP library would refuse to be so wrong.
"""

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from tests.waiting import background

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]

HEADER_END = b"\r\n\r\n"


@attrs.frozen
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: Any
    """Decoded."""

    @property
    def question(self) -> Any:
        """The object that the user's message holds."""
        return json.loads(self.body["messages"][1]["content"])


class EndpointServer:
    """Serves while it is open; each request is met with the next behaviour, the last one serves for ever."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.port = port
        self._tls = tls
        self.asked: list[Asked] = []
        self.connected = trio.Event()
        self.hung_up = trio.Event()
        self._behaviours: list[Callable[[Stream, Asked], Awaitable[None]]] = [well]
        self._news = trio.Event()

    @property
    def base_url(self) -> str:
        """What `summaries.baseUrl` is to say."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/v1"

    def behave(self, *behaviours: Callable[[Stream, Asked], Awaitable[None]]) -> None:
        """Meet the next requests so."""
        self._behaviours = list(behaviours)

    async def wait_asked(self, count: int) -> Asked:
        """Wait for so many requests in all; return the last of them."""
        while len(self.asked) < count:
            await self._news.wait()
        return self.asked[count - 1]

    async def serve(self, connection: trio.SocketStream) -> None:
        """Meet one connection."""
        self.connected.set()
        stream: Stream = connection
        if self._tls is not None:
            stream = trio.SSLStream(connection, self._tls, server_side=True, https_compatible=True)
        async with connection:
            try:
                asked = await _request(stream)
                if asked is None:
                    self.hung_up.set()
                    return
                self.asked.append(asked)
                self._news.set()
                self._news = trio.Event()
                behaviour = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
                await behaviour(stream, asked)
                if stream is connection:
                    await connection.send_eof()
                while await connection.receive_some():
                    """What the client still says does not matter."""
            except trio.BrokenResourceError:
                self.hung_up.set()


@asynccontextmanager
async def endpoint(tls: ssl.SSLContext | None = None) -> AsyncIterator[EndpointServer]:
    """An endpoint that is there until the block ends, over TLS if it is given its side of that."""
    async with background() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server = EndpointServer(listener.socket.getsockname()[1], tls)
        nursery.start_soon(trio.serve_listeners, server.serve, [listener])
        yield server


async def _request(stream: Stream) -> Asked | None:
    data = b""
    while HEADER_END not in data:
        chunk = await stream.receive_some(65536)
        if not chunk:
            return None
        data += chunk
    head, _, body = data.partition(HEADER_END)
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += await stream.receive_some(65536)
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, json.loads(body or b"null"))


# --- what it may do ----------------------------------------------------------------------------------------


def completion(content: object, **message: object) -> bytes:
    """A chat completion that says this: a text, or an object as JSON."""
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text, **message}}
    return json.dumps({"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()


def http(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole HTTP answer; underscores in the headers' names are hyphens."""
    lines = [f"HTTP/1.1 {status} Sentence", f"content-length: {len(body)}", "content-type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + HEADER_END + body


def sentences_for(asked: Asked) -> dict[str, Any]:
    """A good answer to a question."""
    question = asked.question
    tools = {name: {"summary": f"Does {name} well.", "keywords": ["pelican"]} for name in question["tools"]}
    server = {"server": {"summary": f"Is good at {len(question.get('overview', ()))} things.", "keywords": []}}
    return {**(server if "overview" in question else {}), "tools": tools}


async def well(stream: Stream, asked: Asked) -> None:
    """Answer as asked."""
    await stream.send_all(http(200, completion(sentences_for(asked))))


def saying(content: object, **message: object) -> Callable[[Stream, Asked], Awaitable[None]]:
    """Answer with this text, or this object as JSON."""
    return raw(http(200, completion(content, **message)))


def status(code: int, body: bytes = b"", **headers: str) -> Callable[[Stream, Asked], Awaitable[None]]:
    """Answer with this status."""
    return raw(http(code, body, **headers))


def raw(data: bytes) -> Callable[[Stream, Asked], Awaitable[None]]:
    """Send these bytes and hang up."""

    async def behave(stream: Stream, asked: Asked) -> None:
        await stream.send_all(data)

    return behave


async def silence(stream: Stream, asked: Asked) -> None:
    """Never answer."""
    while await stream.receive_some():
        """What the client still says does not matter."""
    raise trio.BrokenResourceError


async def drip(stream: Stream, asked: Asked) -> None:
    """Begin to answer and never come to an end, a byte every now and then."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{")
    while True:
        await stream.send_all(b" ")
        await trio.sleep(0.01)


async def flood(stream: Stream, asked: Asked) -> None:
    """Answer with 10 MB."""
    await stream.send_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10000000\r\n\r\n"
    )
    for _ in range(100):
        await stream.send_all(b"x" * 100_000)
