"""Two daemons on one PostgreSQL behind HAProxy, under load: one is killed, the other is drained.

Nobody is told in time, and nothing here is timed: clients call without a pause, and what became of each call is
judged afterwards, from what they and the servers noted (`tests.faults.history`).
"""

import json
import re
import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.e2e.balancing import Balancer, balanced
from tests.e2e.harness import Daemon, free_port, running, scripted
from tests.e2e.http_clients import SERVER, TOOL, Caller, Door, HandshakeCaller, ModernCaller
from tests.e2e.loading import META_TOOLS
from tests.faults.history import Asked, History, Took
from tests.unit.state.postgres import shared
from tests.waiting import WAIT, eventually

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
