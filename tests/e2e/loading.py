"""Shared parts of the loading tests: three real servers, profiles, and requests of both eras."""

import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.harness import INITIALIZE, META, node_server, program
from tests.waiting import WAIT

META_TOOLS = ["load_mcp_server", "load_mcp_tool"]
"""The tools that are there from the start."""


def repository(path: Path) -> None:
    """Make a git repository with one commit."""
    who = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "the first commit"]):
        subprocess.run(["git", *words], cwd=path, check=True, timeout=WAIT)


ONE: dict[str, str] = {"era": "handshake"}
"""Of a server that speaks both eras: one process for clients of either, which takes a second of a processor."""


def three_servers(place: Path) -> dict[str, Any]:
    """Three real servers on a repository; one has no description."""
    return {
        "git": {
            "description": "Version control: look at and make commits and branches.",
            "command": program("mcp-server-git"),
            "args": ["--repository", str(place)],
            **ONE,
        },
        "time": {"command": program("mcp-server-time"), "args": ["--local-timezone", "UTC"], **ONE},
        "files": {"description": "Read and write files.", **node_server("server-filesystem", str(place))},
    }


def configured(servers: dict[str, Any], **top: Any) -> dict[str, Any]:
    """The servers with profiles."""
    return {
        "mcpServers": servers,
        "categories": {"clock": {"description": "What time it is.", "server": "time"}},
        "profiles": {
            "default": {"surface": "load"},
            "auto": {"surface": "load", "autoLoad": True},
            "clocks": {"surface": "load", "categories": ["clock"]},
            "nothing": {"surface": "load", "categories": [], "excludedTools": META_TOOLS},
        },
        **top,
    }


def servers_in(result: dict[str, Any]) -> dict[str, Any]:
    """The servers that `load_mcp_server` found."""
    assert result["isError"] is False, result
    found: dict[str, Any] = result["structured"]["servers"]
    return found


def tools_in(result: dict[str, Any]) -> dict[str, Any]:
    """The tools that `load_mcp_tool` loaded."""
    assert result["isError"] is False, result
    loaded: dict[str, Any] = result["structured"]["tools"]
    return loaded


def request(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """A JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


HANDSHAKE = [
    request(1, "initialize", INITIALIZE),
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    request(2, "tools/list", {}),
]
MODERN = [request(2, "tools/list", {"_meta": META})]
