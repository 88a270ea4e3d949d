"""Results that are too large for a context: kept by the real daemon, and read in pieces over each door."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Daemon, RawClient, scripted, serving
from tests.e2e.raw_http import OTHER_TOKEN, TOKEN, RawHttp, listening, modern
from tests.scripted_server import tool

Json = dict[str, Any]
TEXT = "".join(f"{number}: für jede Zeile ein Wort, \U0001f600 und ein \\ dazu\n" for number in range(4000))
DATA = {"items": [{"number": number, "even": number % 2 == 0} for number in range(3000)]}
IMAGE = {"type": "image", "data": "QUJD" * 9000, "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "file:///far/away.txt", "name": "far"}
RESULT: Json = {
    "content": [{"type": "text", "text": TEXT}, IMAGE, LINK],
    "structuredContent": DATA,
    "isError": False,
    "_meta": {"x/y": 1},
}
JSON = {"content": [{"type": "text", "text": json.dumps(DATA)}]}
MEANT = {"anthropic/maxResultSizeChars": 400_000}
TOOLS = [tool("report", outputSchema={"type": "object"}, _meta=MEANT), tool("data"), tool("small")]
PROFILES = {
    "default": {"surface": "full", "results": {"maxTokens": 2000}, "answerTokens": 1000},
    "category": {"surface": "category", "results": {"maxTokens": 2000}},
    "other": {"surface": "full", "results": {"maxTokens": 2000}},
    "whole": {"surface": "full"},
    "scripts": {"surface": "full", "results": {"maxTokens": 2000}, "runCode": True},
}


def answers(place: Path, tools: list[Json], result: Json, era: str = "handshake") -> Json:
    """A server that answers each call so; its script is too long for an argument."""
    entry = scripted()
    place.write_text(json.dumps({"era": era, "tools": tools, "on": {"tools/call": {"result": result}}}))
    return {**entry, "args": [*entry["args"][:-1], f"@{place}"]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, int]]:
    port, listen = listening()
    place = tmp_path_factory.mktemp("servers")
    servers = {
        "old": answers(place / "old", TOOLS, RESULT),
        "new": answers(place / "new", TOOLS, RESULT, "modern"),
        "data": answers(place / "data", [tool("table")], JSON),
    }
    config = {"mcpServers": servers, "profiles": PROFILES, "listen": listen}
    with serving(config) as daemon:
        yield daemon, port


@pytest.fixture
def daemon(served: tuple[Daemon, int]) -> Daemon:
    return served[0]


def id_of(result: Json) -> str:
    """The id of a kept result."""
    uri: str = result["content"][-1]["uri"]
    return uri.removeprefix("mcpd://results/")


def pieces(client: RawClient, result_id: str) -> str:
    """The text of a kept result, read to its end."""
    found: str = ""
    offset = 0
    while True:
        piece, note = client.call("read_result", {"id": result_id, "offset": offset})["content"]
        found += piece["text"]
        offset = len(found.encode())
        if "go on" not in note["text"]:
            return found


@pytest.mark.parametrize("name", ["old__report", "new__report"])
def test_both_ends_are_given_and_the_pieces_are_the_whole(daemon: Daemon, name: str) -> None:
    with daemon.client() as client:
        client.greet()
        result = client.call(name, {})
        assert len(json.dumps(result, ensure_ascii=False).encode()) <= 8000
        start, note, end, link = result["content"]
        assert TEXT.startswith(start["text"])
        assert TEXT.endswith(end["text"])
        assert len(start["text"]) > len(end["text"]) > 500
        for left in ("bytes of the text here", "image image/png", "file:///far/away.txt", "structuredContent"):
            assert left in note["text"]
        assert "structuredContent" not in result
        assert (result["_meta"], result["isError"]) == ({"x/y": 1}, False)
        assert link["type"] == "resource_link"
        assert pieces(client, id_of(result)) == TEXT
        (contents,) = client.ask("resources/read", {"uri": link["uri"]})["result"]["contents"]
        assert json.loads(contents["text"]) == RESULT


def text_of(result: Json) -> str:
    return "".join(each["text"] for each in result["content"])


def test_it_belongs_to_its_session_and_profile(served: tuple[Daemon, int]) -> None:
    daemon, _port = served
    with daemon.client().hello(session="a") as client, daemon.client().hello(session="b") as other:
        client.greet()
        other.greet()
        link = client.call("table", {})["content"][-1]["uri"]
        asked = {"id": link.removeprefix("mcpd://results/")}
        assert not client.call("read_result", asked)["isError"]
        assert other.call("read_result", asked)["structuredContent"]["error"]["code"] == "ResultExpired"
        assert other.ask("resources/read", {"uri": link})["error"]["data"]["code"] == "ResultExpired"
        with daemon.client().hello(session="a", profile="other") as same:
            same.greet()
            assert same.call("read_result", asked)["structuredContent"]["error"]["code"] == "ResultExpired"
        with daemon.client().hello(session="a") as again:
            again.greet()
            assert not again.call("read_result", asked)["isError"]


def asked_over_http(port: int, token: str, method: str, params: Json) -> Any:
    """One exchange of MCP 2026-07-28, which has no session."""
    with RawHttp(port) as link:
        named = {"Mcp_Name": params["uri"]} if "uri" in params else {}
        headers = {"Authorization": f"Bearer {token}", **named}
        link.send(modern(method, params, **headers))
        return link.json()


def test_over_http_without_sessions_it_belongs_to_the_token(served: tuple[Daemon, int]) -> None:
    _daemon, port = served
    called = asked_over_http(port, TOKEN, "tools/call", {"name": "table", "arguments": {}})["result"]
    link = called["content"][-1]["uri"]
    read = {"name": "read_result", "arguments": {"id": id_of(called), "jq": ".items|length"}}
    assert text_of(asked_over_http(port, TOKEN, "tools/call", read)["result"]).startswith("3000\n")
    refused = asked_over_http(port, OTHER_TOKEN, "tools/call", read)["result"]
    assert refused["structuredContent"]["error"]["code"] == "ResultExpired"
    whole = asked_over_http(port, TOKEN, "resources/read", {"uri": link})["result"]
    assert json.loads(whole["contents"][0]["text"])["content"] == JSON["content"]
    assert whole["resultType"] == "complete"
    assert "error" in asked_over_http(port, OTHER_TOKEN, "resources/read", {"uri": link})


def test_claude_code_and_profiles_without_a_bound_get_it_whole(daemon: Daemon) -> None:
    with daemon.client() as client:
        client.greet(clientInfo={"name": "claude-code", "version": "2.1.400"})
        assert client.call("table", {}) == JSON
    with daemon.client().hello(profile="whole") as client:
        client.greet()
        assert "read_result" not in client.listed()
        assert client.call("table", {}) == JSON


def test_a_script_gets_results_whole(daemon: Daemon) -> None:
    with daemon.client().hello(profile="scripts") as client:
        client.greet()
        code = 'found = await call("data/table", {})\nlen(found["items"])'
        assert "3000" in text_of(client.call("run_code", {"code": code}))


def test_tools_are_listed_without_output_schemas_and_meta_tools_say_how_long_results_may_be(
    daemon: Daemon,
) -> None:
    with daemon.client() as client:
        client.greet()
        tools = {each["name"]: each for each in client.ask("tools/list")["result"]["tools"]}
        assert "outputSchema" not in tools["report"]
        assert tools["report"]["_meta"] == MEANT
    with daemon.client().hello(profile="category") as client:
        client.greet()
        tools = {each["name"]: each for each in client.ask("tools/list")["result"]["tools"]}
        assert tools["call-category-tool"]["_meta"]["anthropic/maxResultSizeChars"] == 400_000
        assert "anthropic/maxResultSizeChars" not in tools["read_result"]["_meta"]
        result = client.run("data", "table")
        assert pieces(client, id_of(result)) == JSON["content"][0]["text"]
    with daemon.client().hello(profile="whole") as client:
        client.greet()
        tools = {each["name"]: each for each in client.ask("tools/list")["result"]["tools"]}
        assert "outputSchema" in tools["report"]


def test_nothing_is_left_after_a_kill(daemon: Daemon) -> None:
    with daemon.client().hello(session="a") as client:
        client.greet()
        asked = {"id": id_of(client.call("table", {}))}
        assert not [*daemon.state.parent.glob("results*")]
    daemon.restart(signal.SIGKILL)
    daemon.ready()
    with daemon.client().hello(session="a") as client:
        client.greet()
        assert client.call("read_result", asked)["structuredContent"]["error"]["code"] == "ResultExpired"
