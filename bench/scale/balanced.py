"""Calls over HTTP to one daemon, and through the shipped HAProxy to one and to two."""

from __future__ import annotations

import json
import selectors
import socket
import statistics
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from bench.calls.daemons import servers
from bench.calls.targets import FEW_TOOLS
from bench.calls.wires import cpu_of
from bench.running import Unmeasurable, running
from daemon import protocol
from tests.e2e.balancing import balanced
from tests.e2e.harness import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS = 32
"""Clients, each with one call under way."""

SECONDS = 2.0
"""Of one try."""

TURNS = 5
"""Tries of each, in turns: what else the machine does falls on all alike."""

WAIT = 10.0
"""Seconds for an answer."""

READ_BYTES = 64 * 1024

TOKEN = "0123456789abcdef0123456789abcdef"
ERAS = {"modern": protocol.MODERN_VERSION, "handshake": protocol.HANDSHAKE_VERSIONS[-1]}
CALL = {"name": "echo_0", "arguments": {"text": "x" * 40}}


@attrs.frozen
class Try:
    """What came of one try."""

    rate: float
    """Calls a second."""
    daemons_us: float
    """CPU of the daemons for a call."""
    balancer_us: float
    """CPU of HAProxy for a call."""


@attrs.define
class Way:
    """What calls go through, and what came of it."""

    words: str
    era: str
    port: int
    daemons: list[int]
    """Their processes."""
    balancer: int | None = None
    """HAProxy's process."""
    tries: list[Try] = attrs.field(factory=list)

    def median(self, name: str) -> float:
        """Of all tries."""
        values: list[float] = [getattr(each, name) for each in self.tries]
        return statistics.median(values)


def balancing() -> list[Way]:
    """Measure the calls of both eras on every way.

    Raises:
        Unmeasurable: something did not start, or answered something else.
    """
    with ExitStack() as stack:
        ports = [free_port() for _ in range(2)]
        pids = [stack.enter_context(running(_config(port))).pid for port in ports]
        alone, both = (
            stack.enter_context(balanced({"one": one, "two": two}))
            for one, two in ((ports[0], ports[0]), (ports[0], ports[1]))
        )
        for balancer in (alone, both):
            balancer.sees(one="UP", two="UP")
        ways = [
            way
            for era in ERAS
            for way in (
                Way("one daemon", era, ports[0], pids[:1]),
                Way("HAProxy, one daemon", era, alone.port, pids[:1], alone.pid),
                Way("HAProxy, two daemons", era, both.port, pids, both.pid),
            )
        ]
        for _ in range(TURNS):
            for way in ways:
                way.tries.append(_tried(way))
        return ways


def _config(port: int) -> dict[str, Any]:
    return {
        "mcpServers": servers([FEW_TOOLS]),
        "listen": {"http": {"address": f"127.0.0.1:{port}", "tokens": TOKEN}},
        "profiles": {"default": {"surface": "full"}},
    }


def _tried(way: Way) -> Try:
    with _clients(way) as clients, selectors.DefaultSelector() as ready:
        for each in clients:
            ready.register(each.line, selectors.EVENT_READ, each)
            each.call()
        before, began, answers = _cpu(way), time.perf_counter(), 0
        while (now := time.perf_counter()) < began + SECONDS:
            found = ready.select(WAIT)
            if not found:
                raise Unmeasurable(f"{way.words}: no answer for {WAIT:.0f} s")
            for key, _ in found:
                if key.data.took():
                    answers += 1
                    key.data.call()
        used = [1e6 * (after - start) / answers for start, after in zip(before, _cpu(way), strict=True)]
        for each in clients:
            # What is under way is waited for: the next try begins with nothing left of this one.
            while not each.took():
                pass
    return Try(answers / (now - began), *used)


def _cpu(way: Way) -> tuple[float, float]:
    return sum(map(cpu_of, way.daemons)), 0.0 if way.balancer is None else cpu_of(way.balancer)


class Client:
    """A connection, and a call that is the same each time."""

    def __init__(self, port: int, era: str) -> None:
        """Connect; in the handshake era, begin a session."""
        self.line = socket.create_connection(("127.0.0.1", port), WAIT)
        self._rest = b""
        headers, params = {"MCP-Protocol-Version": ERAS[era]}, dict(CALL)
        if era == "modern":
            headers |= {"Mcp-Method": "tools/call", "Mcp-Name": str(CALL["name"])}
            params["_meta"] = {protocol.VERSION_KEY: ERAS[era], protocol.CAPABILITIES_KEY: {}}
        else:
            who = {
                "protocolVersion": ERAS[era],
                "capabilities": {},
                "clientInfo": {"name": "b", "version": "1"},
            }
            head = self._asked(_post("initialize", who, {})).decode()
            found = [
                line.partition(": ")[2] for line in head.split("\r\n") if line.startswith("mcp-session-id")
            ]
            headers["Mcp-Session-Id"] = found[0]
        self._call = _post("tools/call", params, headers)
        self._asked(self._call)

    def call(self) -> None:
        """Send the call."""
        self.line.sendall(self._call)

    def took(self) -> bytes:
        """Read; the head of the answer if that is complete, else nothing."""
        self._rest += self.line.recv(READ_BYTES)
        head, end, body = self._rest.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200") or (end and b"content-length: " not in head):
            raise Unmeasurable(f"unexpected: {self._rest[:200]!r}")
        if not end or len(body) < int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return b""
        self._rest = b""
        return head

    def _asked(self, request: bytes) -> bytes:
        """The head of the answer to a request that is not measured."""
        self.line.sendall(request)
        while not (head := self.took()):
            pass
        return head


def _post(method: str, params: Any, headers: dict[str, str]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    fields = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {TOKEN}",
        "Content-Length": str(len(body)),
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


@contextmanager
def _clients(way: Way) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        made = [Client(way.port, way.era) for _ in range(CONNECTIONS)]
        for each in made:
            stack.callback(each.line.close)
        yield made
