"""Apps behind a daemon (SEP-1865): real servers with the same app, and clients that share a connection."""

import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from typing import Any

import pytest

from tests.e2e.harness import Daemon, running, scripted, serving
from tests.e2e.raw_http import listening
from tests.e2e.test_as_itself import ERAS, Http, over_socket
from tests.e2e.test_extensions import ask
from tests.scripted_server import tool

pytestmark = pytest.mark.e2e

UI = "io.modelcontextprotocol/ui"
SHOWS_APPS = {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}

SERVER = """
import sys
from mcp.server.apps import Apps, client_supports_apps
from mcp.server.mcpserver import Context, MCPServer

name, apps = sys.argv[1], Apps()

@apps.tool(resource_uri="ui://clock/app.html")
def show(ctx: Context) -> str:
    return f"{name} for apps: {client_supports_apps(ctx)}"

@apps.tool(resource_uri="ui://clock/app.html", visibility=["app"])
def tick() -> str:
    return f"{name} ticks"

apps.add_html_resource("ui://clock/app.html", f"<html>{name}</html>")
MCPServer(name, extensions=[apps]).run()
"""


def clock(name: str) -> dict[str, Any]:
    """A server of the Python SDK with an app."""
    return {"command": sys.executable, "args": ["-c", SERVER, name]}


@pytest.fixture(scope="module")
def clocks() -> Iterator[Daemon]:
    """A daemon with two of them."""
    with serving({"mcpServers": {name: clock(name) for name in ("a", "b")}}) as daemon:
        yield daemon


@pytest.mark.parametrize("surface", ["full", "category"])
@pytest.mark.parametrize("era", ERAS)
def test_two_servers_of_the_sdk_with_one_app_are_each_shown_in_their_own(
    clocks: Daemon, era: str, surface: str
) -> None:
    with over_socket(clocks, era, surface=surface) as client:
        if era == "handshake":
            ask(client, "initialize", extensions=SHOWS_APPS)

        def text(method: str, member: str, **params: Any) -> str:
            (found,) = ask(client, method, params, SHOWS_APPS)["result"][member]
            said: str = found["text"]
            return said

        listed = ask(client, "tools/list", extensions=SHOWS_APPS)["result"]["tools"]
        shows = {each["name"]: each["_meta"]["ui"]["resourceUri"] for each in listed if "show" in each["name"]}
        assert list(shows) == ["a__show", "b__show"]
        for name in ("b", "a", "b"):
            assert text("resources/read", "contents", uri=shows[f"{name}__show"]) == f"<html>{name}</html>"
            assert text("tools/call", "content", name="tick", arguments={}) == f"{name} ticks"
        assert text("tools/call", "content", name="a__show", arguments={}) == "a for apps: True"
        assert text("tools/call", "content", name="tick", arguments={}) == "a ticks", (
            "its tool opens an app, too"
        )


def test_each_request_gets_the_tools_for_apps_as_it_declares_them() -> None:
    """Clients behind a balancer share a connection, and one client may declare others each time."""
    port, listen = listening()
    tools = [tool("seen"), tool("step", _meta={"ui": {"visibility": ["app"]}})]
    with running({"mcpServers": {"a": scripted(tools=tools)}, "listen": listen}) as daemon:
        daemon.ready()
        web = closing(Http("modern", port, "/mcp/default/full"))
        with web as http, over_socket(daemon, "modern", surface="full") as socket:
            for client, shown in product((http, socket), (None, SHOWS_APPS, None, SHOWS_APPS)):
                listed = ask(client, "tools/list", extensions=shown)["result"]["tools"]
                assert [each["name"] for each in listed] == (["seen", "step"] if shown else ["seen"])
