"""Entries of clients that write them in another way than `mcpServers`, as mcpd understands them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.setup.known_programs import PROGRAMS
from daemon.setup.programs import Machine, NotTaken
from daemon.setup.shapes import CODEX, CONTINUE, GEMINI, GOOSE, OPENCODE, ZED

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.setup.programs import Shape


@pytest.mark.parametrize(
    ("shape", "entry", "read"),
    [
        (
            OPENCODE,
            {
                "type": "local",
                "command": ["npx", "-y", "x"],
                "environment": {"K": "{env:K}", "P": "{file:~/p}"},
            },
            {"command": "npx", "args": ["-y", "x"], "env": {"K": "${env:K}", "P": "${file:~/p}"}},
        ),
        (
            OPENCODE,
            {"type": "remote", "url": "https://h/mcp", "enabled": False},
            {"url": "https://h/mcp", "enabled": False},
        ),
        (
            CODEX,
            {
                "url": "https://h",
                "bearer_token_env_var": "T",
                "http_headers": {"A": "1"},
                "env_http_headers": {"B": "V"},
            },
            {"url": "https://h", "headers": {"A": "1", "B": "${V}", "Authorization": "Bearer ${T}"}},
        ),
        (
            CODEX,
            {"command": "x", "env_vars": ["HOME", "K"], "env": {"K": "1"}},
            {"command": "x", "env": {"HOME": "${HOME}", "K": "1"}},
        ),
        (
            GOOSE,
            {"type": "stdio", "name": "b", "cmd": "npx", "args": ["x"], "envs": {"A": "1"}, "env_keys": ["K"]},
            {"command": "npx", "args": ["x"], "env": {"K": "${K}", "A": "1"}},
        ),
        (
            GOOSE,
            {"type": "sse", "uri": "https://h/sse", "enabled": True, "display_name": "H"},
            {"type": "sse", "url": "https://h/sse", "enabled": True, "title": "H"},
        ),
        (
            ZED,
            {"source": "custom", "command": {"path": "npx", "args": ["x"], "env": {"A": "1"}}},
            {"command": "npx", "args": ["x"], "env": {"A": "1"}},
        ),
        (
            CONTINUE,
            {
                "name": "n",
                "url": "https://h",
                "connectionTimeout": 1500,
                "requestOptions": {"headers": {"A": "${{ secrets.T }}"}},
            },
            {"url": "https://h", "headers": {"A": "${T}"}, "timeouts": {"initialize": 1.5}},
        ),
        (
            GEMINI,
            {"url": "https://h/sse", "headers": {"A": "$T ${U} a$b"}},
            {"type": "sse", "url": "https://h/sse", "headers": {"A": "${T} ${U} a$b"}},
        ),
    ],
)
def test_what_a_client_writes_in_its_own_way_is_read(
    shape: Shape, entry: dict[str, Any], read: dict[str, Any]
) -> None:
    before = repr(entry)
    assert shape.read(entry) == read
    assert repr(entry) == before


@pytest.mark.parametrize(
    ("shape", "entry", "why"),
    [
        (GOOSE, {"type": "builtin", "name": "developer"}, "part of Goose"),
        (ZED, {"settings": {}, "enabled": True}, "extension of Zed's"),
        (CONTINUE, {"uses": "anthropic/memory-mcp"}, "block of Continue's hub"),
        (OPENCODE, {"enabled": False}, "switches a server"),
    ],
)
def test_what_nobody_else_can_run_is_not_taken(shape: Shape, entry: dict[str, Any], why: str) -> None:
    answer = shape.read(entry)
    assert isinstance(answer, NotTaken)
    assert why in answer.why


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_for_a_client_reads_as_the_same_command(name: str, tmp_path: Path) -> None:
    for place in PROGRAMS[name].places(Machine(home=tmp_path, directory=tmp_path / "p", environ={})):
        read = place.shape.read(place.shape.write("/opt/bin/mcpd", ["connect"]))
        assert isinstance(read, dict)
        assert (read["command"], read["args"]) == ("/opt/bin/mcpd", ["connect"])
