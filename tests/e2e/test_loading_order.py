"""A tool that was loaded is in its client's list before the client reads that: a real daemon, both eras."""

import json
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from tests.e2e.harness import META, Daemon, RawClient, changeable, running
from tests.scripted_server import tool

KEPT = {"vendor/hint": "the server's own"}
CHANGED = "notifications/tools/list_changed"


@attrs.frozen
class Case:
    """A surface, and the call that makes it list more."""

    surface: str
    call: dict[str, Any]


CASES = [
    Case("load", {"name": "load_mcp_tool", "arguments": {"names": ["read"]}}),
    Case("load", {"name": "load_mcp_tool", "arguments": {"names": ["write", "read"]}}),
    Case("search", {"name": "search_tools", "arguments": {"query": "read"}}),
]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    tools = [tool("read", _meta=KEPT), tool("write")]
    with running({"mcpServers": {"s": changeable(*tools)}}) as daemon:
        daemon.ready()
        yield daemon


def begin(client: RawClient, surface: str, *, modern: bool) -> dict[str, Any]:
    """Shake hands, or subscribe, and list. Returns what each request carries."""
    client.hello(surface=surface)
    if not modern:
        client.greet()
        client.ask("tools/list")
        return {}
    client.subscribe(toolsListChanged=True)
    client.ask("tools/list", {"_meta": META})
    return {"_meta": META}


@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.surface}-{len(case.call['arguments'])}")
def test_a_client_is_told_lists_and_then_reads_that_its_tool_is_loaded(
    daemon: Daemon, case: Case, *, modern: bool
) -> None:
    with daemon.client() as client:
        meta = begin(client, case.surface, modern=modern)
        load = {"jsonrpc": "2.0", "id": "load", "method": "tools/call", "params": {**case.call, **meta}}
        client.send(json.dumps(load).encode())
        assert client.receive()["method"] == CHANGED
        # Asked past notifications only: the answer to the load has not come before.
        listed = client.ask("tools/list", meta)["result"]["tools"]
        assert not client.notices
        (read,) = (each for each in listed if each["name"] == "read")
        assert read["_meta"] == {**KEPT, "anthropic/alwaysLoad": True}
        assert client.receive()["id"] == "load"


def test_a_client_that_is_shown_everything_is_shown_it_as_the_servers_have_it(daemon: Daemon) -> None:
    with daemon.client() as client:
        begin(client, "full", modern=False)
        listed = {each["name"]: each for each in client.ask("tools/list")["result"]["tools"]}
        assert listed["read"] == tool("read", _meta=KEPT)
        assert listed["write"] == tool("write")
