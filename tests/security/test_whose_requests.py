"""S11: what a server asks, it asks mcpd. No client is asked anything, neither the caller nor a neighbour."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.security.conftest import Watched

pytestmark = pytest.mark.e2e

METHODS = ("sampling/createMessage", "elicitation/create", "roots/list", "tools/call")


def asked(method: str) -> str:
    """A request of a server's, as a line; its id is one that a client of ours may have in flight."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"messages": [], "message": "Password?"}}
    return json.dumps(request) + "\n"


def answers_to_the_server(hostile: Watched) -> list[dict[str, Any]]:
    """What the server `asking` has received that is no request."""
    lines = (hostile.directory / "asked").read_text().splitlines()
    messages = [event["message"] for event in map(json.loads, lines) if event["event"] == "message"]
    return [message for message in messages if "method" not in message]


def test_requests_of_a_server_during_a_call_reach_neither_the_caller_nor_anybody_else(hostile: Watched) -> None:
    answer = {"content": [{"type": "text", "text": "done"}], "isError": False}
    with hostile.client() as caller, hostile.client() as neighbour:
        said = caller.run("asking", "act", write="".join(map(asked, METHODS)), result=answer)
        neighbour.ask("ping")
        caller.ask("ping")
    assert said == answer
    assert not [*caller.notices, *neighbour.notices]

    def refused() -> bool:
        codes = [message.get("error", {}).get("code") for message in answers_to_the_server(hostile)]
        return codes.count(-32601) >= len(METHODS)

    eventually(refused)


def test_an_answer_with_a_clients_own_id_finds_nobody_but_the_call_it_belongs_to(hostile: Watched) -> None:
    forged = "".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "result": {"content": [], "forged": True}}) + "\n"
        for number in [*range(90_000, 90_050), "1", "x"]
    )
    with hostile.client() as caller, hostile.client() as neighbour:
        neighbour.send(b'{"jsonrpc":"2.0","id":90001,"method":"ping"}')
        caller.run("asking", "act", write=forged)
        assert neighbour.receive() == {"jsonrpc": "2.0", "id": 90001, "result": {}}
        neighbour.ask("ping")
    assert not [*caller.notices, *neighbour.notices]


def test_progress_goes_to_the_caller_only(hostile: Watched) -> None:
    call = {"name": "act", "category": "asking"}
    with hostile.client() as caller, hostile.client() as neighbour:
        params = {
            "name": "call-category-tool",
            "arguments": {**call, "name": "progress", "args": {"count": 3}},
            "_meta": {"progressToken": "mine"},
        }
        caller.ask("tools/call", params)
        neighbour.ask("ping")
    tokens = [notice["params"]["progressToken"] for notice in caller.notices]
    assert tokens == ["mine"] * 3
    assert not neighbour.notices
