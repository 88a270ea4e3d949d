"""What flows beside calls, through a real daemon and a real server: logs, updates of resources, tasks."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.harness import Daemon, RawClient, node_server, serving
from tests.waiting import eventually

URI = "demo://resource/dynamic/text/1"
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    config = {
        "mcpServers": {"everything": node_server("server-everything")},
        "profiles": {"default": {"surface": "full"}},
    }
    with serving(config) as daemon:
        yield daemon


class Guests:
    """Clients of one daemon, which hang up in the end."""

    def __init__(self, daemon: Daemon, stack: ExitStack) -> None:
        self._daemon = daemon
        self._stack = stack
        self.declared: dict[str, Any] = {}
        """What the daemon has declared to the last one."""

    def modern(self) -> RawClient:
        """One of MCP 2026-07-28."""
        return self._stack.enter_context(self._daemon.client())

    def shaken(self) -> RawClient:
        """One of the handshake era."""
        client = self.modern()
        self.declared = client.greet()["capabilities"]
        return client


@pytest.fixture
def guests(daemon: Daemon) -> Iterator[Guests]:
    with ExitStack() as stack:
        yield Guests(daemon, stack)


def pid_of(daemon: Daemon) -> int:
    found: int = daemon.ask("status")["servers"]["everything"]["pid"]
    return found


def restart(daemon: Daemon) -> None:
    """Kill the server, and wait until it is up again."""
    before = pid_of(daemon)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: pid_of(daemon) not in {None, before}, daemon.said)
    daemon.ready()


def toggled_updates(client: RawClient) -> None:
    assert "Started" in client.call("toggle-subscriber-updates", {})["content"][0]["text"]


def test_a_subscriber_is_told_of_updates_after_its_server_was_killed(daemon: Daemon, guests: Guests) -> None:
    named, plain, modern, nobody = guests.shaken(), guests.shaken(), guests.modern(), guests.shaken()
    own = "mcpd://everything/demo%3A%2F%2Fresource%2Fdynamic%2Ftext%2F1"
    assert named.ask("resources/subscribe", {"uri": own})["result"] == {}
    assert plain.ask("resources/subscribe", {"uri": URI})["result"] == {}
    wishes = [URI, "mcpd://nobody/has%3Athis"]
    acknowledged = modern.subscribe("s", resourceSubscriptions=wishes)
    assert acknowledged["notifications"] == {"resourceSubscriptions": [URI]}
    for again in (False, True):
        if again:
            restart(daemon)
            # Nobody knows what has changed meanwhile.
            assert plain.notice("notifications/resources/updated")["params"]["uri"] == URI
            named.notice("notifications/resources/updated")
            modern.notice("notifications/resources/updated")
        toggled_updates(nobody)
        assert named.notice("notifications/resources/updated")["params"] == {"uri": own}
        assert plain.notice("notifications/resources/updated")["params"] == {"uri": URI}
        told = modern.notice("notifications/resources/updated")["params"]
        assert told == {"uri": URI, "_meta": {"io.modelcontextprotocol/subscriptionId": "s"}}
    assert plain.ask("resources/unsubscribe", {"uri": URI})["result"] == {}
    assert nobody.ask("ping")["result"] == {}
    assert [each for each in nobody.notices if "updated" in each["method"]] == []


def test_each_client_has_a_level_of_its_own_which_outlives_the_server(daemon: Daemon, guests: Guests) -> None:
    talkative, quiet, unset = guests.shaken(), guests.shaken(), guests.shaken()
    assert talkative.ask("logging/setLevel", {"level": "debug"})["result"] == {}
    assert quiet.ask("logging/setLevel", {"level": "emergency"})["result"] == {}
    assert talkative.ask("logging/setLevel", {"level": "loud"})["error"]["code"] == -32602
    restart(daemon)
    # The server says "info" when a resource is subscribed to, which is nobody's call.
    assert unset.ask("resources/subscribe", {"uri": "demo://resource/dynamic/text/7"})["result"] == {}
    said = talkative.notice("notifications/message")["params"]
    while "Received Subscribe" not in said["data"]:
        said = talkative.notice("notifications/message")["params"]
    assert said["level"] == "info"
    for client in (quiet, unset):
        assert client.ask("ping")["result"] == {}
        assert [each for each in client.notices if each["method"] == "notifications/message"] == []


def test_a_task_is_its_clients_own_under_an_id_of_ours(guests: Guests) -> None:
    client, other = guests.shaken(), guests.shaken()
    assert guests.declared["tasks"]["requests"] == {"tools": {"call": {}}}
    called = {"name": "simulate-research-query", "arguments": {"topic": "x"}, "task": {"ttl": 60000}}
    task = client.ask("tools/call", called)["result"]["task"]
    assert (task["status"], task["ttl"]) == ("working", 300000)
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        assert other.ask(method, {"taskId": task["taskId"]})["error"]["code"] == -32602
    assert client.ask("tasks/get", {"taskId": task["taskId"]})["result"]["taskId"] == task["taskId"]
    assert [each["taskId"] for each in client.ask("tasks/list")["result"]["tasks"]] == [task["taskId"]]
    assert other.ask("tasks/list")["result"]["tasks"] == []
    result = client.ask("tasks/result", {"taskId": task["taskId"]})["result"]
    assert "Research Report: x" in result["content"][0]["text"]
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task["taskId"]}


def test_a_task_is_told_to_be_lost_with_its_server(daemon: Daemon, guests: Guests) -> None:
    client = guests.shaken()
    called = {"name": "simulate-research-query", "arguments": {"topic": "x"}, "task": {"ttl": 60000}}
    task_id = client.ask("tools/call", called)["result"]["task"]["taskId"]
    restart(daemon)
    told = client.ask("tasks/get", {"taskId": task_id})["result"]
    assert (told["taskId"], told["status"]) == (task_id, "failed")
    assert "was lost" in told["statusMessage"]
    assert "was lost" in client.ask("tasks/result", {"taskId": task_id})["error"]["message"]
