"""Scripts of models on a real daemon with real servers: data in, one value out, and nothing left behind."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import INITIALIZE, META, Daemon, RawClient, running, scripted, serving
from tests.e2e.raw_http import RawHttp, data_of, listening, message, request
from tests.faults.stage import children_of
from tests.waiting import eventually

SERVERS = {"git": scripted(tools=["echo", "sleep", "fail"]), "files": scripted(tools=["echo"])}
CONFIG: dict[str, Any] = {
    "mcpServers": SERVERS,
    "profiles": {
        "default": {"surface": "code"},
        "short": {"surface": "code", "scriptLimits": {"seconds": 1, "calls": 2}},
    },
}
MODERN = {"_meta": META}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with serving(CONFIG) as daemon:
        yield daemon


def run(client: RawClient, code: str, **more: Any) -> dict[str, Any]:
    params = {"name": "run_code", "arguments": {"code": code, **more.pop("arguments", {})}, **more}
    result: dict[str, Any] = client.ask("tools/call", params)["result"]
    return result


def workers(daemon: Daemon) -> list[int]:
    """The processes of scripts."""
    found = []
    for process in children_of(daemon.status()["daemon"]["pid"]):
        with suppress(OSError):
            found += [
                each for each in children_of(process) if b"monty" in Path(f"/proc/{each}/cmdline").read_bytes()
            ]
    return found


@pytest.mark.parametrize("more", [{}, MODERN])
def test_a_model_finds_describes_and_runs(daemon: Daemon, more: Any) -> None:
    with RawClient(daemon.socket) as client:
        if not more:
            client.greet()
        found = client.ask("tools/call", {"name": "search_tools", "arguments": {"query": "echo"}, **more})
        assert {"git/echo", "files/echo"} <= found["result"]["structuredContent"]["tools"].keys()
        stubs = client.ask(
            "tools/call", {"name": "describe_tools", "arguments": {"names": ["git/echo"]}, **more}
        )
        assert "git/echo" in stubs["result"]["content"][0]["text"]
        code = (
            "import asyncio\nsaid = await asyncio.gather(*[call('git/echo', {'text': t}) for t in words])\nsaid"
        )
        result = run(client, code, arguments={"inputs": {"words": ["a", "b"]}}, **more)
        assert [
            "a" in str(result["structuredContent"]["result"][0]),
            len(result["structuredContent"]["result"]),
        ] == [True, 2]
        assert result["structuredContent"]["calls"] == 2
        if more:
            assert result["resultType"] == "complete"


def test_limits_end_a_script_and_say_so(daemon: Daemon) -> None:
    with RawClient(daemon.socket) as client:
        client.hello(profile="short")
        client.greet()
        for code, limit in (
            ("while True:\n    pass", "seconds"),
            ("await call('git/sleep', {'seconds': 60})", "seconds"),
            ("for n in range(3):\n    await call('git/echo', {'text': 'x'})", "calls"),
        ):
            error = run(client, code)["structuredContent"]["error"]
            assert (error["code"], error["limit"]) == ("ScriptFailed", limit)
        assert run(client, "1 + 1")["structuredContent"]["result"] == 2
    eventually(lambda: not workers(daemon), daemon.said)


def test_a_script_that_an_operator_cancels_may_have_run(daemon: Daemon) -> None:
    with RawClient(daemon.socket) as client:
        client.greet()
        params = {"name": "run_code", "arguments": {"code": "await call('git/sleep', {'seconds': 60})"}}
        client.send(json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}).encode())
        eventually(lambda: len(daemon.ask("calls")["inFlight"]) == 2, daemon.said)
        found, inner = daemon.ask("calls")["inFlight"]
        about = [found[each] for each in ("tool", "script", "waitsFor", "sent")]
        assert about == ["run_code", "", "answer", True]
        assert (inner["tool"], inner["server"], inner["session"]) == ("sleep", "git", found["session"])
        assert inner["script"] == f"run_code (call {found['id']})"
        assert f": run_code (call {found['id']})" in daemon.run("calls", "git")
        daemon.ask("cancel", id=found["id"])
        assert "may have run" in client.receive()["result"]["content"][0]["text"]
    eventually(lambda: not workers(daemon), daemon.said)


def test_a_call_of_a_script_that_an_operator_cancels_is_an_error_there(daemon: Daemon) -> None:
    with RawClient(daemon.socket) as client:
        client.greet()
        code = "try:\n    await call('git/sleep', {'seconds': 60})\nexcept ToolError as e:\n    print(e.code)"
        params = {"name": "run_code", "arguments": {"code": code}}
        client.send(json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}).encode())
        eventually(lambda: daemon.ask("calls", server="git")["inFlight"], daemon.said)
        daemon.ask("cancel", id=daemon.ask("calls", server="git")["inFlight"][0]["id"])
        assert client.receive()["result"]["structuredContent"]["printed"] == "CallCancelled\n"


def test_the_audit_names_the_script_and_a_stop_leaves_no_worker(daemon: Daemon) -> None:
    with RawClient(daemon.socket) as client:
        client.greet()
        run(client, "await call('git/echo', {'text': 'audited'})")

        def recorded() -> bool:
            said = daemon.run("audit", "git/echo", "--json").splitlines()
            return any(len(json.loads(each).get("details", {}).get("script", "")) == 64 for each in said)

        eventually(recorded, daemon.said)
        arguments = {"code": "await call('git/sleep', {'seconds': 60})"}
        params = {"name": "run_code", "arguments": arguments}
        client.send(json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}).encode())
        eventually(lambda: workers(daemon), daemon.said)
        (worker,) = workers(daemon)
        daemon.stop()
        assert not Path(f"/proc/{worker}").exists()
        daemon.start()
        daemon.ready()


def test_a_script_s_call_asks_for_the_workspace_on_the_stream_of_the_script(tmp_path: Path) -> None:
    port, listen = listening()
    where = scripted(tools=["echo"]) | {"share": "workspace"}
    config = {"mcpServers": {"where": where}, "profiles": {"default": {"surface": "code"}}, "listen": listen}
    with running(config), RawHttp(port) as http, RawHttp(port) as other:
        greeting = {**INITIALIZE, "capabilities": {"roots": {}}}
        http.send(request(body=message("initialize", greeting)))
        begun = http.head()
        begun.read()
        key = begun.getheader("Mcp-Session-Id")
        http.send(request(body=message("notifications/initialized", request_id=None), Mcp_Session_Id=key))
        http.status()
        params = {"name": "run_code", "arguments": {"code": "await call('where/echo', {'a': 1})"}}
        http.send(request(body=message("tools/call", params, 9), Mcp_Session_Id=key))
        stream = http.head()
        question = data_of(stream)[1]
        assert question["method"] == "roots/list"
        roots = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": tmp_path.as_uri()}]}}
        other.send(request(body=json.dumps(roots).encode(), Mcp_Session_Id=key))
        assert data_of(stream)[1]["result"]["structuredContent"]["result"] == {"a": 1}
