"""A server that asks clients, as tests of its requests need it: what it asks, and what it is told."""

import json
from typing import Any

import attrs
from msgspec import Raw

from daemon.protocol import CAPABILITIES_KEY
from daemon.wire.envelope import Buffer
from daemon.wire.requests import PeerRequest
from tests.fakes_upstream import MODERN, Sent, Stage

ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
"""The capabilities of a client that can be asked anything."""


EXTENSIONS: dict[str, object] = {"io.modelcontextprotocol/tasks": {}, "io.modelcontextprotocol/ui": {}}
META = {**MODERN, CAPABILITIES_KEY: {**ABLE, "extensions": {**EXTENSIONS, "com.example/x": {}}}}
"""What such a client of 2026-07-28 puts into `_meta`."""

CARRIED = {**ABLE, "extensions": EXTENSIONS}
"""What of such a client's capabilities is declared to servers."""

QUESTION = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}

ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}
SAMPLED = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"}}
ROOTS = {"roots": [{"uri": "file:///work"}]}

ANSWERS = {"elicitation/create": ACCEPTED, "sampling/createMessage": SAMPLED, "roots/list": ROOTS}
"""A good answer to each thing that can be asked."""


@attrs.define(eq=False)
class Told:
    """`wire.requests.Responder` of a server that writes down what it is told."""

    results: list[Any] = attrs.field(factory=list)
    errors: list[tuple[int, str]] = attrs.field(factory=list)

    def answer(self, result: Buffer) -> None:
        self.results.append(json.loads(bytes(result)))

    def refuse(self, code: int, message: str, data: object = None) -> None:
        self.errors.append((code, message))

    def refuse_as(self, error: Buffer) -> None:
        told = json.loads(bytes(error))
        self.errors.append((told["code"], told["message"]))

    def report(self, params: dict[str, Raw]) -> None: ...

    @property
    def count(self) -> int:
        """How often it was told anything."""
        return len(self.results) + len(self.errors)


def raw(value: object) -> Raw:
    """JSON."""
    return Raw(json.dumps(value).encode())


def asks(
    stage: Stage, sent: Sent, method: str = "elicitation/create", params: object = QUESTION
) -> tuple[PeerRequest, Told]:
    """A server asks while it works on a call."""
    told = Told()
    request = PeerRequest(method, None if params is None else raw(params), told)
    request.server = "alpha"
    sent.exchange.asked(request)
    stage.outbox.flush()
    return request, told
