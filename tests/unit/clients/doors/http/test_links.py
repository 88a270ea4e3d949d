"""The link behind POSTs: what came before its session was there is handed over, in order, after the hello."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from daemon import protocol
from daemon.clients.doors.http.replies import ExchangeLink
from daemon.errors import ConnectionLost
from daemon.wire import envelope
from daemon.wire.outbox import Outbox

if TYPE_CHECKING:
    from daemon.clients.doors.http.replies import PostReply
    from daemon.wire.envelope import Envelope
    from daemon.wire.frames import Line


class Noting:
    """A receiver that notes what it is handed."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_lines(self, lines: list[Line]) -> None:
        self.said += [str(envelope.decode(line).method) for line in lines]

    def on_oversized(self, head: bytes) -> None:
        raise AssertionError(head)

    def on_message(self, message: Envelope, line: Line) -> None:
        self.said.append(str(message.method))


async def test_what_is_posted_is_handed_over_after_the_hello(autojump_clock: trio.testing.MockClock) -> None:
    link: ExchangeLink[PostReply] = ExchangeLink(Outbox(), {"profile": "reader"})
    noting = Noting()
    ends: list[str] = []

    async def run() -> None:
        with pytest.raises(ConnectionLost) as ended:
            await link.run(noting)
        ends.append(str(ended.value))

    early = b'{"jsonrpc":"2.0","method":"early"}'
    link.post(envelope.decode(early), early)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        late = b'{"jsonrpc":"2.0","method":"late"}'
        link.post(envelope.decode(late), late)
        assert noting.said == [protocol.HELLO, "early", "late"]
        assert (link.turns, link.is_over) == (2, False)
        link.end()
    assert link.is_over
    assert ends == ["its session has ended"]
