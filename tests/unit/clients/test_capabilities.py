"""What a client can be asked is what it has declared, no more and no less."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from daemon.clients.server_requests import DECLINED, MAX_DECLARED, answer_instead, has, lacking
from daemon.wire.requests import PeerRequest
from tests.unit.wire.test_peer_requests import Noted

FORM, URL = {"message": "?", "requestedSchema": {}}, {"mode": "url", "url": "https://x", "elicitationId": "1"}
TOOLS: dict[str, Any] = {"messages": [], "tools": []}


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("declared", "method", "params", "lacks"),
    [
        ({}, "roots/list", None, "roots"),
        ({"roots": {}}, "roots/list", None, ""),
        ({"roots": {"listChanged": True}}, "roots/list", {}, ""),
        ({"roots": None}, "roots/list", {}, "roots"),
        ({"roots": True}, "roots/list", {}, "roots"),
        ({}, "sampling/createMessage", {"messages": []}, "sampling"),
        ({"sampling": {}}, "sampling/createMessage", {"messages": []}, ""),
        ({"sampling": {}}, "sampling/createMessage", TOOLS, "sampling.tools"),
        ({"sampling": {}}, "sampling/createMessage", {"toolChoice": {}}, "sampling.tools"),
        ({"sampling": {"tools": {}}}, "sampling/createMessage", TOOLS, ""),
        # A client that does not know the context of servers ignores the wish (2025-11-25: "MAY ignore").
        ({"sampling": {}}, "sampling/createMessage", {"includeContext": "thisServer"}, ""),
        ({}, "elicitation/create", FORM, "elicitation.form"),
        ({"elicitation": {}}, "elicitation/create", FORM, ""),
        ({"elicitation": {"form": {}}}, "elicitation/create", {**FORM, "mode": "form"}, ""),
        ({"elicitation": {"url": {}}}, "elicitation/create", FORM, "elicitation.form"),
        ({"elicitation": {"url": {}, "form": {}}}, "elicitation/create", FORM, ""),
        ({"elicitation": {}}, "elicitation/create", URL, "elicitation.url"),
        ({"elicitation": {"url": {}}}, "elicitation/create", URL, ""),
        ([], "roots/list", {}, "roots"),
        ({"roots": {}}, "roots/list", [], "params that can be read"),
    ],
)
def test_what_a_client_lacks(declared: Any, method: str, params: Any, lacks: str) -> None:
    request = PeerRequest(method, None if params is None else raw(params), Noted())
    assert lacking(raw(declared), request) == lacks


def test_an_elicitation_is_declined_for_a_client_that_cannot_and_all_else_is_refused() -> None:
    back = Noted()
    answer_instead(PeerRequest("elicitation/create", None, back), "elicitation.form")
    answer_instead(PeerRequest("sampling/createMessage", None, back), "sampling")
    declined, refused = back.said
    assert declined == ("result", DECLINED)
    assert json.loads(DECLINED) == {"action": "decline"}
    assert refused[1] == -32601
    assert "it has not declared sampling" in refused[2]


def test_what_is_declared_can_be_asked_for_by_name() -> None:
    assert has(raw({"roots": {}}), "roots")
    assert has(raw({"elicitation": {"url": {}}}), "elicitation", "url")
    assert not has(raw({"elicitation": {}}), "elicitation", "url")
    assert not has(Raw(b"[]"), "roots")


def test_a_declaration_that_would_take_long_to_read_each_time_declares_nothing() -> None:
    request = PeerRequest("roots/list", None, Noted())
    assert lacking(raw({"roots": {}, "x": "x" * MAX_DECLARED}), request) == "roots"
    assert not has(raw({"roots": {}, "x": "x" * MAX_DECLARED}), "roots")
