"""Two daemons on one PostgreSQL behind HAProxy, under load: one is killed, the other is drained.

Nobody is told in time, and nothing here is timed: clients call without a pause, each in a thread, and what
became of each call is judged afterwards, from what they and the servers noted (`tests.faults.history`). Clients
rely on what the specifications promise: a 404 of a session means that nothing was done, so they begin a new one
and ask again; an answer that is lost is lost, and never asked for twice.
"""

import json
import re
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pytest

from daemon import protocol
from tests.e2e.balancing import Balancer, balanced
from tests.e2e.harness import Daemon, free_port, running, scripted
from tests.e2e.loading import META_TOOLS
from tests.faults.history import Answered, Asked, History, HungUp, Took
from tests.unit.state.postgres import shared
from tests.waiting import WAIT, eventually

Json = dict[str, Any]
TOOL = "echo"
"""What all of them call: it answers its arguments."""
SERVER = "s"
HANDSHAKE = protocol.HANDSHAKE_VERSIONS[-1]
WHO = {"name": "raw", "version": "1"}
_connections = count(1)


@attrs.frozen(kw_only=True)
class Door:
    """Where clients go, and who they are."""

    port: int
    token: str
    path: str = "/mcp"
    key: str | None = None
    """Of a session that is kept."""

    @property
    def headers(self) -> dict[str, str]:
        """What goes with each request."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {self.token}",
        }
        return headers if self.key is None else {**headers, "Mcpd-Session": self.key}


class Lost(Exception):
    """No answer came, and none will."""


class Gone(Exception):
    """The session is gone: nothing was done."""


class Caller(threading.Thread):
    """A client that calls, one call after the other, until it is told to stop."""

    def __init__(self, door: Door, history: History, name: str, tools: tuple[str, ...] = ()) -> None:
        """Over a connection that is kept; `tools` are loaded first."""
        super().__init__(name=name)
        self.door = door
        self.answered: list[str] = []
        """The nonces of calls that were answered, in order."""
        self.lost: dict[str, str] = {}
        """Why an answer was lost, by the nonce of the call."""
        self.begun = 0
        """How many sessions it has begun."""
        self.fault: BaseException | None = None
        self.over = threading.Event()
        self.number = next(_connections)
        self._history = history
        self._ids = count(1)
        self._tools = tools
        self._connection = HTTPConnection("127.0.0.1", door.port, timeout=WAIT)

    def run(self) -> None:
        """Call until told to stop; a fault is kept for whoever started it."""
        try:
            self.begin()
            if self._tools:
                self.load()
            for number in count():
                if self.over.is_set():
                    break
                self.call(f"{self.name}-{number}")
            self._connection.close()
        except BaseException as fault:  # noqa: BLE001 - shown by whoever started it
            self.fault = fault

    def hung_up(self, nonce: str = "", why: str = "") -> None:
        """Note that the connection has ended; the next has another number."""
        self._history.note(HungUp(client=self.number))
        self.number = next(_connections)
        if nonce:
            self.lost[nonce] = why

    def begin(self) -> None:
        """What comes before the first request."""

    def load(self) -> None:
        """Load the tools; kept under the key."""
        answer = self.ask("0", "tools/call", {"name": "load_mcp_tool", "arguments": {"names": self._tools}})
        assert set(self._tools) == set(answer["result"]["structuredContent"]["tools"]), answer

    def listed(self) -> list[str]:
        """The names of the tools that it is offered, in the end."""
        try:
            return [tool["name"] for tool in self.ask("0", "tools/list", {})["result"]["tools"]]
        finally:
            self._connection.close()

    def call(self, nonce: str) -> None:
        """One call, asked again only if a session was gone."""
        request_id = str(next(self._ids))
        self._history.note(Asked(client=self.number, id=request_id, server=SERVER, nonce=nonce))
        try:
            answer = self.ask(request_id, "tools/call", {"name": TOOL, "arguments": {"nonce": nonce}})
        except Gone:
            self.hung_up()
            self.begin()
            self.call(nonce)
        except Lost as lost:
            self.hung_up(nonce, str(lost))
        else:
            self._history.note(Answered(client=self.number, id=request_id, text=json.dumps(answer)))
            assert answer.get("result", {}).get("isError") is False, (self.name, nonce, answer)
            self.answered.append(nonce)

    def ask(self, request_id: str, method: str, params: Json) -> Json:
        """A request's answer, past what comes before it."""
        message = {"jsonrpc": "2.0", "id": int(request_id), "method": method, "params": params}
        answer, body = self.post(message, {})
        text = body.decode()
        if answer.headers["Content-Type"] == "text/event-stream":
            *_, text = (line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:"))
        found: Json = json.loads(text)
        return found

    def post(self, message: Json, headers: dict[str, str]) -> tuple[HTTPResponse, bytes]:
        """A POST, and the whole response to it.

        Raises:
            Lost: the connection broke, or the balancer says that it did.
            Gone: it is said that the session is gone.
        """
        try:
            body = json.dumps(message).encode()
            self._connection.request("POST", self.door.path, body, {**self.door.headers, **headers})
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise Lost(repr(error)) from None
        if response.status == HTTPStatus.NOT_FOUND and "Mcp-Session-Id" in headers:
            raise Gone
        if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Lost(f"{response.status} {answer!r}")
        assert response.status in {HTTPStatus.OK, HTTPStatus.ACCEPTED}, (response.status, answer)
        return response, answer


class ModernCaller(Caller):
    """A client of MCP 2026-07-28: no session, each request stands for itself."""

    def post(self, message: Json, headers: dict[str, str]) -> tuple[HTTPResponse, bytes]:
        """With what each request says of itself, in its body and in its headers."""
        meta = {protocol.VERSION_KEY: protocol.MODERN_VERSION, protocol.CAPABILITIES_KEY: {}}
        params = {**message["params"], "_meta": {**meta, protocol.CLIENT_INFO_KEY: WHO}}
        said = {"MCP-Protocol-Version": protocol.MODERN_VERSION, "Mcp-Method": message["method"]}
        if "name" in params:
            said["Mcp-Name"] = params["name"]
        return super().post({**message, "params": params}, {**headers, **said})


class HandshakeCaller(Caller):
    """A client of MCP 2025-11-25: a session, which may be gone one day."""

    def __init__(self, door: Door, history: History, name: str, tools: tuple[str, ...] = ()) -> None:
        """Without a session yet."""
        super().__init__(door, history, name, tools)
        self._session: dict[str, str] = {}

    @property
    def session(self) -> str:
        """The id of its session."""
        return self._session["Mcp-Session-Id"]

    def begin(self) -> None:
        """Begin a session."""
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": WHO}
        self._session = {}
        answer, _ = super().post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, {})
        self._session = {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"], "MCP-Protocol-Version": HANDSHAKE}
        self.begun += 1
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, {})

    def post(self, message: Json, headers: dict[str, str]) -> tuple[HTTPResponse, bytes]:
        """With the session."""
        return super().post(message, {**headers, **self._session})


# --- two daemons on one PostgreSQL behind HAProxy, under load ------------------------------------------------


NAMES = ("one", "two")
WORK_SECONDS = 0.01
"""What a server takes for a call, one after the other: so there is always one that has begun and not ended."""
DRAIN_SECONDS = 5
"""Of the daemons: longer than the balancer takes to notice."""
ROUNDS = 3
"""Calls of each client that are answered before the next thing is done to the daemons."""
KEPT = ("echo", "pid")
"""What clients with a key load once, and call for ever."""


def configured(name: str, port: int, place: Path, url: str, token: str) -> dict[str, Any]:
    """A daemon's; each has a server of its own that notes what it is handed."""
    delayed = {"tools/call": {"delay": WORK_SECONDS}}
    http = {"address": f"127.0.0.1:{port}", "drain": DRAIN_SECONDS}
    return {
        "mcpServers": {SERVER: scripted(tools=[TOOL, "pid"], record=str(place / name), on=delayed)},
        "listen": {"http": {**http, "tokens": token}},
        "state": {"url": url},
        "profiles": {"default": {"surface": "full"}, "kept": {"surface": "load"}},
    }


@pytest.fixture
def url() -> Iterator[str]:
    """A database of the test's own."""
    with shared() as server:
        made = server.database()
        yield made
        server.drop(made)


@contextmanager
def two(url: str, token: str, place: Path) -> Iterator[tuple[dict[str, Daemon], Balancer]]:
    """Two daemons, both in service."""
    with ExitStack() as stack:
        ports = {name: free_port() for name in NAMES}
        configs = {name: configured(name, port, place, url, token) for name, port in ports.items()}
        daemons = {name: stack.enter_context(running(each)) for name, each in configs.items()}
        for daemon in daemons.values():
            daemon.ready()
        balancer = stack.enter_context(balanced(ports))
        balancer.sees(one="UP", two="UP")
        yield daemons, balancer


def crowd(port: int, token: str, history: History) -> list[Caller]:
    """Sixteen clients: of both eras, with a key and without."""
    door = Door(port=port, token=token)

    def keyed(name: str) -> Door:
        return attrs.evolve(door, path="/mcp/kept", key=name)

    found: list[Caller] = []
    for era, kind in (("modern", ModernCaller), ("handshake", HandshakeCaller)):
        found += (kind(door, history, f"{era} {number}") for number in range(5))
        found += (kind(keyed(f"{era}-{number}"), history, f"{era} kept {number}", KEPT) for number in range(3))
    return found


@contextmanager
def calling(clients: list[Caller]) -> Iterator[None]:
    """Clients that call while the block runs."""
    for each in clients:
        each.start()
    try:
        yield
    finally:
        for each in clients:
            each.over.set()
        for each in clients:
            each.join(2 * WAIT)


def served(clients: list[Caller]) -> None:
    """Wait until each client has had `ROUNDS` more answers."""
    before = {each: len(each.answered) for each in clients}

    def all_are() -> bool:
        for each in clients:
            if each.fault is not None:
                raise each.fault
        return all(len(each.answered) >= before[each] + ROUNDS for each in clients)

    eventually(all_are, lambda: {each.name: (len(each.answered), each.lost) for each in clients})


def executed(place: Path, name: str) -> list[str]:
    """The nonces of the calls that a daemon's server was handed, in all its lives."""
    events = map(json.loads, (place / name).read_text().splitlines())
    messages = [event["message"] for event in events if event["event"] == "message"]
    calls = [message["params"]["arguments"] for message in messages if message.get("method") == "tools/call"]
    return [call["nonce"] for call in calls if "nonce" in call]


def places(clients: list[Caller], balancer: Balancer) -> dict[HandshakeCaller, str]:
    """Which daemon has the session of each client that has one, by the balancer's table."""
    table = balancer.ask("show table mcpd")
    found = dict(re.findall(r"key=(\S+) .*server_key=(\S+)", table))
    return {each: found[each.session] for each in clients if isinstance(each, HandshakeCaller)}


def test_one_is_killed_and_one_is_drained_under_sixteen_clients(tmp_path: Path, url: str) -> None:
    token, history = secrets.token_urlsafe(32), History()
    with two(url, token, tmp_path) as (daemons, balancer):
        clients = crowd(balancer.port, token, history)
        with calling(clients):
            served(clients)
            assert all(executed(tmp_path, name) for name in NAMES)
            killed(daemons["one"], balancer, clients, history)
            drained(daemons["two"], balancer, clients)
        # Also what befell a client after it was looked at last.
        assert {each: each.fault for each in clients if each.fault is not None or each.is_alive()} == {}
        for each in clients:
            if each.door.key is not None:
                assert sorted(each.listed()) == sorted([*META_TOOLS, *KEPT])
    for name in NAMES:
        for nonce in executed(tmp_path, name):
            history.note(Took(server=SERVER, nonce=nonce))
    assert history.violations() == []


def killed(daemon: Daemon, balancer: Balancer, clients: list[Caller], history: History) -> None:
    """Kill the first daemon, and start it again."""
    before = places(clients, balancer)
    daemon.stop(signal.SIGKILL)
    under_way = {event.nonce for event in list(history.events) if isinstance(event, Asked)}
    served(clients)
    lost = {nonce: why for each in clients for nonce, why in each.lost.items()}
    assert lost, "nothing was under way when the daemon was killed"
    assert {nonce: why for nonce, why in lost.items() if nonce not in under_way} == {}
    assert {each: each.begun for each in before} == {each: 1 + (at == "one") for each, at in before.items()}
    daemon.start()
    daemon.ready()
    balancer.sees(one="UP", two="UP")
    served(clients)


def drained(daemon: Daemon, balancer: Balancer, clients: list[Caller]) -> None:
    """Stop the second daemon in order."""
    before, lost = places(clients, balancer), [dict(each.lost) for each in clients]
    begun = {each: each.begun for each in before}
    assert daemon.stop(signal.SIGTERM) == 0
    served(clients)
    assert [each.lost for each in clients] == lost, "something was lost"
    assert {each: each.begun - begun[each] for each in before} == {
        each: int(at == "two") for each, at in before.items()
    }
