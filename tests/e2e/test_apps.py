"""Apps behind a daemon (SEP-1865), where clients share a connection."""

from typing import Any

import pytest

from tests.e2e.harness import running, scripted
from tests.e2e.raw_http import RawHttp, listening, modern
from tests.scripted_server import tool

pytestmark = pytest.mark.e2e

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SHOWS_APPS = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


def test_each_client_behind_a_balancer_gets_the_tools_for_apps_as_it_declares_them() -> None:
    port, listen = listening()
    tools = [tool("seen"), tool("step", _meta={"ui": {"visibility": ["app"]}})]
    with (
        running({"mcpServers": {"a": scripted(tools=tools)}, "listen": listen}) as daemon,
        RawHttp(port) as stream,
    ):
        daemon.ready()
        for declared in ({}, SHOWS_APPS, {}, SHOWS_APPS):
            meta: dict[str, Any] = {CAPABILITIES: declared}
            stream.send(modern("tools/list", {"_meta": meta}, path="/mcp/default/full"))
            listed = [each["name"] for each in stream.json()["result"]["tools"]]
            assert listed == (["seen", "step"] if declared else ["seen"])
