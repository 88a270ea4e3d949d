"""When two entries are the same server, and which servers of clients mcpd has."""

from __future__ import annotations

from typing import Any

from daemon.setup.clients.importing import ConfiguredServers, identity
from daemon.setup.clients.programs import PROGRAMS
from tests.unit.cases import cases
from tests.unit.setup.generated import MACHINE


@cases("one", "other")
def test_who_wrote_it_makes_no_difference(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert identity(one, {"K": "secret"}) == identity(other, {"K": "secret"})


@cases("one", "other")
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


@cases("client", "entry", "name")
def test_a_server_is_known_by_what_it_starts(client: str, entry: Any, name: str | None) -> None:
    program = PROGRAMS[client]
    place = program.places(MACHINE)[0]
    assert OURS.lookup(program, MACHINE)(place, "any", entry) == name


def test_an_empty_mcpd_knows_none() -> None:
    program = PROGRAMS["cursor"]
    place = program.places(MACHINE)[0]
    assert ConfiguredServers().lookup(program, MACHINE)(place, "a", {"command": "x"}) is None
