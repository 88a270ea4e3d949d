"""Entries of clients that write them in another way than `mcpServers`, as mcpd understands them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.config.translation import translated
from daemon.setup.clients.programs import PROGRAMS, SHAPES, Machine, NotTaken

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.setup.clients.programs import Shape


@pytest.mark.parametrize(
    ("shape", "entry", "read"),
    [
        (
            SHAPES["opencode"],
            {"type": "local", "command": ["npx", "x"]},
            {"type": "local", "command": ["npx", "x"]},
        ),
        (
            SHAPES["continue"],
            {"url": "https://h", "env": {"A": "${{ secrets.T }}"}},
            {"url": "https://h", "env": {"A": "${T}"}},
        ),
        (SHAPES["gemini"], {"url": "https://h/sse"}, {"type": "sse", "url": "https://h/sse"}),
        (SHAPES["gemini"], {"url": "https://h/mcp", "type": "http"}, {"type": "http", "url": "https://h/mcp"}),
        (SHAPES["gemini"], {"httpUrl": "https://h/mcp"}, {"httpUrl": "https://h/mcp"}),
    ],
)
def test_what_only_the_client_means_so_is_read_as_it_means_it(
    shape: Shape, entry: dict[str, Any], read: dict[str, Any]
) -> None:
    before = repr(entry)
    assert shape.read(entry) == read
    assert repr(entry) == before


@pytest.mark.parametrize(
    ("shape", "entry", "why"),
    [
        (SHAPES["goose"], {"type": "builtin", "name": "developer"}, "part of Goose"),
        (SHAPES["zed"], {"settings": {}, "enabled": True}, "extension of Zed's"),
        (SHAPES["continue"], {"uses": "anthropic/memory-mcp"}, "block of Continue's hub"),
        (SHAPES["opencode"], {"enabled": False}, "switches a server"),
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
        entry = translated(read, milliseconds=place.shape.milliseconds).entry
        assert (entry["command"], entry["args"]) == ("/opt/bin/mcpd", ["connect"])
