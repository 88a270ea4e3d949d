"""A conversation of the bridge with a client and with daemons, all of which a test plays."""

import json
import socket
from typing import Any

from daemon import protocol
from daemon.bridge.conversation import Conversation
from daemon.bridge.frames import LONG_BYTES, only_answers
from daemon.bridge.sides import ClientSide, DaemonSide
from daemon.wire import envelope

Json = dict[str, Any]

PING = {"id": "mcpd-connect", "method": "ping"}
INITIALIZE = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
INITIALIZED = {"method": "notifications/initialized"}
LIST = {"id": 1, "method": "tools/list"}
CALL = {"id": 2, "method": "tools/call", "params": {"name": "pay"}}
LISTEN = {"id": "s", "method": "subscriptions/listen"}
CHANGED = [{"method": f"notifications/{each}/list_changed"} for each in ("tools", "prompts", "resources")]
BIG = {"id": 3, "method": "tools/call", "params": {"name": "x" * (2 * LONG_BYTES)}}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def line(message: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def result(request_id: object, result: Any = None) -> bytes:
    """An answer, written as the daemon does."""
    body = json.dumps(result or {}).encode()
    return b"".join(map(bytes, envelope.response(json.dumps(request_id).encode(), body))) + b"\n"


def acknowledgement(request_id: str) -> bytes:
    params = {"notifications": {"toolsListChanged": True}, "_meta": {protocol.SUBSCRIPTION_KEY: request_id}}
    body = json.dumps(params, separators=(",", ":")).encode()
    return b"".join(map(bytes, envelope.notification(ACKNOWLEDGED, body))) + b"\n"


def parsed(lines: bytes) -> list[Json]:
    found = [json.loads(each) for each in lines.splitlines()]
    assert all(each.pop("jsonrpc") == "2.0" for each in found)
    return found


class Talk:
    """An conversation over real sockets, at a time that the test sets."""

    def __init__(self, hello: bytes = b"", *, in_short: bool = False, through: bool = True) -> None:
        self.in_short = in_short
        """Whether whole lines pass as they do while nothing waits (`Bridge._relay`)."""
        self.now = 100.0
        self.resumed: list[float] = []
        """When the client's conversation began, as daemons were told that are not the first."""
        self.conversation = Conversation(hello, through=through)
        self.client = ClientSide(self.conversation)
        self.daemon = DaemonSide(self.conversation, self.client)
        self._ours, self._theirs = socket.socketpair()
        self._prepare()
        if in_short:
            self.speaks()

    def speaks(self) -> None:
        """The daemon says its first word, which is nothing to the client."""
        self.daemon.said(line(CHANGED[0]))
        self.conversation.down.clear()

    def _prepare(self) -> None:
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def says(self, *messages: Json) -> None:
        """The client sends requests."""
        lines = b"".join(map(line, messages))
        if self.in_short and self.daemon.is_calm and len(lines) < LONG_BYTES:
            self.conversation.up.pass_on(lines, self._ours)
            self.client.passed(lines)
        else:
            self.client.said(lines, self.now)

    def passes(self, *messages: Json) -> None:
        """The client sends requests, and the daemon gets them and nothing else."""
        self.says(*messages)
        assert self.got == [*messages]

    @property
    def heard(self) -> list[Json]:
        """What the client got since the last look."""
        lines = bytes(self.conversation.down)
        self.conversation.down.clear()
        return parsed(lines)

    @property
    def received(self) -> bytes:
        """What the daemon got since the last look."""
        parts: list[bytes] = []
        while self.conversation.up.unsent or not parts:
            self.conversation.up.send(self._ours)
            try:
                parts.append(self._theirs.recv(2**20))
            except BlockingIOError:
                break
        return b"".join(parts)

    @property
    def got(self) -> list[Json]:
        """The same as messages, but for what a hello says of earlier daemons (`resumed`)."""
        messages = parsed(self.received)
        hellos = [each["params"] for each in messages if each.get("method") == "mcpd/hello"]
        self.resumed += [hello.pop("resumed") for hello in hellos if "resumed" in hello]
        return [each for each in messages if each.get("params") != {}]

    def answers(self, *lines: bytes) -> None:
        """The daemon sends."""
        data = b"".join(lines)
        if self.in_short and self.daemon.is_calm and data.endswith(b"\n") and only_answers(data):
            self.conversation.down += data
            self.daemon.passed(data)
        else:
            self.daemon.said(data)

    def dies(self) -> None:
        """The daemon goes, and the loop takes note."""
        self.close()
        self.daemon.lost(self.now)

    def returns(self) -> None:
        """Another daemon takes the connection; it has not answered yet."""
        self.close()
        self._ours, self._theirs = socket.socketpair()
        self._prepare()
        self.daemon.connected()

    def comes_back(self) -> None:
        """Another daemon takes the connection, and answers the first request that it gets."""
        self.returns()
        self.greeted()

    def restarts(self) -> None:
        """One daemon goes, another comes, and answers the first request that it gets."""
        self.dies()
        self.comes_back()

    def greeted(self) -> None:
        """The new daemon answers what it is asked first."""
        first = next(message for message in self.got if "id" in message)
        self.answers(result(first["id"]))

    def handshake(self) -> None:
        self.says(INITIALIZE)
        self.answers(result(0))
        self.says(INITIALIZED)
        assert self.got[-2:] == [INITIALIZE, INITIALIZED]
        assert self.heard == [{"id": 0, "result": {}}]

    def subscribe(self) -> None:
        self.says(LISTEN)
        self.answers(acknowledgement("s"))
        assert self.got == [LISTEN]
        assert [each["method"] for each in self.heard] == [ACKNOWLEDGED]

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


def refused(message: Json) -> str:
    """The code of an answer that the bridge gave to a call."""
    code: str = message["result"]["structuredContent"]["error"]["code"]
    return code
