"""Answers that are not quite JSON, as real servers write them, through the real daemon."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import Daemon, scripted, serving

TEXTS = {"half": "half a face: \ud83d", "nan": float("nan")}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """A server for each kind, whose calls would wait for a minute."""
    servers = {
        name: scripted(
            tools=[name], on={"tools/call": {"result": {"content": [], "structuredContent": {"x": value}}}}
        )
        for name, value in TEXTS.items()
    }
    config = {"mcpServers": servers, "profiles": {"default": {"surface": "full"}}}
    with serving(config) as daemon:
        yield daemon


def test_an_answer_with_a_number_that_is_none_is_an_error_at_once(daemon: Daemon) -> None:
    with daemon.client(timeout=30) as client:
        result = client.call("nan", {})
    error = result["structuredContent"]["error"]
    assert (result["isError"], error["code"]) == (True, "UpstreamCallError")
    assert "invalid JSON-RPC" in error["message"]


def test_an_answer_with_half_a_character_arrives(daemon: Daemon) -> None:
    with daemon.client(timeout=30) as client:
        result = client.call("half", {})
    assert result["structuredContent"] == {"x": "half a face: \ufffd"}


@pytest.mark.parametrize(("arguments", "answered"), [(rb'{"x":"\ud83d"}', "result"), (b'{"x":NaN}', "error")])
def test_a_request_is_answered_under_its_id(daemon: Daemon, arguments: bytes, answered: str) -> None:
    with daemon.client(timeout=30) as client:
        request = b'{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"name":"half","arguments":%b}}'
        client.send(request % arguments)
        message: dict[str, Any] = client.receive()
    assert message["id"] == "mine"
    assert answered in message
