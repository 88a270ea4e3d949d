"""Servers that are known to need something are known however they are started."""

from __future__ import annotations

import pytest

from daemon.cli.known import KNOWN, known
from daemon.config.model import Server, ServerLimits


@pytest.mark.parametrize(
    "words",
    [
        "npx -y @modelcontextprotocol/server-memory",
        "npx -y @modelcontextprotocol/server-memory@2026.1.26",
        "env A=1 npx @modelcontextprotocol/server-memory",
        "mcp-server-memory",
        "/usr/local/bin/mcp-server-memory",
        "npx -y --package @modelcontextprotocol/server-memory mcp-server-memory",
        "uv run --with x mcp-server-memory",
        "docker run -i --rm -v m:/app/dist mcp/memory:latest",
        "docker run -i --rm docker.io/mcp/memory",
        "podman run mcp/memory@sha256:0123456789abcdef",
        "podman run docker.io/mcp/memory:1.2@sha256:0123456789abcdef",
        "node /srv/node_modules/@modelcontextprotocol/server-memory/dist/index.js",
    ],
)
def test_a_server_is_known_by_its_package(words: str) -> None:
    command, *args = words.split()
    found = known(Server(name="m", command=command, args=tuple(args)))
    assert found is not None
    assert found.limits == {"in_flight": 1}


@pytest.mark.parametrize(
    "words",
    [
        "npx some-tool mcp/memory",
        "echo --doc mcp-server-memory",
        "docker run other mcp/memory",
        "npx -y @modelcontextprotocol/server-time",
        "mcp-server-memory-bank",
        "cat memory",
        "x @ :",
    ],
)
def test_another_one_is_not(words: str) -> None:
    command, *args = words.split()
    assert known(Server(name="m", command=command, args=tuple(args))) is None


def test_all_that_a_server_may_need_are_limits_that_there_are() -> None:
    assert all(hasattr(ServerLimits(), limit) for each in KNOWN for limit in each.limits)


def test_a_server_elsewhere_is_not_either() -> None:
    assert known(Server(name="m", url="https://h/mcp-server-memory")) is None
