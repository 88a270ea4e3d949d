"""Real servers through `mcpd connect --server NAME`: as a client sees them that starts them itself."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.crossings import playwright, project
from tests.e2e.harness import Daemon, node_server, program, running
from tests.e2e.windows import Window
from tests.pairwise import at_night
from tests.unit.cases import rows_of

Json = dict[str, Any]
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def call(tool: str, /, **arguments: Any) -> tuple[str, Json]:
    """A call of a tool."""
    return "tools/call", {"name": tool, "arguments": arguments}


def seen(window: Window, asked: Iterable[tuple[str, Json]]) -> dict[str, str]:
    """What is answered to the handshake, to the requests for all lists and to those given.

    Results are compared as text: what a server answers passes as it is. In a list the order of an object's
    members may be another one, of an error only the code counts, and mcpd announces changes of all lists, since
    the server may be restarted with others.
    """
    handshake = window.begin()
    for capability in handshake["capabilities"].values():
        if "listChanged" in capability:
            capability["listChanged"] = True
    found = {"initialize": json.dumps(handshake, sort_keys=True)}
    for method, member in LISTS.items():
        found[method] = json.dumps(_listed(window, method, member), sort_keys=True)
    for method, params in asked:
        answer = window.ask(method, params)
        found[f"{method} {json.dumps(params)}"] = json.dumps(answer.get("result", answer.get("error")))
    return found


def _listed(window: Window, method: str, member: str) -> Any:
    """A list with all its pages; the code of the error where a server has no such list."""
    items: list[Json] = []
    params: Json = {}
    while "result" in (answer := window.ask(method, params)):
        items += answer["result"][member]
        if "nextCursor" not in answer["result"]:
            return items
        params = {"cursor": answer["result"]["nextCursor"]}
    return answer["error"]["code"]


def differences(one: dict[str, str], two: dict[str, str]) -> dict[str, tuple[str, str]]:
    """What the two ways answer differently."""
    return {key: (text, two.get(key, "nothing")) for key, text in one.items() if text != two.get(key)}


# --- real servers through `mcpd connect --server NAME` -------------------------------------------------------


ASKED: dict[str, list[tuple[str, Json]]] = dict(rows_of(Path(__file__), "asked"))


def servers(directory: Path, kept: Path) -> dict[str, Json]:
    """The servers; what memory remembers is kept in a file for each way.

    What server-everything lists depends on what its client can: it is the same only with an instance for each.
    """
    return {
        "time": {"command": program("mcp-server-time"), "args": ["--local-timezone", "UTC"]},
        "git": {"command": program("mcp-server-git")},
        "filesystem": node_server("server-filesystem", str(directory)),
        "thinking": node_server("server-sequential-thinking"),
        "memory": {**node_server("server-memory"), "env": {"MEMORY_FILE_PATH": str(kept)}},
        "everything": {**node_server("server-everything"), "share": "session"},
        "playwright": playwright(directory.parent),
    }


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where client and servers are."""
    return project(tmp_path_factory.mktemp("itself") / "one")


@pytest.fixture(scope="module")
def daemon(directory: Path) -> Iterator[Daemon]:
    """With one instance of each server for all."""
    entries = servers(directory, directory.parent / "kept-through.json")
    # Lazy: a run asks only some, and a first list of "everything" would be that of an instance of nobody's.
    entries = {name: {**each, "cwd": str(directory), "start": "lazy"} for name, each in entries.items()}
    with running({"mcpServers": entries}) as daemon:
        yield daemon


@pytest.mark.parametrize("name", at_night(ASKED, "filesystem", "everything"))
def test_a_server_is_seen_as_it_is_seen_directly(daemon: Daemon, directory: Path, name: str) -> None:
    entry = servers(directory, directory.parent / "kept-direct.json")[name]
    with Window.direct(entry, directory, directory.parent / "stderr") as direct:
        itself = seen(direct, ASKED[name])
    with Window.bridged(daemon, directory, "--server", name) as bridged:
        assert differences(itself, seen(bridged, ASKED[name])) == {}, daemon.said()
