"""What a server asks while it works on an operator's call, and the answers that come back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import trio
from msgspec import Raw

from daemon.wire.requests import PeerRequest
from tests.unit.operators.stage import OperatorStage
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from daemon.wire.envelope import Buffer

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


@attrs.define
class Told:
    """What the server is told."""

    answers: list[Any] = attrs.field(factory=list)
    came: trio.Event = attrs.field(factory=trio.Event)

    def answer(self, result: Buffer) -> None:
        """A result."""
        self._take(json.loads(bytes(result)))

    def refuse(self, code: int, message: str, data: object = None) -> None:
        """An error of ours."""
        self._take((code, message))

    def refuse_as(self, error: Buffer) -> None:
        """An error of the operator's."""
        self._take(json.loads(bytes(error)))

    def report(self, params: dict[str, Raw]) -> None:
        """Progress: nobody reports any here."""
        raise AssertionError(params)

    async def one(self) -> Any:
        """The first answer."""
        with trio.fail_after(PATIENCE):
            await self.came.wait()
        return self.answers[0]

    def _take(self, answer: object) -> None:
        self.answers.append(answer)
        self.came.set()


def asking(method: str, params: object) -> tuple[PeerRequest, Told]:
    told = Told()
    return PeerRequest(method, Raw(json.dumps(params).encode()), told), told


async def test_a_question_reaches_the_operator_and_the_answer_the_server(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    client = await daemon.connect(nursery)
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}}
    await client.ask("call", {"server": "alpha", "tool": "echo", "capabilities": capabilities})
    sent = await daemon.alpha.wait_sent()
    request, told = asking("elicitation/create", FORM)
    sent.exchange.asked(request)
    asked = await client.get()
    assert (asked["method"], asked["params"]) == ("elicitation/create", FORM)
    await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {}}})
    assert await told.one() == {"action": "accept", "content": {}}
    daemon.stage.answer(sent)
    assert "result" in await client.get()


async def test_who_declares_nothing_is_not_asked(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    client = await daemon.connect(nursery)
    await client.ask("call", {"server": "alpha", "tool": "echo"})
    sent = await daemon.alpha.wait_sent()
    request, told = asking("elicitation/create", FORM)
    sent.exchange.asked(request)
    assert await told.one() == {"action": "decline"}
    sampling, refused = asking("sampling/createMessage", {"messages": []})
    sent.exchange.asked(sampling)
    assert (await refused.one())[0] == -32601
    daemon.stage.answer(sent)
    assert "result" in await client.get()


async def test_a_question_ends_with_the_call(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    client = await daemon.connect(nursery)
    await client.ask("call", {"server": "alpha", "tool": "echo", "capabilities": {"roots": {}}})
    sent = await daemon.alpha.wait_sent()
    request, told = asking("roots/list", {})
    sent.exchange.asked(request)
    asked = await client.get()
    # The server's own end of the call does this (`upstreams.attribution`).
    request.withdraw("the call has ended")
    daemon.stage.answer(sent)
    cancelled, answer = await client.get(), await client.get()
    assert cancelled["params"] == {"requestId": asked["id"], "reason": "the call has ended"}
    assert "result" in answer
    assert not told.answers


async def test_a_question_ends_when_the_operator_goes(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    client = await daemon.connect(nursery)
    await client.ask("call", {"server": "alpha", "tool": "echo", "capabilities": {"roots": {}}})
    sent = await daemon.alpha.wait_sent()
    request, told = asking("roots/list", {})
    sent.exchange.asked(request)
    await client.get()
    client.close()
    assert (await told.one())[0] == -32603
    await daemon.alpha.wait_cancelled()
