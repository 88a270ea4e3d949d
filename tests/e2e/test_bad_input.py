"""What a client can do wrong, against the real daemon: the right code, and nobody else is affected."""

import json
from collections.abc import Iterator

import pytest

from daemon.surfaces.category import CALL_EXAMPLE
from tests.e2e.harness import Daemon, RawClient, running, scripted
from tests.scripted_server import tool


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    zone = {"type": "object", "properties": {"timezone": {"type": "string"}}, "required": ["timezone"]}
    config = {"mcpServers": {"time": scripted(tools=[tool("get_current_time", inputSchema=zone)])}}
    with running(config) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture
def neighbour(daemon: Daemon) -> Iterator[RawClient]:
    """Another client, which must go on as if nothing happened."""
    with daemon.client() as client:
        yield client
        assert client.run("time", "get_current_time", timezone="UTC")["isError"] is False


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"{not json", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', -32700, 1),
        (b'\xff\xfe{"jsonrpc":"2.0"}', -32700, None),
        (b'{"jsonrpc":"2.0","id":4,"method":"ping","params":{"a":"\xff"}}', -32700, 4),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
        (b'"ping"', -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"id":8,"method":"ping"}', -32600, 8),
        (b'{"jsonrpc":"2.0","id":9,"method":7}', -32600, 9),
        (b'{"jsonrpc":"2.0","id":"a","method":"ping","params":[1]}', -32602, "a"),
        (b'{"jsonrpc":"2.0","id":5,"method":"no/such/method"}', -32601, 5),
        (b'{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{}}', -32602, 6),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":' + b'{"a":' * 200 + b"1" + b"}" * 201, -32600, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":' + b"[" * 100_000, -32700, 7),
    ],
)
def test_a_malformed_message_is_refused_and_the_connection_kept(
    daemon: Daemon, neighbour: RawClient, line: bytes, code: int, request_id: int | str | None
) -> None:
    with daemon.client() as client:
        client.send(line)
        answer = client.receive()

        assert answer["error"]["code"] == code
        assert answer["id"] == request_id
        assert client.ask("ping")["result"] == {}


GOOD_CALL = '{"category":"time","name":"get_current_time","args":{"timezone":"text"}}'


@pytest.mark.parametrize(
    ("arguments", "example"),
    [
        ({}, CALL_EXAMPLE),
        ({"category": "time"}, CALL_EXAMPLE),
        ({"category": "time", "name": "get_current_time"}, GOOD_CALL),
        ({"category": "time", "name": "get_current_time", "args": "UTC"}, GOOD_CALL),
        ({"category": "time", "name": "get_current_time", "args": [1]}, GOOD_CALL),
        ({"category": ["time"], "name": "get_current_time", "args": {}}, CALL_EXAMPLE),
        ({"category": "time", "name": "get_current_time", "args": {}, "extra": 1}, GOOD_CALL),
    ],
)
def test_unfit_arguments_of_a_meta_tool_are_named_and_the_right_form_shown(
    daemon: Daemon, arguments: dict[str, object], example: str
) -> None:
    with daemon.client() as client:
        result = client.call("call-category-tool", arguments)

    assert result["structuredContent"]["error"]["code"] == "InvalidArguments"
    assert example in result["content"][0]["text"]


def test_a_line_of_100_mb_is_refused_with_its_id_and_the_connection_kept(
    daemon: Daemon, neighbour: RawClient
) -> None:
    line = b'{"jsonrpc":"2.0","id":"big","method":"ping","params":{"x":"' + b"x" * 100_000_000 + b'"}}'

    with daemon.client() as client:
        client.send(line)
        answer = client.receive()

        assert answer["id"] == "big"
        assert "RequestTooLarge" in answer["error"]["message"]
        assert client.ask("ping")["result"] == {}


def test_after_a_hundred_malformed_messages_a_client_is_cut_off(daemon: Daemon, neighbour: RawClient) -> None:
    with daemon.client() as client:
        client.send(b"\n".join([b"nonsense"] * 100))
        for _ in range(100):
            assert client.receive()["error"]["code"] == -32700
        assert client.closed()


def test_ids_come_back_as_they_were_sent(daemon: Daemon) -> None:
    with daemon.client() as client:
        for sent in (b"0", b"-1", b'""', b'"1"', b"18446744073709551616", b'"\\u00e9 \xc3\xa9"'):
            client.send(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % sent)
            assert client._file.readline() == b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % sent


def test_a_second_request_with_an_id_in_flight_is_refused_and_the_first_is_answered(daemon: Daemon) -> None:
    call = {"category": "time", "name": "get_current_time", "args": {"timezone": "UTC"}}
    line = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "call-category-tool", "arguments": call},
        }
    ).encode()

    with daemon.client() as client:
        client.send(line + b"\n" + line)
        refused, answered = client.receive(), client.receive()

    assert refused["error"]["code"] == -32600
    assert "already in flight" in refused["error"]["message"]
    assert answered["result"]["isError"] is False
