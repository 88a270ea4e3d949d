"""Each client's calls run in its own directory, or in its own process, whichever way it comes in."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.e2e.harness import Daemon, RawClient, running
from tests.e2e.raw_http import INITIALIZE, RawHttp, listening, message, modern, request
from tests.e2e.windows import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

Json = dict[str, Any]

WHERE = """
import json, os, sys
def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n"); sys.stdout.flush()
TOOLS = [{"name": "where", "inputSchema": {"type": "object"}}]
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    if m["method"] == "initialize":
        say(id=m["id"], result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                "serverInfo": {"name": "where", "version": "1"}})
    elif m["method"] == "tools/list":
        say(id=m["id"], result={"tools": TOOLS})
    elif m["method"] == "tools/call":
        said = {"cwd": os.getcwd(), "args": sys.argv[1:], "pid": os.getpid()}
        say(id=m["id"], result={"content": [{"type": "text", "text": json.dumps(said)}]})
    else:
        say(id=m["id"], error={"code": -32601, "message": "no " + m["method"]})
"""
"""A server whose one tool says where it runs."""

CALL = {"name": "where__where", "arguments": {}}


@pytest.fixture
def places(tmp_path: Path) -> list[str]:
    """Three directories to work in, by their real paths."""
    made = [tmp_path / name for name in ("one", "two", "drei ä")]
    for each in made:
        each.mkdir()
    return [os.path.realpath(each) for each in made]


@pytest.fixture(params=["workspace", "session"])
def share(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def served(share: str) -> Iterator[tuple[Daemon, int]]:
    """A daemon with one server, of which clients have instances of their own, and the port of HTTP."""
    port, listen = listening()
    arguments = ["-c", WHERE, *(["${workspace}/."] if share == "workspace" else [])]
    config = {
        "mcpServers": {"where": {"command": sys.executable, "args": arguments, "share": share}},
        "profiles": {"default": {"surface": "full"}},
        "listen": listen,
    }
    with running(config) as daemon:
        yield daemon, port


def told(answer: Json) -> Json:
    """What the tool has said; that it has failed is shown."""
    result = answer["result"]
    assert not result.get("isError"), result
    said: Json = json.loads(result["content"][0]["text"])
    return said


def expected(share: str, place: str) -> list[str]:
    return [f"{place}/."] if share == "workspace" else []


def test_each_bridge_works_where_it_was_started(
    served: tuple[Daemon, int], share: str, places: list[str]
) -> None:
    daemon, _port = served
    with Window.bridged(daemon, Path(places[0])) as one, Window.bridged(daemon, Path(places[1])) as two:
        said = []
        for window in (one, two):
            window.begin()
            said += [told(window.ask("tools/call", CALL)) for _ in range(2)]
        again = told(one.ask("tools/call", CALL))
    assert [each["cwd"] for each in said] == [places[0], places[0], places[1], places[1]]
    assert [each["args"] for each in said[::2]] == [expected(share, place) for place in places[:2]]
    assert said[0] == said[1] == again
    assert said[0]["pid"] != said[2]["pid"]


def test_clients_of_one_directory_share_an_instance_only_by_workspace(
    served: tuple[Daemon, int], share: str, places: list[str]
) -> None:
    daemon, _port = served
    pids = set()
    for _ in range(2):
        with RawClient(daemon.socket) as client:
            client.hello(workspace=places[0])
            pids.add(told(client.ask("tools/call", CALL))["pid"])
    assert len(pids) == (1 if share == "workspace" else 2)


def test_a_header_names_the_directory_in_both_eras(
    served: tuple[Daemon, int], share: str, places: list[str]
) -> None:
    _daemon, port = served
    for place in places:
        named = {"Mcpd_Workspace": quote(place)}
        http = RawHttp(port)
        http.send(modern("tools/call", CALL, Mcpd_Session=f"of {len(place)}", **named))
        new = told(http.json())
        http.send(request(body=message("initialize", INITIALIZE), **named))
        head = http.head()
        head.read()
        session = {"Mcp_Session_Id": head.headers["Mcp-Session-Id"]}
        http.send(request(body=message("tools/call", CALL), **session))
        old = told(http.json())
        http.socket.close()
        assert [each["cwd"] for each in (new, old)] == [place, place]
        assert [each["args"] for each in (new, old)] == [expected(share, place)] * 2
        assert (new["pid"] == old["pid"]) is (share == "workspace")


BAD = [("/no/such", "does not exist where mcpd runs"), ("src", "is not an absolute path"), ("/", "the root of")]


@pytest.mark.parametrize("share", ["workspace"], indirect=True)
@pytest.mark.parametrize(("named", "why"), BAD)
def test_a_directory_that_cannot_be_worked_in_is_refused_with_what_to_do(
    served: tuple[Daemon, int], named: str, why: str
) -> None:
    daemon, port = served
    refused = []
    with RawClient(daemon.socket) as client:
        refused.append(client.hello(workspace=named).ask("tools/call", CALL))
    http = RawHttp(port)
    http.send(modern("tools/call", CALL, Mcpd_Workspace=named))
    refused.append(http.json())
    http.socket.close()
    for each in refused:
        text = each["result"]["content"][0]["text"]
        assert text.startswith("NoWorkspace: ")
        assert why in text
        assert "mcpd connect --workspace DIR" in text
