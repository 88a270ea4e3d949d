"""Which servers of clients mcpd has, however they are written in either."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.setup.clients.known_programs import PROGRAMS
from daemon.setup.clients.taken_over import TakenOver
from tests.unit.setup.generated import MACHINE

NOTION = {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
OURS = TakenOver(
    servers={
        "clock": {"command": "uvx", "args": ["mcp-server-time"]},
        "notion": NOTION,
        "off": {"command": "off", "enabled": False},
        "odd": 5,
    },
    variables={"TOKEN": "t0ken"},
)


@pytest.mark.parametrize(
    ("client", "entry", "name"),
    [
        ("cursor", {"command": "uvx", "args": ["mcp-server-time"]}, "clock"),
        ("opencode", {"type": "local", "command": ["uvx", "mcp-server-time"]}, "clock"),
        ("goose", {"type": "stdio", "cmd": "uvx", "args": ["mcp-server-time"], "timeout": 3}, "clock"),
        ("cursor", {"command": "uvx", "args": ["mcp-server-time==1"]}, None),
        ("cursor", {"url": NOTION["url"], "headers": {"Authorization": "Bearer t0ken"}}, "notion"),
        ("cursor", {"url": NOTION["url"], "headers": {"Authorization": "Bearer other"}}, None),
        ("cursor", {"command": "off"}, None),
        ("cursor", {"command": "off", "disabled": True}, "off"),
        ("cursor", {"command": "/x/mcpd", "args": ["connect"]}, None),
        ("goose", {"type": "builtin"}, None),
        ("cursor", 5, None),
    ],
)
def test_a_server_is_known_by_what_it_starts(client: str, entry: Any, name: str | None) -> None:
    program = PROGRAMS[client]
    place = program.places(MACHINE)[0]
    assert OURS.lookup(program, MACHINE)(place, "any", entry) == name


def test_an_empty_mcpd_knows_none() -> None:
    program = PROGRAMS["cursor"]
    place = program.places(MACHINE)[0]
    assert TakenOver().lookup(program, MACHINE)(place, "a", {"command": "x"}) is None
