"""Each client's calls run in its own directory, or in its own process, whichever way it comes in."""

import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.harness import Daemon, RawClient, running, scripted
from tests.e2e.raw_http import INITIALIZE, TOKEN, RawHttp, listening, message, modern, request
from tests.e2e.sockets import WebSocket
from tests.e2e.windows import Window
from tests.scripted_server import command
from tests.waiting import WAIT

Json = dict[str, Any]


def where(*words: str, **more: Any) -> Json:
    """The entry of a server whose one tool says where it runs, and with which words."""
    entry = scripted(tools=["where"], **more.pop("script", {}))
    return {**entry, "args": [*entry["args"], *words], **more}


CALL = {"name": "where__where", "arguments": {}}


@pytest.fixture
def places(tmp_path: Path) -> list[str]:
    """Three directories to work in, by their real paths."""
    made = [tmp_path / name for name in ("one", "two", "drei ä")]
    for each in made:
        each.mkdir()
    return [os.path.realpath(each) for each in made]


@pytest.fixture(scope="module", params=["workspace", "session"])
def share(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def served(share: str) -> Iterator[tuple[Daemon, int]]:
    """A daemon with one server, of which clients have instances of their own, and the port of HTTP."""
    port, listen = listening()
    words = ["${workspace}/."] if share == "workspace" else []
    config = {
        "mcpServers": {"where": where(*words, share=share)},
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


@pytest.mark.parametrize("share", ["workspace"], indirect=True)
@pytest.mark.parametrize(
    ("surface", "call"),
    [
        ("full", {"name": "mine__where", "arguments": {}}),
        (
            "category",
            {"name": "call-category-tool", "arguments": {"category": "mine", "name": "where", "args": {}}},
        ),
    ],
)
def test_only_clients_of_its_directories_see_a_server_and_start_it(
    share: str, surface: str, call: Json, places: list[str], tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    mine = where(script={"record": str(starts)}, share=share, start="lazy", workspaces=places[:1])
    config = {
        "mcpServers": {"mine": mine, "other": where()},
        "profiles": {"default": {"surface": surface}},
    }
    with running(config) as daemon:
        with Window.bridged(daemon, Path(places[1])) as two:
            said = [two.begin(), two.ask("tools/list", {}), two.ask("tools/call", call)]
            assert "mine" not in json.dumps([each for each in said[:2] if each])
            assert said[2]["result"]["isError"]
        with Window.bridged(daemon, Path(places[1]), "--server", "mine") as named:
            refused = named.ask("tools/call", {"name": "where", "arguments": {}})
            assert "clients that work in other directories" in json.dumps(refused)
        assert not starts.exists()
        with Window.bridged(daemon, Path(places[0])) as one:
            begun, listed = one.begin(), one.ask("tools/list", {})
            assert "mine" in json.dumps([begun, listed])
            assert told(one.ask("tools/call", call))["cwd"] == places[0]
        assert starts.exists()


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


@contextmanager
def socketed(port: int, **headers: str) -> Iterator[Callable[[str, Json], Json]]:
    """A WebSocket that has shaken hands: asks, and returns the answer."""
    stream = socket.create_connection(("127.0.0.1", port), timeout=WAIT)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    opened = WebSocket.opened(stream, "/ws", {"Authorization": f"Bearer {TOKEN}", **named})
    answers = iter(opened)

    def ask(method: str, params: Json) -> Json:
        opened.send(message(method, params, method))
        return next(said for each in answers if (said := json.loads(each)).get("id") == method)

    assert "result" in ask("initialize", INITIALIZE)
    opened.send(message("notifications/initialized", request_id=None))
    with closing(opened):
        yield ask


def test_a_websocket_whose_upgrade_names_a_directory_works_there(
    served: tuple[Daemon, int], share: str, places: list[str]
) -> None:
    _daemon, port = served
    said = []
    for place in places:
        with socketed(port, Mcpd_Workspace=quote(place)) as ask:
            said += [told(ask("tools/call", CALL)) for _ in range(2)]
    assert [each["cwd"] for each in said[::2]] == places
    assert [each["args"] for each in said[::2]] == [expected(share, place) for place in places]
    assert said[::2] == said[1::2]
    assert len({each["pid"] for each in said}) == len(places)


def test_a_tokens_client_stays_in_its_profile_in_whoevers_directory_it_works(places: list[str]) -> None:
    port, listen = listening()
    listen["http"]["tokens"] = [{"name": "one", "value": TOKEN, "profiles": ["held"], "workspaces": places[:1]}]
    entry = where("${workspace}/.", share="workspace")
    rules = [{"match": "other/*", "then": "deny"}]
    config = {
        "mcpServers": {"where": entry, "other": entry},
        "profiles": {"default": {"surface": "full"}, "held": {"surface": "full", "permissions": rules}},
        "listen": listen,
    }
    other = {"name": "other__where", "arguments": {}}
    with (
        running(config) as daemon,
        RawClient(daemon.socket) as owner,
        RawHttp(port) as http,
        ExitStack() as links,
    ):
        owner.hello(workspace=places[0])
        theirs = [told(owner.ask("tools/call", each)) for each in (CALL, other)]
        assert [each["cwd"] for each in theirs] == [places[0]] * 2
        named = {"Mcpd_Workspace": quote(places[0])}

        def post(method: str, params: Json, path: str = "/mcp") -> Json:
            http.send(modern(method, params, **named).replace(b"/mcp", path.encode(), 1))
            answer: Json = http.json()
            return answer

        ask = links.enter_context(socketed(port, **named))
        for way in (ask, post):
            # A name of its own: it sees no other tool that is called so.
            assert [each["name"] for each in way("tools/list", {})["result"]["tools"]] == ["where"]
            assert told(way("tools/call", {**CALL, "name": "where"})) == theirs[0]
            refused = way("tools/call", other)["result"]["structuredContent"]["error"]
            assert refused["code"] == "ToolDisabled"
        elsewhere = {"Mcpd_Workspace": quote(places[1])}
        http.send(modern("tools/call", {**CALL, "name": "where"}, **elsewhere))
        refused = http.json()["result"]["structuredContent"]["error"]
        assert refused["code"] == "NoWorkspace"
        assert "may not work in" in refused["message"]
        # Nor is there another door to the same directory.
        path = "/mcp/-/other"
        assert post("tools/list", {}, path)["result"]["tools"] == []
        refused = post("tools/call", {**other, "name": "where"}, path)["result"]["structuredContent"]["error"]
        assert refused["code"] == "ToolDisabled"
        for path in ("/mcp/default", "/mcp/default/full"):
            with RawHttp(port) as door:
                door.send(request(path=path, body=message("initialize", INITIALIZE), **named))
                assert door.status() == 403, path


def test_a_token_that_mcpd_makes_names_only_directories_that_it_was_made_with(places: list[str]) -> None:
    port, listen = listening()
    config = {
        "mcpServers": {"where": where("${workspace}")},
        "profiles": {"default": {"surface": "full"}},
        "listen": listen,
    }
    with running(config) as daemon, RawHttp(port) as http:

        def called(token: str, place: str) -> Json:
            # By its server: a bare name waits for no list but one that is about to come.
            asked = modern("tools/call", {**CALL, "name": "where/where"}, Mcpd_Workspace=quote(place))
            http.send(asked.replace(TOKEN.encode(), token.encode()))
            answer: Json = http.json()
            return answer

        bare = daemon.run("token", "new", "bare").split()[-1]
        globs = [word for place in places[:2] for word in ("--workspace", place)]
        made = daemon.run("token", "new", "made", *globs).split()[-1]
        for token, place in ((bare, places[0]), (made, places[2])):
            refused = called(token, place)["result"]["structuredContent"]["error"]
            assert (refused["code"], "may not work in" in refused["message"]) == ("NoWorkspace", True)
        assert [told(called(made, each))["cwd"] for each in places[:2]] == places[:2]
        listed = daemon.run("token", "list")
        assert f"made: all profiles; workspaces {', '.join(places[:2])}; made " in listed


def test_a_link_in_place_of_a_tokens_directory_leads_a_server_that_starts_again_nowhere(
    places: list[str],
) -> None:
    port, listen = listening()
    listen["http"]["tokens"] = [{"name": "one", "value": TOKEN, "workspaces": places[:1]}]
    entry = where("${workspace}", restart={"base": 0.01})
    config = {"mcpServers": {"where": entry}, "profiles": {"default": {"surface": "full"}}, "listen": listen}
    with running(config), RawHttp(port) as http:

        def called() -> Json:
            http.send(modern("tools/call", {**CALL, "name": "where/where"}, Mcpd_Workspace=quote(places[0])))
            answer: Json = http.json()
            return answer

        pid = told(called())["pid"]
        Path(places[0]).rename(f"{places[0]}.before")
        Path(places[0]).symlink_to(places[1])
        os.kill(pid, signal.SIGKILL)
        refused = [called()["result"]["structuredContent"]["error"]["code"] for _ in range(3)]
        assert set(refused) <= {"UpstreamLost", "UpstreamUnavailable", "NoWorkspace"}, refused


def test_a_client_whose_directory_has_no_program_keeps_nobody_else_out(places: list[str]) -> None:
    program = Path(places[1], "serve")
    program.write_text(f"#!/bin/sh\nexec {shlex.join(command(tools=['where']))}\n")
    program.chmod(0o755)
    entry = {"command": "${workspace}/serve", "workspacePrograms": True, "restart": {"base": 60, "cap": 60}}
    config = {"mcpServers": {"where": entry}, "profiles": {"default": {"surface": "full"}}}
    with running(config) as daemon, RawClient(daemon.socket) as bad, RawClient(daemon.socket) as good:
        bad.hello(workspace=places[0])
        for _ in range(2):
            text = bad.ask("tools/call", CALL)["result"]["content"][0]["text"]
            assert places[0] in text
        good.hello(workspace=places[1])
        assert told(good.ask("tools/call", CALL))["cwd"] == places[1]


FOLLOWED = """
import json, os, sys
def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n"); sys.stdout.flush()
RESULTS = {
    "initialize": {"protocolVersion": "2025-11-25", "serverInfo": {"name": "f", "version": "1"},
                   "capabilities": {"tools": {}, "resources": {"subscribe": True}}},
    "tools/list": {"tools": [{"name": "touch", "inputSchema": {"type": "object"}}]},
    "resources/list": {"resources": [{"uri": "memo:a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": []},
}
followed = set()
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "resources/subscribe":
        followed.add(m["params"]["uri"])
    if "id" not in m:
        continue
    said = {"content": [{"type": "text", "text": json.dumps({"pid": os.getpid(), "cwd": os.getcwd()})}]}
    say(id=m["id"], result=said if m["method"] == "tools/call" else RESULTS.get(m["method"], {}))
    if m["method"] == "tools/call" and "memo:a" in followed:
        say(method="notifications/resources/updated", params={"uri": "memo:a", "pid": os.getpid()})
"""
"""A server that says that its resource has changed with each call, to whoever has subscribed."""


def test_what_a_client_follows_goes_with_it_when_share_changes(places: list[str]) -> None:
    def config(share: str) -> Json:
        entry = {"command": sys.executable, "args": ["-c", FOLLOWED], "share": share}
        return {"mcpServers": {"memo": entry}, "profiles": {"default": {"surface": "full"}}}

    updated, touch = "notifications/resources/updated", {"name": "memo__touch", "arguments": {}}
    with running(config("all")) as daemon, RawClient(daemon.socket) as client:
        client.hello(workspace=places[0]).ask("initialize", INITIALIZE)
        assert client.ask("resources/subscribe", {"uri": "memo:a"})["result"] == {}
        pids: set[int] = set()
        for share in ("all", "session", "workspace", "all"):
            if share != "all" or pids:
                daemon.config.write_text(json.dumps(config(share)))
                daemon.run("reload")
                # Once, as it may be something else there.
                assert "pid" not in client.notice(updated)["params"]
            pid = told(client.ask("tools/call", touch))["pid"]
            pids.add(pid)
            while client.notice(updated)["params"].get("pid") != pid:
                client.ask("tools/call", touch)
        assert len(pids) == 4
