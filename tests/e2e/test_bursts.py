"""Large answers, many at once, to clients that read them at once, slowly, or not for a while: nothing is lost.

Over the socket and through `mcpd connect`, with a real server and a real daemon.
"""

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import Daemon, scripted, serving
from tests.waiting import eventually

MB = 1000 * 1000
IN_FLIGHT = 32
FULL = {"profiles": {"default": {"surface": "full"}}}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """A server that answers as much as it is asked for."""
    servers = {"first": scripted(tools=["bytes", "echo"])}
    with serving({"mcpServers": servers, **FULL}) as daemon:
        yield daemon


def request(number: int, tool: str, **arguments: Any) -> bytes:
    params = {"name": tool, "arguments": arguments}
    asked = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(asked).encode()


def size_of(answer: dict[str, Any]) -> int:
    """How much text a result has; an error of any kind fails the test."""
    result = answer["result"]
    assert not result.get("isError"), result
    return sum(len(each["text"]) for each in result["content"])


def test_a_burst_of_large_answers_reaches_a_client_of_the_bridge_whole(daemon: Daemon) -> None:
    calls = 3 * IN_FLIGHT
    before = daemon.ask("status")["servers"]["first"]["calls"]
    with daemon.bridge() as client:
        for number in range(IN_FLIGHT):
            client.send(request(number, "bytes", count=MB))
        # As if the client had been busy for a moment.
        eventually(lambda: daemon.ask("status")["servers"]["first"]["calls"] == before + IN_FLIGHT)
        answered = {}
        for number in range(calls):
            answer = client.receive()
            answered[answer["id"]] = size_of(answer)
            if number + IN_FLIGHT < calls:
                client.send(request(number + IN_FLIGHT, "bytes", count=MB))
    assert answered == dict.fromkeys(range(calls), MB)


@pytest.mark.parametrize("size", [9, 12, 15])
def test_a_large_answer_with_another_one_behind_it_cuts_nobody_off(daemon: Daemon, size: int) -> None:
    with daemon.client() as client:
        for number in range(0, 6, 2):
            client.send(request(number, "bytes", count=size * MB))
            client.send(request(number + 1, "echo", text="behind"))
            sizes = {answer["id"]: size_of(answer) for answer in (client.receive(), client.receive())}
            assert sizes[number] == size * MB


def test_however_much_waits_for_a_client_others_use_the_same_server_and_it_loses_nothing(
    daemon: Daemon,
) -> None:
    calls = 40
    with daemon.client() as slow, daemon.client() as other:
        for number in range(calls):
            slow.send(request(number, "bytes", count=4 * MB))
        for _ in range(5):
            assert not other.call("echo", {"text": "quick"}).get("isError")
        assert sorted(size_of(slow.receive()) for _ in range(calls)) == [4 * MB] * calls
        assert not other.call("echo", {"text": "again"}).get("isError")


def test_whoever_is_behind_the_bridge_is_never_given_half_a_line() -> None:
    with (
        serving({"mcpServers": {"first": scripted(tools=["bytes", "echo"])}, **FULL}) as daemon,
        daemon.bridge() as client,
    ):
        for number in range(3):
            client.send(request(number, "bytes", count=4 * MB))
        # The client takes nothing: the bridge holds a beginning, and the daemon the rest.
        eventually(lambda: daemon.ask("status")["servers"]["first"]["calls"] == 3)
        daemon.restart(signal.SIGKILL)
        client.send(b'{"jsonrpc":"2.0","id":3,"method":"ping"}')
        answers = [client.receive() for _ in range(4)]
    assert {answer["id"] for answer in answers} == {0, 1, 2, 3}
    assert any("UpstreamLost" in json.dumps(answer) for answer in answers)
