"""The HTTP door of a test daemon: its address and its tokens."""

import http.client
import io
import json
import socket
import struct
from typing import Any, Self, cast

import attrs

from tests.e2e import harness
from tests.e2e.harness import free_port
from tests.waiting import WAIT

DOOR_TOKEN = "f8f3a1c2-only-for-tests"


@attrs.frozen
class HttpDoor:
    """The address and token for clients."""

    port: int = attrs.field(factory=free_port)

    @property
    def listen(self) -> dict[str, Any]:
        """The configuration of `listen`."""
        return {"http": {"address": f"127.0.0.1:{self.port}", "tokens": DOOR_TOKEN}}

    def url(self, *place: str) -> str:
        """The URL of a profile and a surface."""
        return "/".join((f"http://127.0.0.1:{self.port}/mcp", *place))

    def headers(self, key: str | None = None) -> dict[str, str]:
        """The headers of each request, with a session's key if given."""
        return {"Authorization": f"Bearer {DOOR_TOKEN}", **({"Mcpd-Session": key} if key else {})}


# --- HTTP as bytes on a socket -------------------------------------------------------------------------------


TOKEN = "0123456789abcdef0123"
"""The token of a daemon under test."""
OTHER_TOKEN = "fedcba98765432100123"
"""The token of another client."""
INITIALIZE, META, MODERN = harness.INITIALIZE, harness.META, harness.MODERN


def listening(**more: Any) -> tuple[int, dict[str, Any]]:
    """A free port, and the `listen` of a daemon that serves HTTP there for two tokens."""
    port = free_port()
    tokens = [
        {"name": "one", "value": TOKEN, "workspaces": ["*"]},
        {"name": "other", "value": OTHER_TOKEN, "workspaces": ["*"]},
    ]
    return port, {"http": {"address": f"127.0.0.1:{port}", "tokens": tokens, **more}}


def message(method: str, params: Any = None, request_id: Any = 1) -> bytes:
    """A JSON-RPC request; without an id, a notification."""
    said = {"jsonrpc": "2.0", "method": method, "params": {} if params is None else params}
    return json.dumps(said if request_id is None else {"id": request_id, **said}).encode()


def tool_call(server: str, tool: str, request_id: Any = 1, meta: Any = None, **arguments: Any) -> bytes:
    """A call of a server's tool, through the wrapper of the default surface."""
    called = {"category": server, "name": tool, "args": arguments}
    params = {"name": "call-category-tool", "arguments": called, **({"_meta": meta} if meta else {})}
    return message("tools/call", params, request_id)


def request(method: str = "POST", path: str = "/mcp", body: bytes = b"", **headers: str | None) -> bytes:
    """The bytes of a request; a header that is None is omitted, and an underscore in a name is a hyphen."""
    fields: dict[str, str | None] = {"Host": "localhost", "Authorization": f"Bearer {TOKEN}"}
    if method == "POST":
        fields |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        fields["Content-Length"] = str(len(body))
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def modern(method: str, params: dict[str, Any], request_id: Any = 1, **headers: str) -> bytes:
    """A POST of MCP 2026-07-28."""
    said = message(method, {**params, "_meta": {**META, **params.get("_meta", {})}}, request_id)
    named = {"Mcp_Name": params["name"]} if "name" in params else {}
    return request(body=said, MCP_Protocol_Version=MODERN, Mcp_Method=method, **named, **headers)


class _Kept:
    """A reader that stays open between responses."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def makefile(self, _mode: str) -> Self:
        """Act as a socket."""
        return self

    def close(self) -> None:
        """Stay open for the next response."""


class RawHttp:
    """One connection."""

    def __init__(self, port: int, *, receive_buffer: int | None = None, timeout: float = WAIT) -> None:
        """Connect; `receive_buffer`: the bytes that the kernel buffers for a client that does not read."""
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        """Send bytes; a closed connection is no error."""
        try:
            self.socket.sendall(data)
        except OSError:
            return

    def line(self) -> bytes:
        """The next line."""
        return self._file.readline()

    def head(self, method: str = "POST") -> http.client.HTTPResponse:
        """The head of the next response, whose body can be read from it."""
        response = http.client.HTTPResponse(cast("socket.socket", _Kept(self._file)), method=method)
        response.begin()
        return response

    def status(self, method: str = "POST") -> int:
        """The status of the next response, which is read to its end."""
        response = self.head(method)
        response.read()
        return response.status

    def json(self) -> Any:
        """The body of the next response."""
        return json.loads(self.head().read())

    def is_closed(self) -> bool:
        """Whether the connection is closed (waits for it)."""
        try:
            return self._file.read(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def initialize(self, path: str = "/mcp", **headers: str) -> str:
        """Begin a session; returns its id."""
        self.send(request(path=path, body=message("initialize", INITIALIZE), **headers))
        response = self.head()
        response.read()
        found = response.getheader("Mcp-Session-Id")
        assert found, response.status
        return found

    def reset(self) -> None:
        """Reset the connection."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def data_of(response: http.client.HTTPResponse) -> tuple[str, Any]:
    """The next event of a stream with data: its id and its data; empty at the end."""
    event_id = ""
    while line := response.readline():
        name, _, value = line.decode().rstrip("\r\n").partition(": ")
        if name == "id":
            event_id = value
        elif name == "data":
            return event_id, json.loads(value) if value else None
    return "", None
