"""A client with all capabilities, in either era, at each door: it sees raw messages, with all members."""

import contextlib
import http.client
import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain
from typing import Any, ClassVar, Protocol

from tests.e2e.harness import Daemon, RawClient
from tests.e2e.raw_http import HttpDoor
from tests.e2e.sockets import WebSocket
from tests.e2e.whole_server import META, MODERN
from tests.waiting import WAIT

Json = dict[str, Any]

CAPABILITIES: Json = {
    "sampling": {"context": {}, "tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
    "extensions": {META + "ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
}
INFO = {"name": "whole", "version": "1"}
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
NAMED |= dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
"""The member that the header `Mcp-Name` repeats, by method."""

HEARD_WITHIN = WAIT
"""Real seconds to wait for a message."""

MOST_ROUNDS = 5
"""Most repetitions of a request that needs input."""


class Line(Protocol):
    """A way to send messages; received messages go to an inbox."""

    def send(self, message: Json) -> None:
        """Send one."""

    def close(self) -> None:
        """Hang up."""


class RawLine:
    """Through the unix socket, or a bridge to it."""

    def __init__(self, raw: RawClient, inbox: queue.Queue[Json]) -> None:
        self._raw = raw
        _in_a_thread(lambda: _fill(inbox, raw.lines()))

    def send(self, message: Json) -> None:
        """Send one."""
        self._raw.send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def close(self) -> None:
        """Hang up."""
        self._raw.hang_up()


class WebSocketLine:
    """Through the WebSocket door."""

    def __init__(self, door: HttpDoor, inbox: queue.Queue[Json]) -> None:
        stream = socket.create_connection(("127.0.0.1", door.port))
        self._socket = WebSocket.opened(stream, "/ws/default/full", door.headers())
        _in_a_thread(lambda: _fill(inbox, iter(self._socket)))

    def send(self, message: Json) -> None:
        """Send one."""
        self._socket.send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class HttpLine:
    """Through the HTTP door: a connection for each message, as some clients do."""

    def __init__(self, door: HttpDoor, inbox: queue.Queue[Json], *, modern: bool) -> None:
        self._door = door
        self._inbox = inbox
        self._modern = modern
        self._session: dict[str, str] = {}
        self._open: set[http.client.HTTPConnection] = set()

    def send(self, message: Json) -> None:
        """Send a message; its answers arrive while the caller continues."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        connection = self._connected("POST", body, self._headers(message))
        # Connections keep no order among each other: a notification has arrived before what follows it is sent.
        if message.get("method") == "initialize" or "id" not in message:
            self._take(connection)
        else:
            _in_a_thread(lambda: self._take(connection))
        if message.get("method") == "notifications/initialized":
            _in_a_thread(lambda: self._take(self._connected("GET", None, {"Accept": "text/event-stream"})))

    def _headers(self, message: Json) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self._modern:
            method = str(message["method"])
            headers |= {"Mcp-Protocol-Version": MODERN, "Mcp-Method": method}
            if method in NAMED:
                headers["Mcp-Name"] = message["params"][NAMED[method]]
        return headers

    def _connected(self, verb: str, body: bytes | None, headers: dict[str, str]) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self._door.port, timeout=WAIT)
        self._open.add(connection)
        connection.request(
            verb, "/mcp/default/full", body, {**headers, **self._door.headers(), **self._session}
        )
        return connection

    def _take(self, connection: http.client.HTTPConnection) -> None:
        # Whoever hangs up while this waits shuts the socket down, and http.client then finds no response.
        with closing(connection), contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            response = connection.getresponse()
            session = response.headers.get("Mcp-Session-Id")
            if session is not None:
                self._session = {"Mcp-Session-Id": session}
            if response.headers.get_content_type() == "text/event-stream":
                data = (line[5:] for line in response if line.startswith(b"data:"))
                _fill(self._inbox, (each for each in data if each.strip()))
            elif body := response.read():
                _fill(self._inbox, [body])
        self._open.discard(connection)

    def close(self) -> None:
        """Hang up."""
        if self._session:
            with closing(self._connected("DELETE", None, {})) as connection:
                connection.getresponse().read()
                self._open.discard(connection)
        for connection in list(self._open):
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)


def _in_a_thread(act: Callable[[], object]) -> None:
    threading.Thread(target=act, daemon=True).start()


def _fill(inbox: queue.Queue[Json], lines: Any) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in lines:
            inbox.put(json.loads(line))


class WholeClient:
    """A client that answers requests, and remembers them and all notifications."""

    capabilities: ClassVar[Json] = CAPABILITIES

    def __init__(self, daemon: Daemon, door: HttpDoor, place: str, *options: str, modern: bool) -> None:
        """`options` are those of a bridge."""
        self.modern = modern
        self.inbox: queue.Queue[Json] = queue.Queue()
        self.asked: list[Json] = []
        self.told: list[Json] = []
        self.meta: Json = {}
        """The `_meta` of each request."""
        self._last = 0
        self._line = self._opened(daemon, door, place, options)
        self.greeting = self._greeted()
        if modern:
            self.listen({"promptsListChanged": True, "resourcesListChanged": True})

    def _opened(self, daemon: Daemon, door: HttpDoor, place: str, options: tuple[str, ...]) -> Line:
        match place:
            case "unix":
                return RawLine(daemon.client().hello(surface="full"), self.inbox)
            case "bridge":
                return RawLine(daemon.bridge(*options), self.inbox)
            case "websocket":
                return WebSocketLine(door, self.inbox)
            case _:
                return HttpLine(door, self.inbox, modern=self.modern)

    def _greeted(self) -> Json:
        if self.modern:
            self.meta = {
                META + "protocolVersion": MODERN,
                META + "clientCapabilities": self.capabilities,
                META + "clientInfo": INFO,
            }
            return self.ask("server/discover")
        said = {"protocolVersion": "2025-11-25", "capabilities": self.capabilities, "clientInfo": INFO}
        greeting = self.ask("initialize", said)
        self._line.send({"method": "notifications/initialized"})
        return greeting

    def ask(self, method: str, params: Json | None = None, **meta: Any) -> Json:
        """The result of a request, after as many rounds as it needs."""
        given: Json = dict(params or {})
        result: Json = {}
        for _ in range(MOST_ROUNDS):
            result = self._once(method, {**given, **self._with(meta)})
            if result.get("resultType") != "input_required":
                return result
            answers = {key: self._answer(each) for key, each in result["inputRequests"].items()}
            given |= {"inputResponses": answers}
            given |= {"requestState": result["requestState"]} if "requestState" in result else {}
        raise AssertionError(result)

    def _with(self, meta: Json) -> Json:
        carried = {**self.meta, **meta}
        return {"_meta": carried} if carried else {}

    def _once(self, method: str, params: Json) -> Json:
        request = self.begin(method, params)
        messages = self._messages()
        answer = next(each for each in messages if each.get("id") == request and "method" not in each)
        result: Json = answer["result"] if "result" in answer else {"error": answer["error"]}
        return result

    def begin(self, method: str, params: Json) -> int:
        """Send a request; returns its id."""
        self._last += 1
        self._line.send({"id": self._last, "method": method, "params": params})
        return self._last

    def call(self, tool: str, arguments: Json | None = None, **meta: Any) -> Json:
        """The result of a tool call."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments or {}}, **meta)

    def listen(self, wishes: Json, **meta: Any) -> None:
        """Open a subscription of the modern era."""
        self.begin("subscriptions/listen", {"notifications": wishes, **self._with(meta)})
        self.hear("notifications/subscriptions/acknowledged")

    def hear(self, method: str, **members: Any) -> Json:
        """The next such notification, or an earlier one."""
        for message in chain(list(self.told), self._messages()):
            params: Json = message.get("params") or {}
            if message.get("method") == method and members.items() <= params.items():
                self.told.remove(message)
                return params
        raise AssertionError(method)

    def _messages(self) -> Iterator[Json]:
        """Received messages: requests are answered, notifications kept."""
        while True:
            message = self.inbox.get(timeout=HEARD_WITHIN)
            if "method" in message and "id" in message:
                self._respond(message)
            elif "method" in message:
                self.told.append(message)
            yield message

    def _respond(self, message: Json) -> None:
        token = ((message.get("params") or {}).get("_meta") or {}).get("progressToken")
        if token is not None:
            self._line.send(
                {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
            )
        self._line.send({"id": message["id"], "result": self._answer(message)})

    def _answer(self, asked: Json) -> Json:
        self.asked.append(asked)
        match asked["method"]:
            case "elicitation/create" if asked["params"].get("mode") == "url":
                return {"action": "accept"}
            case "elicitation/create":
                return {"action": "accept", "content": {"name": "somebody"}}
            case "sampling/createMessage":
                text = {"type": "text", "text": "sampled"}
                return {"role": "assistant", "model": "none", "content": text, "x-unknown": {"kept": True}}
            case _:
                return {"roots": [{"uri": "file:///workspace", "name": "workspace"}]}

    def close(self) -> None:
        """Hang up."""
        self._line.close()
