"""A client of a real session that a server asks something, and the server's end of the question."""

import json
from typing import Any

import attrs
import trio
import trio.testing
from msgspec import Raw

from daemon.wire.envelope import Buffer
from daemon.wire.requests import PeerRequest
from tests.fakes_upstream import Client, Guest, Stage
from tests.unit.wire.test_peer_requests import Noted

ALL = {"roots": {"listChanged": True}, "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}}
FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}


def url(elicitation: str) -> dict[str, Any]:
    """The params of an elicitation that sends to a URL."""
    return {"mode": "url", "message": "?", "url": "https://x.test/", "elicitationId": elicitation}


def on_full_surface(**more: Any) -> Stage:
    """A stage on which tools have their own names."""
    return Stage(profiles={"default": {"surface": "full"}, **more.pop("profiles", {})}, **more)


@attrs.define(eq=False)
class Question:
    """What a server has asked, and what it was answered."""

    request: PeerRequest
    back: Noted

    @property
    def answers(self) -> list[Any]:
        """What it was answered: results and errors decoded."""
        return [
            (kind, json.loads(rest[0]) if kind in {"result", "error"} else rest[0])
            for kind, *rest in self.back.said
        ]


def question(method: str, params: Any = None, server: str = "alpha") -> Question:
    """A server's request."""
    back = Noted()
    made = PeerRequest(method, None if params is None else Raw(json.dumps(params).encode()), back)
    made.server = server
    return Question(made, back)


async def greet(client: Client, capabilities: Any = ALL, *, done: bool = True) -> None:
    """Shake hands."""
    params = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
    assert "result" in await client.request("initialize", params, request_id=0)
    if done:
        await client.tell("notifications/initialized", {})
        await trio.testing.wait_all_tasks_blocked()


async def greeted(stage: Stage, nursery: trio.Nursery, capabilities: Any = ALL, *, done: bool = True) -> Guest:
    """A client that has shaken hands."""
    guest = await stage.connect(nursery)
    await greet(guest.client, capabilities, done=done)
    return guest


async def called(stage: Stage, client: Client, request_id: object = 7, tool: str = "echo") -> None:
    """The client has called `echo` of alpha; the call is at the server."""
    before = len(stage.alpha.sent)
    await client.ask("tools/call", {"name": tool, "arguments": {}}, request_id=request_id)
    await stage.alpha.wait_sent(before + 1)


async def at_work(nursery: trio.Nursery) -> tuple[Stage, Client]:
    """A client that can be asked anything, on a stage whose server works on its call."""
    stage = on_full_surface()
    client = (await greeted(stage, nursery)).client
    await called(stage, client)
    return stage, client


def asks(stage: Stage, method: str, params: Any = None, *, call: int = -1) -> Question:
    """The server asks on account of a call."""
    asked = question(method, params)
    stage.alpha.sent[call].exchange.asked(asked.request)
    stage.outbox.flush()
    return asked


async def answer(client: Client, uid: int, result: Buffer | Any) -> None:
    """The client answers, and the answer has arrived."""
    raw = bytes(result) if isinstance(result, bytes) else json.dumps(result).encode()
    await client.send(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (uid, raw))
    await trio.testing.wait_all_tasks_blocked()
