"""Tools that change under clients that nobody here wrote: they see it announced, and call nothing as it was.

In both eras of the protocol, over the socket and through `mcpd connect`; and where a client does not listen, or
does not care, its next call says what has changed.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from tests.e2e.doors import HttpDoor
from tests.e2e.harness import Daemon, running
from tests.e2e.scripts import (
    CHANGED,
    LIST,
    PYTHON,
    PYTHON1,
    TYPESCRIPT,
    TYPESCRIPT2,
    Clients,
    Outcome,
    call,
    names,
    refusal,
)
from tests.scripted_server import command, tool

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

MODERN = {"mode": "2026-07-28"}


@attrs.frozen
class Kind:
    """A kind of client."""

    argv: tuple[str, ...]
    job: dict[str, Any] = attrs.field(factory=dict)
    deaf: dict[str, Any] = attrs.field(factory=dict)
    """The same kind, as it is if it does not listen."""


KINDS = {
    "python-2-handshake": Kind(PYTHON),
    "python-2-modern": Kind(PYTHON, {**MODERN, "listen": True}, MODERN),
    "python-1": Kind(PYTHON1),
    "typescript-1": Kind(TYPESCRIPT),
    "typescript-2-modern": Kind(TYPESCRIPT2, {**MODERN, "listen": True}, MODERN),
}
SURFACES = ["category", "browse", "search", "load", "full"]
TOOLS = ["paint", "set_tools", "announce"]
DOOR = HttpDoor()


@attrs.define
class Painter:
    """A server whose tool changes when a client calls for it; no version comes twice."""

    version: int = 1

    def change(self) -> list[tuple[str, dict[str, Any]]]:
        """The calls that change the tool. What they announce, the daemon has read before they are answered."""
        self.version += 1
        return [("set_tools", {"tools": [paint(self.version), *TOOLS[1:]]}), ("announce", {"count": 1})]


def paint(version: int) -> dict[str, Any]:
    """The tool that changes."""
    colour = {"type": "object", "properties": {f"colour{version}": {"type": "string"}}}
    return tool("paint", description=f"Paints in {version} colours.", inputSchema=colour)


def shown(listing: dict[str, Any]) -> str:
    """What a list, or a description, says of the tool."""
    tools = listing["tools"]
    found = (
        tools["paint"] if isinstance(tools, dict) else next(each for each in tools if each["name"] == "paint")
    )
    return str(found["description"])


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    python, *words = command(tools=[paint(1), *TOOLS[1:]])
    config = {
        "mcpServers": {"painter": {"command": python, "args": words}},
        "profiles": {"default": {}, **{surface: {"surface": surface} for surface in SURFACES}},
        "listen": DOOR.listen,
    }
    with running(config) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture(scope="module")
def painter() -> Painter:
    return Painter()


@pytest.fixture(scope="module", params=KINDS)
def clients(request: pytest.FixtureRequest) -> Iterator[tuple[Kind, Clients]]:
    kind = KINDS[request.param]
    with Clients(kind.argv) as clients:
        yield kind, clients


def session(daemon: Daemon, clients: Clients, way: str, profile: str, *steps: Any, **job: Any) -> Outcome:
    """Over the socket, through the bridge, or over HTTP, where only a key makes a session in the modern era."""
    if way == "socket":
        return clients.session(daemon, *steps, hello={"profile": profile}, **job)
    if way == "http":
        key = secrets.token_hex(8) if "mode" in job else None
        return clients.over_http(DOOR.url(profile), DOOR.headers(key), *steps, **job)
    return clients.bridged(daemon, ["--profile", profile], *steps, **job)


WAYS = pytest.mark.parametrize("way", ["socket", "connect", "http"])


@WAYS
def test_a_client_that_listens_lists_again_and_calls_the_new_form_at_once(
    daemon: Daemon, painter: Painter, clients: tuple[Kind, Clients], way: str
) -> None:
    kind, process = clients
    before = f"Paints in {painter.version} colours."
    change = [call(name, **arguments) for name, arguments in painter.change()]

    seen = session(daemon, process, way, "full", LIST, *change, CHANGED, LIST, call("paint"), **kind.job)

    first, _, _, _, second, called = seen.results
    assert shown(first) == before
    assert shown(second) == f"Paints in {painter.version} colours."
    assert called["isError"] is False, called
    assert seen.changes >= 1


@WAYS
def test_a_client_that_listens_sees_a_loaded_tool_leave_its_list_and_come_back(
    daemon: Daemon, painter: Painter, clients: tuple[Kind, Clients], way: str
) -> None:
    kind, process = clients
    load = call("load_mcp_tool", names=TOOLS)
    change = [call(name, **arguments) for name, arguments in painter.change()]
    back = [load, CHANGED, LIST, call("paint")]
    steps = [LIST, load, CHANGED, LIST, *change, CHANGED, LIST, call("paint"), *back]

    seen = session(daemon, process, way, "load", *steps, **kind.job)

    _, _, _, loaded, _, _, _, changed, refused, _, _, again, called = seen.results
    assert names(loaded)[2:] == TOOLS
    assert names(changed)[2:] == TOOLS[1:]
    assert refusal(refused)["code"] == "ToolChanged"
    assert names(again)[2:] == [*TOOLS[1:], "paint"]
    assert shown(again) == f"Paints in {painter.version} colours."
    assert called["isError"] is False, called


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("way", ["socket", "http"])
def test_a_client_that_does_not_listen_is_told_once_with_the_new_definition_and_goes_on(
    daemon: Daemon, painter: Painter, clients: tuple[Kind, Clients], surface: str, way: str
) -> None:
    kind, process = clients
    before = f"Paints in {painter.version} colours."
    change = [wrapped(surface, name, arguments) for name, arguments in painter.change()]
    use = wrapped(surface, "paint", {})
    # On `load` a changed tool is loaded again.
    again = looks(surface) if surface == "load" else []

    seen = session(daemon, process, way, surface, *looks(surface), *change, use, *again, use, **kind.deaf)

    results = seen.results[: -1 - len(again)]
    (*looked, _, _, refused), called = results, seen.results[-1]
    assert shown(looked[-1].get("structured") or looked[-1]) == before
    error = refusal(refused)
    assert (error["code"], error["tool"], error["server"]) == ("ToolChanged", "paint", "painter")
    assert error["definition"]["description"] == f"Paints in {painter.version} colours."
    assert list(error["definition"]["inputSchema"]["properties"]) == [f"colour{painter.version}"]
    assert called["isError"] is False, called


def looks(surface: str) -> list[dict[str, Any]]:
    """How a client of a surface comes to know the tools."""
    match surface:
        case "category":
            return [call("get-category-tools", category="painter")]
        case "browse":
            return [call("get_tools", category="painter")]
        case "search":
            return [call("search_tools", query="paint"), LIST]
        case "load":
            return [call("load_mcp_tool", names=TOOLS)]
        case _:
            return [LIST]


def wrapped(surface: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A call of a server's tool, as it is done on a surface."""
    match surface:
        case "category":
            return call("call-category-tool", category="painter", name=name, args=arguments)
        case "browse":
            return call("call_tool", tool_name=name, arguments=arguments)
        case _:
            return call(name, **arguments)
