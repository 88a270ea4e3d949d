"""Clients are given other profiles while they are connected, by a real daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.harness import running, scripted
from tests.e2e.test_sessions import LIST_CHANGED, MODERN
from tests.scripted_server import tool

if TYPE_CHECKING:
    from tests.e2e.harness import RawClient

pytestmark = pytest.mark.e2e

PROFILES: dict[str, Any] = {
    "default": {"surface": "full"},
    "review": {"surface": "full", "excludedTools": ["write"]},
    "found": {"surface": "search", "coreTools": ["read"]},
}
CONFIG = {"mcpServers": {"s": scripted(tools=[tool("read"), tool("write")])}, "profiles": PROFILES}


def refused(client: RawClient, name: str) -> bool:
    """Whether a call of that tool is refused: as an error of the protocol, or as a result."""
    answer = client.ask("tools/call", {"name": name, "arguments": {}})
    return "error" in answer or bool(answer["result"]["isError"])


def test_a_connected_client_is_given_another_profile_and_told() -> None:
    with running(CONFIG) as daemon:
        daemon.ready()
        with daemon.client() as shaken, daemon.client() as modern, daemon.client() as other:
            shaken.hello(session="work", surface="category").ask(
                "initialize", {"protocolVersion": "2025-06-18"}
            )
            shaken.ask("tools/list")
            modern.hello(session="work")
            listen = {**MODERN, "notifications": {"toolsListChanged": True}}
            subscription = {"jsonrpc": "2.0", "id": "sub", "method": "subscriptions/listen", "params": listen}
            modern.send(json.dumps(subscription).encode())
            modern.notice("notifications/subscriptions/acknowledged")
            modern.ask("tools/list", MODERN)
            assert other.listed() == ["read", "write"]

            said = daemon.run("sessions", "work", "--profile", "review")

            assert "its 2 connections have profile review now" in said
            shaken.notice(LIST_CHANGED)
            modern.notice(LIST_CHANGED)
            assert shaken.listed() == ["read"]
            assert (refused(shaken, "write"), refused(shaken, "read")) == (True, False)
            assert other.listed() == ["read", "write"]
            assert daemon.ask("sessions", key="work")["profile"] == "review"
            with daemon.client() as later:
                assert later.hello(session="work", profile="default").listed() == ["read"]

            daemon.ask("move", key="work", profile="found")
            shaken.notice(LIST_CHANGED)
            assert shaken.listed() == ["search_tools", "call_tool", "call_read_only_tool", "read"]
