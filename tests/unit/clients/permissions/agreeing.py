"""A client whose user is asked about calls, in either era."""

import time
from typing import Any

import trio

from daemon.facts import Configured
from daemon.protocol import CAPABILITIES_KEY
from tests.fakes_upstream import MODERN, Client, Stage
from tests.unit.clients import asking
from tests.unit.clients.inputs import ABLE
from tests.unit.config.reading import config_of

META = {**MODERN, CAPABILITIES_KEY: ABLE}
ASKS = {"match": "alpha/echo", "then": "ask"}
DENIES = {"match": "alpha/echo", "then": "deny"}


def stage_of(surface: str = "category", *rules: Any, **written: Any) -> Stage:
    """A stage whose default profile has these rules."""
    profile = {"surface": surface, "permissions": list(rules or (ASKS,)), "autoLoad": True}
    return Stage(profiles={"default": profile}, **written)


def call_of(surface: str, tool: str = "echo", args: Any = None) -> dict[str, Any]:
    """The params of a call of alpha's tool on a surface."""
    args = {"x": 1} if args is None else args
    match surface:
        case "category":
            return {
                "name": "call-category-tool",
                "arguments": {"category": "alpha", "name": tool, "args": args},
            }
        case "browse" | "search-wrapped":
            return {"name": "call_tool", "arguments": {"tool_name": tool, "arguments": args}}
        case _:
            return {"name": tool, "arguments": args}


def configure(stage: Stage, *rules: Any, surface: str = "category", command: str = "unused") -> None:
    """A reload with other rules, or another program."""
    servers = {name: {"command": command} for name in ("alpha", "beta")}
    profile = {"surface": surface, "permissions": list(rules), "autoLoad": True}
    config = config_of({"mcpServers": servers, "profiles": {"default": profile}})
    stage.learn(Configured(config=config, now=time.time()))


async def greeted(stage: Stage, nursery: trio.Nursery, capabilities: Any = ABLE) -> Client:
    """A client that has shaken hands."""
    return (await asking.greeted(stage, nursery, capabilities)).client


async def asked(client: Client) -> dict[str, Any]:
    """The next request of mcpd's to the client; announcements before it are passed over."""
    while True:
        message: dict[str, Any] = await client.get()
        if message.get("method") == "elicitation/create":
            return message


async def answer_to(client: Client, request_id: object = 1) -> dict[str, Any]:
    """The answer to a request; announcements before it are passed over."""
    while True:
        message: dict[str, Any] = await client.get()
        assert message.get("method") != "elicitation/create", "asked twice"
        if message.get("id") == request_id:
            return message


def accept(choice: str = "allow once") -> dict[str, Any]:
    """What a client answers whose user has chosen."""
    return {"action": "accept", "content": {"choice": choice}}


async def reply(client: Client, question: dict[str, Any], answer: Any) -> None:
    """Answer what was asked."""
    await client.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
