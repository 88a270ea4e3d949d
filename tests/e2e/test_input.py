"""Elicitation, sampling and roots in all four combinations of eras: real servers, a real client, both doors.

server-everything speaks revisions up to 2025-11-25 and asks while it works; the conformance suite's server on
the Python SDK speaks 2026-07-28 and answers with what it needs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.doors import TOKEN, HttpDoor
from tests.e2e.harness import ROOT, Daemon, node_server, running
from tests.e2e.scripts import CLIENTS
from tests.pairwise import at_night, pairwise
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

FIXTURE = ROOT / ".cache" / "sdk" / "examples" / "servers" / "everything-server"
RUN = "from mcp_everything_server.server import mcp; mcp.run()"

ERAS = ("legacy", "2026-07-28")

HANDSHAKE: list[tuple[str, dict[str, Any], str]] = [
    ("trigger-elicitation-request", {}, "Ada"),
    ("trigger-sampling-request", {"prompt": "capital of France?", "maxTokens": 10}, "Paris"),
    ("get-roots-list", {}, "file:///work"),
]
"""What is called, and what is in the answer only if the client has given it."""

REQUIRED = "test_input_required_result_"
MODERN: list[tuple[str, dict[str, Any], str]] = [
    (REQUIRED + "elicitation", {}, "Hello, Ada!"),
    (REQUIRED + "sampling", {}, "Model said: Paris"),
    (REQUIRED + "list_roots", {}, "Client exposed 1 root(s)."),
    (REQUIRED + "request_state", {}, "state-ok"),
    (REQUIRED + "multiple_inputs", {}, "All inputs received."),
    (REQUIRED + "multi_round", {}, "Ada likes teal."),
]


@pytest.fixture(scope="module")
def door() -> HttpDoor:
    return HttpDoor()


@pytest.fixture(scope="module")
def daemon(door: HttpDoor) -> Iterator[Daemon]:
    servers = {
        "before": node_server("server-everything", "stdio"),
        "since": {
            "command": sys.executable,
            "args": ["-c", RUN],
            "env": {"PYTHONPATH": str(FIXTURE)},
            "era": "modern",
        },
    }
    config = {
        "mcpServers": servers,
        "listen": door.listen,
        "profiles": {"default": {"surface": "full"}, "meta": {"surface": "category"}},
    }
    with running(config) as daemon:
        daemon.ready()
        yield daemon


def given(era: str, todo: list[tuple[str, dict[str, Any]]], *where: str) -> dict[str, Any]:
    """What the client got for what it gave."""
    words = [sys.executable, str(CLIENTS / "giving.py"), era, json.dumps(todo), *where]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def place(daemon: Daemon, door: HttpDoor, how: str, *path: str) -> tuple[str, ...]:
    """Where the client connects."""
    return ("socket", str(daemon.socket)) if how == "socket" else ("http", door.url(*path), TOKEN)


@pytest.mark.parametrize(("calls", "era", "how"), pairwise(["before", "since"], ERAS, ["socket", "http"]))
def test_a_server_is_given_what_it_asks_for_whatever_the_eras(
    daemon: Daemon, door: HttpDoor, calls: str, era: str, how: str
) -> None:
    todo = {"before": HANDSHAKE, "since": MODERN}[calls]
    answer = given(era, [(name, arguments) for name, arguments, _ in todo], *place(daemon, door, how))
    for text, (name, _, wanted) in zip(answer["gave"], todo, strict=True):
        assert wanted in text, (name, text, daemon.said())
    if calls == "before":
        # It asks for roots once, of whoever is there first, and keeps them.
        assert {"elicitation": 1, "sampling": 1}.items() <= answer["asked"].items()
    else:
        # A server that knew the roots of a client before asks this one for its own, too.
        asked = {**answer["asked"], "roots": min(answer["asked"]["roots"], 2)}
        assert asked == {"elicitation": 5, "sampling": 2, "roots": 2}


@pytest.mark.parametrize("era", at_night(ERAS, ERAS[0]))
def test_meta_tools_carry_what_belongs_to_the_call_that_they_make(
    daemon: Daemon, door: HttpDoor, era: str
) -> None:
    inner = [("before", "trigger-elicitation-request"), ("since", REQUIRED + "multi_round")]
    todo: list[tuple[str, dict[str, Any]]] = [
        ("call-category-tool", {"category": server, "name": name, "args": {}}) for server, name in inner
    ]
    answer = given(era, todo, *place(daemon, door, "http", "meta"))
    assert "Ada" in answer["gave"][0]
    assert answer["gave"][1] == "Ada likes teal."
