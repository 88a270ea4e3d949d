"""Real servers that change: what they list later waits, over reloads and restarts, until a user approves it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Daemon, RawClient, changeable, scripted, serving
from tests.e2e.raw_http import HttpDoor
from tests.e2e.test_permissions import Person, call_on, code, message
from tests.pairwise import each_once
from tests.scripted_server import tool
from tests.waiting import eventually

Json = dict[str, Any]

SURFACES = ["category", "browse", "search", "load", "full"]
READ, READ_ALL = tool("read"), tool("read", description="Reads all.")
WIPE = tool("wipe", description="Wipes all.")
DOOR = HttpDoor()


def config(entry: Json, **more: Any) -> Json:
    profiles = {name: {"surface": name, "autoLoad": True} for name in SURFACES}
    servers = {"fs": {**entry, "trust": "changes"}}
    return {"mcpServers": servers, "profiles": {"default": profiles["full"], **profiles}, **more}


def reached(record: Path) -> list[str]:
    """The tools whose calls have reached the server, by its own record."""
    events = [json.loads(line) for line in record.read_text().splitlines()]
    calls = (each["message"] for each in events if each["event"] == "message")
    return [each["params"]["name"] for each in calls if each.get("method") == "tools/call"]


def everybody(daemon: Daemon, stack: ExitStack) -> list[tuple[str, RawClient]]:
    """A client on each surface, and one that sees the server as itself."""
    found = [(surface, stack.enter_context(daemon.client()).hello(profile=surface)) for surface in SURFACES]
    found.append(("itself", stack.enter_context(daemon.client()).hello(servers=["fs"])))
    for _surface, client in found:
        client.greet()
    return found


def codes(clients: list[tuple[str, RawClient]], name: str) -> set[str]:
    """How a call is refused on the surfaces; empty where it runs."""
    results = [call_on(client, surface, name) for surface, client in clients]
    return {code(each) if each.get("isError") else "" for each in results}


def test_what_a_server_lists_later_is_called_by_nobody_over_reloads_and_restarts(tmp_path: Path) -> None:
    record = tmp_path / "record"
    runs = [{"tools": [READ, "write"]}, {"tools": [READ_ALL, "write", WIPE]}]
    entry = scripted(runs=runs, count=str(tmp_path / "count"), record=str(record))
    with serving(config(entry)) as daemon:
        with ExitStack() as stack:
            clients = everybody(daemon, stack)
            assert codes(clients, "read") <= {"", "ToolChanged"}
            before = reached(record)
            assert set(before) == {"read"}

            daemon.ask("restart", server="fs")
            daemon.ready()
            assert (codes(clients, "read"), codes(clients, "wipe")) == ({"ToolHeld"}, {"ToolHeld"})
            held = json.loads(daemon.config.read_text())
            daemon.config.write_text(json.dumps({**held, "limits": {"indexCharacters": 5000}}))
            daemon.run("reload")
            assert (codes(clients, "read"), codes(clients, "wipe")) == ({"ToolHeld"}, {"ToolHeld"})
            assert reached(record) == before
            for surface, client in clients:
                listed = json.dumps(client.ask("tools/list"))
                assert "Wipes" not in listed, surface
                assert "Reads all" not in listed, surface
        daemon.restart()
        daemon.ready()
        with ExitStack() as stack:
            clients = everybody(daemon, stack)
            assert (codes(clients, "read"), codes(clients, "wipe")) == ({"ToolHeld"}, {"ToolHeld"})
            assert codes(clients, "write") == {""}
        assert set(reached(record)[len(before) :]) == {"write"}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    entries = config(changeable(READ), listen=DOOR.listen)
    with serving(entries) as found:
        yield found


class Approving(Person):
    """A client whose user approves."""

    choice: str | None = "approve"


@pytest.mark.parametrize(("place", "modern"), each_once(["unix", "http", "websocket"], [False, True]))
def test_the_user_of_a_client_approves_for_everybody_what_the_client_calls(
    daemon: Daemon, place: str, modern: bool
) -> None:
    name = f"wipe-{place}-{modern}"
    daemon.changes("fs", READ, tool(name, description="Wipes\nall."))
    client = Approving(daemon, DOOR, place, modern=modern)
    try:
        with daemon.client() as other:
            other.greet()
            assert code(other.call(name, {})) == "ToolHeld"
            if (place, modern) != ("http", True):
                # There, nothing tells one client from another, and who has refused is not asked again at once.
                refusing = Approving(daemon, DOOR, place, modern=modern)
                refusing.choice = "refuse"
                assert "the user has refused" in message(refusing.run(name))
                refusing.close()
            assert not client.run(name).get("isError")
            (asked,) = client.asked
            assert asked["params"]["message"] == (
                f"mcpd asks: may models use fs/{name} as it is now? It waits for approval: nobody approved it"
                ' yet. Its description says: "Wipes all."'
            )
            assert not other.call(name, {})["isError"]
    finally:
        client.close()
    # A form that was approved needs no approval when the server is back with it.
    daemon.changes("fs", READ)
    daemon.changes("fs", READ, tool(name, description="Wipes\nall."))
    with daemon.client() as other:
        other.greet()
        assert not other.call(name, {})["isError"]


def test_an_operator_is_told_that_a_tool_is_held_and_others_can_be_called(daemon: Daemon) -> None:
    daemon.changes("fs", READ_ALL, WIPE)
    for name in ("read", "wipe"):
        answer = daemon.ask("call", server="fs", tool=name, arguments={})
        assert answer["structuredContent"]["error"]["code"] == "ToolHeld"
    daemon.changes("fs", READ)
    assert eventually(lambda: not daemon.ask("call", server="fs", tool="read", arguments={}).get("isError"))
