"""Of whom a client is told that it is connected to: mcpd, or the one server that it has chosen."""

from typing import Any

import attrs
import msgspec
import pytest
import trio
from loguru import logger
from trio.testing import MockClock

from daemon import protocol
from daemon.catalog.extensions import introduction_in
from daemon.catalog.snapshot import Catalog, fold
from daemon.clients.client import LOCAL_USER, Client, Selection
from daemon.clients.requests.initialize import (
    capabilities,
    declared_in,
    declared_to,
    discover_result,
    initialize_result,
    instructions_for,
    introduction,
    not_introduced,
)
from daemon.clients.requests.tools import OTHERS
from daemon.facts import DefinitionsListed, SelfDescription, Switched
from daemon.model import Kind
from daemon.protocol import UI
from daemon.states import ServerState
from daemon.surfaces.surface import View
from daemon.surfaces.table import SURFACES
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status
from tests.unit.surfaces.samples import view_of


def read(answer: bytes) -> dict[str, Any]:
    value = msgspec.json.decode(answer)
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("prompts", [True, False])
@pytest.mark.parametrize("resources", [True, False])
def test_what_a_profile_does_without_is_not_declared(*, prompts: bool, resources: bool) -> None:
    declared = capabilities(prompts=prompts, resources=resources)
    wanted = {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True} if prompts else None,
        "resources": {"subscribe": True, "listChanged": True} if resources else None,
        "completions": {} if prompts or resources else None,
        "logging": {},
    }
    assert declared == {name: each for name, each in wanted.items() if each is not None}
    assert read(discover_result({"capabilities": declared}))["capabilities"] == declared


SAID: dict[str, Any] = {
    "serverInfo": {"name": "Git", "title": "Git \u202e", "version": "1", "icons": [{"src": "x"}]},
    "capabilities": {
        "tools": {},
        "resources": {"subscribe": False},
        "tasks": {"list": {}},
        "experimental": {"x": {}},
        "extensions": {"com.example/x": {"a": 1}, UI: {}, "io.modelcontextprotocol/tasks": {}},
        "prompts": 7,
    },
    "instructions": " Use it.\n",
}
SHOWN = {**SAID["serverInfo"], "title": r"Git \u{202e}"}
PROFILES = {"plain": {"prompts": False, "resources": False}}
CONFIG: dict[str, Any] = {"mcpServers": servers("git", "hg"), "profiles": PROFILES}


def introduced(name: str, said: dict[str, object]) -> Any:
    raw = introduction_in(msgspec.json.encode(said), said.get("serverInfo"))
    words = said.get("instructions", "")
    return attrs.evolve(
        listed(name, "log"), said=SelfDescription(introduction=raw, instructions=str(words).strip())
    )


UP = after(catalog_of(CONFIG), [status("git"), status("hg"), introduced("git", SAID), listed("hg", "log")])


def given(catalog: Catalog, *names: str, profile: str = "default") -> tuple[Selection, View]:
    """What a client gets, and what it sees."""
    client = Client(catalog.config, SURFACES)
    client.wish({"servers": list(names), "profile": profile} if names else {})
    selection = client.select(catalog.config)
    assert not selection.denied
    view = view_of(catalog)
    return selection, attrs.evolve(view, catalog=view.services.offers.choices.of(catalog, selection.servers))


def test_of_a_single_server_a_client_is_told_what_that_has_said() -> None:
    selection, view = given(UP, "git")
    wanted = {
        "tools": {"listChanged": True},
        "resources": {"subscribe": False, "listChanged": True},
        "experimental": {"x": {}},
        "extensions": {"com.example/x": {"a": 1}, UI: {}},
    }
    assert declared_in(selection, view, UP.servers, modern=True) == wanted
    assert declared_in(selection, view, UP.servers, modern=False) == {**wanted, "tasks": {"list": {}}}
    assert instructions_for(selection, view) == " Use it.\n"
    told = introduction(selection, view, UP.servers, modern=False)
    assert read(initialize_result("2025-11-25", told))["serverInfo"] == SHOWN


def test_on_a_shared_surface_the_first_servers_value_of_an_extension_wins() -> None:
    told = {"a": {"com.example/x": {}}, "b": {UI: {"a": 1}}, "c": {UI: {"a": 2}}, "d": 7}
    facts = [introduced(name, {"capabilities": {"extensions": each}}) for name, each in told.items()]
    up = after(catalog_of({"mcpServers": servers(*told)}), facts)
    assert declared_in(*given(up), up.servers, modern=True)["extensions"] == {UI: {"a": 1}}


def test_a_server_that_says_nothing_of_itself_says_nothing_through_mcpd_either() -> None:
    quiet = fold(UP, introduced("git", {"serverInfo": {"name": "Git"}, "capabilities": {"tools": {}}}))
    selection, view = given(quiet, "git")
    assert instructions_for(selection, view) is None
    assert "instructions" not in introduction(selection, view, quiet.servers, modern=False)
    assert declared_in(selection, view, quiet.servers, modern=False) == {"tools": {"listChanged": True}}


def test_what_a_profile_does_without_a_server_is_not_said_to_have() -> None:
    selection, _view = given(UP, "git", profile="plain")
    assert declared_to(selection, UP.servers).keys() == {"tools", "experimental", "extensions", "tasks"}


def test_of_several_servers_each_says_its_own_under_its_name_and_mcpd_is_introduced() -> None:
    both = fold(UP, introduced("hg", {"instructions": "Or this."}))
    selection, view = given(both, "hg", "git")
    assert instructions_for(selection, view) == "git: Use it.\n\nhg: Or this."
    assert "serverInfo" not in introduction(selection, view, both.servers, modern=True)
    assert declared_to(selection, both.servers) == capabilities()


def test_why_a_server_is_not_there_is_said_in_its_place() -> None:
    selection, view = given(UP, "git", "hg")
    assert instructions_for(selection, view) == "git: Use it.", "hg is there, and says nothing of itself"
    off = fold(UP, Switched(off=frozenset({("git", "")})))
    selection, view = given(off, "git")
    assert instructions_for(selection, view) == (
        "git: switched off by an operator of mcpd (`mcpd enable git` brings it back)"
    )
    slow = DefinitionsListed(kind=Kind.TOOL, server="git", incarnation=1, problem="it is slow")
    met = after(catalog_of(CONFIG), [status("git"), attrs.evolve(slow, said=introduced("git", SAID).said)])
    assert str(instructions_for(*given(met, "git", "hg"))).startswith("git: Use it.")
    before = after(catalog_of(CONFIG), [status("git", ServerState.STARTING, reason="it is slow")])
    selection, view = given(before, "git")
    assert "git: not there yet (it is slow)" in str(instructions_for(selection, view))
    assert declared_to(selection, before.servers) == capabilities()


@pytest.mark.parametrize(
    ("state", "waits"), [(ServerState.STARTING, True), (ServerState.DORMANT, True), (ServerState.FAILED, False)]
)
def test_only_a_chosen_server_that_was_never_up(state: ServerState, *, waits: bool) -> None:
    before = after(catalog_of(CONFIG), [status("git", state), status("hg", state)])
    assert not_introduced(given(before, "git")[0], before.servers) == (("git",) if waits else ())
    assert not_introduced(given(before)[0], before.servers) == ()
    assert not_introduced(given(UP, "git")[0], UP.servers) == ()


async def test_a_handshake_waits_for_a_chosen_server_and_no_longer_than_its_client(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    client = await Stage(listed=False).client(nursery)
    await client.tell("mcpd/hello", {"servers": ["alpha"]})
    began = trio.current_time()
    answer = await client.request("initialize", {"protocolVersion": "2025-11-25"})
    assert answer["result"]["serverInfo"]["name"] == "mcpd"
    assert 0 < trio.current_time() - began <= OTHERS


@pytest.mark.parametrize("keeps", [True, False])
async def test_dropped_extensions_are_a_warning_once_and_none_over_http(
    nursery: trio.Nursery, *, keeps: bool
) -> None:
    """Over HTTP each request may have a connection of its own: clients could fill the log with warnings."""
    lines: list[str] = []
    sink = logger.add(lines.append, level="WARNING", format="{message}")
    try:
        client = (await Stage().connect(nursery, attrs.evolve(LOCAL_USER, keeps=keeps))).client
        meta = {protocol.VERSION_KEY: protocol.MODERN_VERSION, protocol.CAPABILITIES_KEY: {"extensions": 7}}
        for _ in range(2):
            assert "result" in await client.request("tools/list", {"_meta": meta})
    finally:
        logger.remove(sink)
    dropped = "mcpd drops these of the client's capabilities: `extensions`, which is not an object\n"
    assert lines == [dropped] * keeps


VERSIONED: dict[str, Any] = {
    **SAID,
    "_meta": {"a/b": 1},
    "greeting": "hello",
    "resultType": "complete",
    "ttlMs": 9,
}


@cases("theirs", "wanted", "told")
def test_a_single_server_answers_in_no_newer_revision_than_its_own(theirs: str, wanted: str, told: str) -> None:
    up = fold(UP, introduced("git", {**VERSIONED, "protocolVersion": theirs}))
    selection, view = given(up, "git")
    answer = read(initialize_result(wanted, introduction(selection, view, up.servers, modern=False)))
    assert (answer["protocolVersion"], answer["_meta"], answer["greeting"]) == (told, {"a/b": 1}, "hello")
    assert not answer.keys() & {"resultType", "ttlMs"}
    assert "greeting" not in introduction(selection, view, up.servers, modern=True)


def test_a_single_server_is_discovered_with_its_own_revisions_and_members() -> None:
    versions = {"supportedVersions": ["2026-07-28", "2099-01-01"]}
    up = fold(UP, introduced("git", {**VERSIONED, **versions}))
    selection, view = given(up, "git")
    answer = read(discover_result(introduction(selection, view, up.servers, modern=True)))
    assert answer["supportedVersions"] == ["2026-07-28"]
    assert answer["_meta"] == {"a/b": 1, "io.modelcontextprotocol/serverInfo": SHOWN}
    assert (answer["greeting"], answer["ttlMs"]) == ("hello", protocol.LIST_TTL_MS)
    assert "greeting" not in introduction(selection, view, up.servers, modern=False)
