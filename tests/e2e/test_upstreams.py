"""Real servers over every transport that has one: Streamable HTTP, SSE, and a unix socket (another mcpd)."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.harness import RawClient, free_port, node_server, running, scripted
from tests.waiting import WAIT, eventually

EAGER = {"base": 0.1, "cap": 0.2, "floor": 0.1, "intensity": 1000}
"""Restart numbers with which a server that comes up late is found soon."""


@contextmanager
def everything(mode: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The reference server, listening."""
    entry = node_server("server-everything", mode)
    environ = {"PATH": os.environ["PATH"], "PORT": str(port)}
    with subprocess.Popen(
        [entry["command"], *entry["args"]], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait(WAIT)


@pytest.mark.parametrize(("mode", "kind", "path"), [("streamableHttp", "http", "/mcp"), ("sse", "sse", "/sse")])
def test_a_server_behind_http_is_found_when_it_comes_up_called_and_found_again_after_a_restart(
    mode: str, kind: str, path: str
) -> None:
    port = free_port()
    entry = {"type": kind, "url": f"http://127.0.0.1:{port}{path}", "restart": EAGER}
    with running({"mcpServers": {"remote": entry}}) as daemon, daemon.client() as client:
        entry = eventually(lambda: (found := daemon.ask("status")["servers"]["remote"])["reason"] and found)
        assert f"cannot connect to 127.0.0.1:{port}" in entry["reason"]

        for greeting in ("first", "second"):
            with everything(mode, port):
                daemon.ready("remote")
                assert "echo" in client.get("remote")["tools"]
                # Between two lives the daemon may still hope: such a call is refused as "not run".
                result = eventually(lambda: _echoed(client, greeting))  # noqa: B023
                assert greeting in result["content"][0]["text"]
            gone = eventually(
                lambda: (found := client.run("remote", "echo", message="anybody?")).get("isError") and found
            )
            assert gone["structuredContent"]["error"]["code"] in {"UpstreamUnavailable", "UpstreamLost"}


def _echoed(client: RawClient, text: str) -> dict[str, Any] | None:
    result = client.run("remote", "echo", message=text)
    return None if result.get("isError") else result


def test_another_mcpd_is_a_server_like_any_other() -> None:
    with running({"mcpServers": {"time": scripted(tools=["get_current_time"])}}) as inner:
        inner.ready("time")
        config: dict[str, Any] = {"mcpServers": {"inner": {"url": str(inner.socket)}}}
        with running(config) as outer, outer.client() as client:
            outer.ready("inner")
            tools = client.get("inner")["tools"]
            call = {"category": "time", "name": "get_current_time", "args": {"timezone": "UTC"}}
            outer_call = {"category": "inner", "name": "call-category-tool", "args": call}
            result = client.call("call-category-tool", outer_call)
            nonsense = {"category": "inner", "name": "get-category-tools", "args": {"category": "nonsense"}}
            refused = client.call("call-category-tool", nonsense)

    assert list(tools) == ["get-category-tools", "call-category-tool", "call-read-only-tool"]
    assert json.loads(result["content"][0]["text"]) == {"timezone": "UTC"}
    assert refused["structuredContent"]["error"]["code"] == "UnknownCategory"
