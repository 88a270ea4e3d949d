"""When two entries are the same server, and which servers of clients mcpd has."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.setup.clients.importing import ConfiguredServers, identity
from daemon.setup.clients.programs import PROGRAMS
from tests.unit.setup.generated import MACHINE


def runs(*words: str, **more: Any) -> dict[str, Any]:
    return {"command": words[0], "args": [*words[1:]], **more}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (runs("npx", "-y", "pkg"), runs("npx", "pkg")),
        (runs("npx", "pkg@latest", "a"), runs("/opt/node/bin/npx", "--yes", "pkg", "a", env={})),
        (runs("uvx", "pkg"), runs("uv", "tool", "run", "pkg")),
        (runs("x", enabled=False, timeouts={"call": 5}), runs("x", description="the same")),
        (
            {"url": "https://h/mcp/", "headers": {"X-Key": "1"}},
            {"url": "https://h/mcp", "type": "http", "headers": {"x-key": "1"}},
        ),
        (runs("x", env={"K": "secret"}), runs("x", env={"K": "${K}"})),
    ],
)
def test_who_wrote_it_makes_no_difference(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert identity(one, {"K": "secret"}) == identity(other, {"K": "secret"})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (runs("npx", "pkg@1.0.0"), runs("npx", "pkg@1.0.1")),
        (runs("npx", "pkg@1.0.0"), runs("npx", "pkg")),
        (runs("x", "a", "b"), runs("x", "b", "a")),
        (runs("x", "-y"), runs("x")),
        (runs("/usr/bin/server"), runs("/opt/bin/server")),
        (runs("x", env={"K": "one"}), runs("x", env={"K": "two"})),
        (runs("x", env={"K": "one"}), runs("x", env={"K": "${L}"})),
        (runs("x", cwd="/a"), runs("x", cwd="/b")),
        ({"url": "https://h/mcp"}, {"url": "https://h/sse"}),
        ({"url": "https://h", "headers": {"A": "1"}}, {"url": "https://h"}),
        ({"url": "https://h"}, runs("https://h")),
    ],
)
def test_other_versions_arguments_and_tokens_make_another_server(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert identity(one, {"K": "secret"}) != identity(other, {"K": "secret"})


NOTION = {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
OURS = ConfiguredServers(
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
    assert ConfiguredServers().lookup(program, MACHINE)(place, "a", {"command": "x"}) is None
