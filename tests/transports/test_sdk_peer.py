"""The protocol over the SDK's streams: order, and the SDK's own words (a contract with its version)."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Self

import pytest
import trio
import trio.testing
from mcp.client import streamable_http
from mcp.shared import jsonrpc_dispatcher
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from daemon.model import Era
from daemon.transports.failures import Kind
from daemon.transports.sdk_era import Dialect
from daemon.transports.sdk_peer import BROKEN_TEXTS, SdkPeer, failure_in

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_the_sdk_still_says_so_when_there_will_be_no_answer() -> None:
    sources = inspect.getsource(streamable_http) + inspect.getsource(jsonrpc_dispatcher)
    for text in BROKEN_TEXTS:
        assert f'"{text}' in sources


@pytest.mark.parametrize(
    ("code", "message", "in_session", "kind"),
    [
        (-32000, "Connection closed", True, Kind.BROKEN),
        (-32000, "SSE stream ended without a response", False, Kind.BROKEN),
        (-32000, "SSE stream failed: Server-sent event exceeded the 5 byte limit.", False, Kind.TOO_LARGE),
        (-32000, "the server's own", True, None),
        (-32600, "Session not found", True, Kind.SESSION_OVER),
        (-32600, "Session not found", False, None),
        (-32601, "no such session tool", True, None),
    ],
)
def test_what_an_error_response_means(code: int, message: str, in_session: bool, kind: Kind | None) -> None:
    failure = failure_in(MCPError(code, message), "h:1", in_session=in_session)
    assert (failure.kind if failure else None) is kind


class Wire:
    """The SDK's stream to write to, as a list; answers every request at once."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.to_us, self.received = trio.open_memory_channel[SessionMessage | Exception](10)

    async def send(self, item: SessionMessage) -> None:
        await trio.lowlevel.checkpoint()
        message = item.message
        assert isinstance(message, JSONRPCRequest | JSONRPCNotification)
        self.sent.append(message.method)
        if isinstance(message, JSONRPCRequest):
            answer = JSONRPCResponse(jsonrpc="2.0", id=message.id, result={"got": message.params})
            await self.to_us.send(SessionMessage(answer))

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


async def test_a_notification_goes_before_the_requests_that_follow_it() -> None:
    wire = Wire()
    seen: list[tuple[str, Mapping[str, Any] | None]] = []
    dialect = Dialect()
    peer = SdkPeer((wire.received, wire), dialect, lambda method, params: seen.append((method, params)))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: peer.receive(task_status=task_status))
            nursery.start_soon(peer.send_notes)
            for step in range(3):
                peer.notify(f"note/{step}", {})
                await peer.ask(step, f"ask/{step}", {})
            dialect.adopt(Era.MODERN, "2026-07-28")
            assert "_meta" in (await peer.ask(9, "tools/list", {}))["got"]
            note = JSONRPCNotification(jsonrpc="2.0", method="n", params={"a": 1})
            await wire.to_us.send(SessionMessage(note))
            await wire.to_us.aclose()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert wire.sent == ["note/0", "ask/0", "note/1", "ask/1", "note/2", "ask/2", "tools/list"]
    assert seen == [("n", {"a": 1})]
