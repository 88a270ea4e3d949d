"""A profile's rules with real daemons, clients and operators: denied, asked about, allowed by an operator."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any, ClassVar

import pytest

from tests.e2e.harness import Daemon, RawClient, changeable, serving
from tests.e2e.raw_http import HttpDoor
from tests.e2e.whole_client import WholeClient
from tests.pairwise import each_once

Json = dict[str, Any]

ANY: Json = {"type": "object"}
TOOLS: list[Json] = [
    {"name": "read", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
    {"name": "write", "inputSchema": ANY},
    {"name": "remove", "inputSchema": ANY},
    {"name": "move", "inputSchema": ANY, "annotations": {"destructiveHint": False}},
]
RULES: list[Json] = [
    {"match": "fs*/remove", "then": "deny"},
    {"annotations": {"destructive": True}, "then": "ask"},
]
SURFACES = ("category", "browse", "search", "load", "full")
DOOR = HttpDoor()
PERSON = {"name": "somebody", "version": "1"}


def config_of(rules: list[Json], door: HttpDoor | None = None) -> Json:
    profiles = {
        name: {"surface": name, "permissions": rules, "autoLoad": True, "preload": ["fs/write"]}
        for name in SURFACES
    }
    return {
        "mcpServers": {
            "fs": changeable(*TOOLS),
            # As itself alone: it asks about other names.
            **({"fs-modern": changeable(*TOOLS, era="modern")} if door is not None else {}),
        },
        "profiles": {"default": profiles["category"], **profiles},
        **({} if door is None else {"listen": door.listen}),
    }


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with serving(config_of(RULES, DOOR)) as found:
        yield found


class Person(WholeClient):
    """A client whose user makes the same choice each time."""

    choice: str | None = "allow once"

    def _answer(self, asked: Json) -> Json:
        self.asked.append(asked)
        if self.choice is None:
            return {"action": "decline"}
        return {"action": "accept", "content": {"choice": self.choice}}

    def run(self, tool: str, **args: Any) -> Json:
        return self.call(tool, args)


class Silent(Person):
    """One that cannot ask its user."""

    capabilities: ClassVar[Json] = {}


def person(daemon: Daemon, place: str, *, modern: bool) -> Person:
    return Person(daemon, DOOR, place, modern=modern)


def unasked(daemon: Daemon, profile: str = "default", **hello: Any) -> RawClient:
    """A client that cannot ask its user."""
    client = RawClient(daemon.socket).hello(profile=profile, **hello)
    client.greet(clientInfo=PERSON)
    return client


def code(result: Json) -> str:
    """The code of a refusal."""
    found: str = result["structuredContent"]["error"]["code"]
    return found


def message(result: Json) -> str:
    found: str = result["content"][0]["text"]
    return found


def call_on(client: RawClient, surface: str, tool: str, **args: Any) -> Json:
    """A call of a tool as the surface has it."""
    match surface:
        case "category":
            return client.call("call-category-tool", {"category": "fs", "name": tool, "args": args})
        case "browse" | "search":
            return client.call("call_tool", {"tool_name": tool, "arguments": args})
        case _:
            return client.call(tool, args)


@pytest.mark.parametrize(("place", "modern"), each_once(["unix", "http", "websocket"], [False, True]))
def test_the_user_of_the_client_that_calls_is_asked(daemon: Daemon, place: str, modern: bool) -> None:
    client = person(daemon, place, modern=modern)
    try:
        result = client.run("write", path="/x", text="hidden \u202e")
        assert not result.get("isError"), result
        (asked,) = client.asked
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"].startswith(
            'mcpd asks: fs/write wants to run with {"path":"/x","text":"hidden '
        )
        assert "\u202e" not in asked["params"]["message"]
        client.run("move")
        assert len(client.asked) == 1
        client.choice = None
        refused = client.run("write", path="/y")
        assert code(refused) == "PermissionDenied"
        assert "Do not call it again" in message(refused)
        assert "the client has declined or cancelled the question" in message(refused)
        if (place, modern) == ("http", True):
            # Nothing tells its next request from somebody else's.
            assert "in a session (Mcpd-Session)" in message(refused)
            return
        command = refused["structuredContent"]["error"]["allow"]
        assert f"`{command}`" in message(refused)
        daemon.run(*command.split()[1:], "--for", "1h")
        assert not client.run("write", path="/y").get("isError")
    finally:
        client.close()


@pytest.mark.parametrize(
    ("place", "modern"),
    # Over HTTP, clients of the modern era have no session.
    [each for each in each_once(["unix", "http", "websocket"], [True, False]) if each.values != ("http", True)],
)
def test_what_is_allowed_for_the_session_is_asked_about_once_and_in_no_other_session(
    daemon: Daemon, place: str, modern: bool
) -> None:
    client, other = (person(daemon, place, modern=modern) for _ in range(2))
    try:
        client.choice = "allow for this session"
        for number in range(3):
            assert not client.run("write", number=number).get("isError")
        assert len(client.asked) == 1
        other.choice = None
        assert code(other.run("write")) == "PermissionDenied"
        assert len(other.asked) == 1
    finally:
        client.close()
        other.close()


def test_a_client_that_cannot_ask_calls_what_an_operator_allows_and_nothing_else(daemon: Daemon) -> None:
    with unasked(daemon) as client, unasked(daemon) as other:
        refused = client.run("fs", "write", path="/x")
        assert code(refused) == "PermissionDenied"
        command = refused["structuredContent"]["error"]["allow"].split()
        assert command[:2] == ["mcpd", "allow"]
        assert "may call without asking:\n  fs/write" in daemon.run(*command[1:], "--for", "1h")
        assert not client.run("fs", "write", path="/x")["isError"]
        assert code(other.run("fs", "write", path="/x")) == "PermissionDenied"
        session = command[2]
        listed = json.loads(daemon.run("allow", session, "--json"))
        assert [each["tool"] for each in listed["allowed"]] == ["fs/write"]
        daemon.run("allow", session, "write", "--revoke")
        assert code(client.run("fs", "write", path="/x")) == "PermissionDenied"
        for wrong in ((session, "fs/read"), (session, "fs/remove"), ("999", "fs/write")):
            daemon.run("allow", *wrong, check=1)


@pytest.mark.parametrize("surface", SURFACES)
def test_on_every_surface_what_is_denied_is_not_there_and_what_asks_asks(daemon: Daemon, surface: str) -> None:
    with unasked(daemon, surface) as client:
        assert "remove" not in client.listed()
        refused = call_on(client, surface, "remove")
        assert code(refused) == "ToolDisabled"
        assert f"a permission rule in profile {surface}" in message(refused)
        assert code(call_on(client, surface, "write")) == "PermissionDenied"
        for allowed in ("read", "move"):
            assert not call_on(client, surface, allowed)["isError"]


# --- one server as itself, behind `mcpd connect --server` -----------------------------------------------------


@pytest.mark.parametrize(("server", "modern"), each_once(["fs", "fs-modern"], [True, False]))
def test_rules_hold_for_a_server_that_is_shown_as_itself(daemon: Daemon, server: str, modern: bool) -> None:
    with closing(Person(daemon, DOOR, "bridge", "--server", server, modern=modern)) as client:
        client.choice = None
        names = [each["name"] for each in client.ask("tools/list")["tools"]]
        assert {"read", "write", "move"} <= set(names)
        assert "remove" not in names
        denied = client.call("remove", {})
        assert code(denied) == "ToolDisabled"
        assert "a permission rule in profile default" in message(denied)
        for allowed in ("read", "move"):
            assert not client.call(allowed, {}).get("isError")
        assert client.asked == []
        refused = client.call("write", {"path": "/x"})
        assert code(refused) == "PermissionDenied"
        assert len(client.asked) == 1
        client.choice = "allow once"
        assert not client.call("write", {"path": "/x"}).get("isError")
        assert len(client.asked) == 2
        client.choice = None
        daemon.run(*refused["structuredContent"]["error"]["allow"].split()[1:], "--for", "1h")
        assert not client.call("write", {"path": "/x"}).get("isError")
        assert len(client.asked) == 2


@pytest.mark.parametrize(("server", "modern"), each_once(["fs", "fs-modern"], [True, False]))
def test_a_server_as_itself_is_allowed_by_an_operator_where_its_client_cannot_ask(
    daemon: Daemon, server: str, modern: bool
) -> None:
    key = f"{server} {modern}"
    options = ("--server", server, "--session", key)
    with closing(Silent(daemon, DOOR, "bridge", *options, modern=modern)) as client:
        refused = client.call("write", {})
        assert code(refused) == "PermissionDenied"
        assert refused["structuredContent"]["error"]["allow"] == f"mcpd allow '{key}' {server}/write"
        daemon.run("allow", key, f"{server}/write")
        assert not client.call("write", {}).get("isError")
        daemon.run("allow", key, f"{server}/write", "--revoke")
        assert code(client.call("write", {})) == "PermissionDenied"
