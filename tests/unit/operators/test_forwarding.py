"""A request of an operator's to a server: what it carries besides its payload."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec import Raw

from daemon.errors import UpstreamCallError
from daemon.operators.own_requests import Forwarding, forward
from daemon.wire.requests import PeerRequest
from tests.unit.operators.stage import OperatorStage

if TYPE_CHECKING:
    import trio

    from daemon.wire.envelope import Buffer
    from tests.fakes_upstream import Sent


async def test_answers_to_what_a_modern_server_wants_go_first() -> None:
    daemon = OperatorStage()

    def answer(sent: Sent) -> None:
        members = json.loads(b"{%b}" % b"".join(sent.call.params))
        assert members == {"inputResponses": {"k": {"action": "decline"}}, "requestState": "s", "uri": "x:y"}
        assert sent.call.envelope == {"io.modelcontextprotocol/clientCapabilities": b'{"roots":{}}'}
        sent.exchange.answered(b"{}")

    daemon.alpha.on_send = answer
    told = b'{"capabilities":{"roots":{}},"inputResponses":{"k":{"action":"decline"}},"requestState":"s"}'
    given = msgspec.json.decode(told, type=Forwarding)
    members: tuple[Buffer, ...] = (b'"uri":', b'"x:y"')
    assert await forward(daemon.context(), daemon.alpha, "resources/read", members, given) == Raw(b"{}")
    # Only tools' calls are counted among calls.
    assert not daemon.alpha.recorded


@pytest.mark.parametrize("result", [b"5", b"[]", b'"x"', b"null"])
async def test_a_result_that_is_no_object_is_the_servers_fault(result: bytes) -> None:
    daemon = OperatorStage()
    daemon.alpha.on_send = lambda sent: sent.exchange.answered(result)
    members: tuple[Buffer, ...] = (b'"uri":', b'"x:y"')
    with pytest.raises(UpstreamCallError, match="no object"):
        await forward(daemon.context(), daemon.alpha, "resources/read", members, Forwarding())


async def test_where_no_operator_could_be_told_a_servers_request_is_refused() -> None:
    daemon = OperatorStage()
    refused: list[int] = []

    class Responder:
        def answer(self, result: Buffer) -> None:
            raise AssertionError

        def refuse(self, code: int, message: str, data: object = None) -> None:
            refused.append(code)

        def refuse_as(self, error: Buffer) -> None:
            raise AssertionError

        def report(self, params: dict[str, Raw]) -> None:
            raise AssertionError

    def ask(sent: Sent) -> None:
        sent.exchange.progressed({"progress": Raw(b"1")})
        sent.exchange.asked(PeerRequest("roots/list", None, Responder()))
        sent.exchange.answered(b"{}")

    daemon.alpha.on_send = ask
    await forward(daemon.context(), daemon.alpha, "tools/call", (b"",), Forwarding(progress=True))
    assert refused == [-32600]


async def test_progress_is_asked_for_only_where_it_is_wanted(nursery: trio.Nursery) -> None:
    daemon = OperatorStage()
    client = await daemon.connect(nursery)
    await client.ask("call", {"server": "alpha", "tool": "echo", "progress": True}, request_id="a")
    sent = await daemon.alpha.wait_sent()
    assert sent.call.wants_progress
    daemon.stage.progress(sent, progress=3, total=4, message="so far")
    report = await client.get()
    assert report["method"] == "notifications/progress"
    assert report["params"] == {"progressToken": "a", "progress": 3, "total": 4, "message": "so far"}
    daemon.stage.answer(sent)
    assert (await client.get())["id"] == "a"
