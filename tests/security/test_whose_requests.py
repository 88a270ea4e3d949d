"""S11: what a server asks reaches the client whose call it works on, if that one can be asked, or nobody."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.raw_http import INITIALIZE
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


def test_a_client_that_has_declared_nothing_is_asked_nothing_nor_is_anybody_else(hostile: Watched) -> None:
    answer = {"content": [{"type": "text", "text": "done"}], "isError": False}
    with hostile.client() as caller, hostile.client() as neighbour:
        said = caller.run("asking", "act", write="".join(map(asked, METHODS)), result=answer)
        neighbour.ask("ping")
        caller.ask("ping")
    assert said == answer
    assert not [*caller.notices, *neighbour.notices]

    def answered() -> bool:
        answers = answers_to_the_server(hostile)
        codes = [message.get("error", {}).get("code") for message in answers]
        # An elicitation has an answer that says no.
        declined = [message for message in answers if message.get("result") == {"action": "decline"}]
        return bool(declined) and codes.count(-32601) >= len(METHODS) - 1

    eventually(answered)


def test_nobody_answers_cancels_or_sees_what_another_client_is_asked(hostile: Watched) -> None:
    secret = "only-for-its-server"
    with hostile.client() as caller, hostile.client() as neighbour:
        for client in (caller, neighbour):
            client.ask("initialize", {**INITIALIZE, "capabilities": {"elicitation": {}}})
        call = {
            "category": "asking",
            "name": "act",
            "args": {"write": asked("elicitation/create"), "never": True},
        }
        params = {"name": "call-category-tool", "arguments": call}
        caller.send(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).encode())
        request = caller.notice("elicitation/create")
        for number in range(request["id"] - 3, request["id"] + 4):
            forged = {"action": "accept", "content": {"password": "forged"}}
            neighbour.send(json.dumps({"jsonrpc": "2.0", "id": number, "result": forged}).encode())
            cancelled = {"method": "notifications/cancelled", "params": {"requestId": number}}
            neighbour.send(json.dumps({"jsonrpc": "2.0", **cancelled}).encode())
        neighbour.ask("ping")
        entered = {"action": "accept", "content": {"password": secret}}
        for _ in range(2):
            caller.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": entered}).encode())
        caller.ask("ping")
        assert not neighbour.notices

        def arrived() -> list[Any]:
            return [each["result"] for each in answers_to_the_server(hostile) if secret in json.dumps(each)]

        eventually(arrived)
    assert arrived() == [entered]
    assert "forged" not in json.dumps(answers_to_the_server(hostile))
    assert secret not in hostile.said() + hostile.run("metrics") + json.dumps(hostile.ask("status"))


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
