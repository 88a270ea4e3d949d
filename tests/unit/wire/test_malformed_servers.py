"""What becomes of a call while its server says what is no JSON-RPC, or only nearly: thousands of inputs."""

from __future__ import annotations

import contextlib

import msgspec
import trio
import trio.testing

from daemon.errors import ConnectionLost
from daemon.wire.frames import LineBuffer
from daemon.wire.outbox import Outbox
from daemon.wire.peer import Peer
from tests.fuzz.listening import expected
from tests.fuzz.mutation import FROM_SERVERS, UID, Malformed, malformed
from tests.fuzz.promises import Said, read
from tests.unit.wire.fakes import RecordingExchange, RecordingHandler, ScriptedLink

INPUTS = 2000
SEED = 6


class Call:
    """A peer with one call in flight, whose server says an input and then the sound answer."""

    def __init__(self, nursery: trio.Nursery) -> None:
        outbox = Outbox()
        self.link = ScriptedLink(outbox)
        self.handler = RecordingHandler()
        self.peer = Peer(self.link, outbox, self.handler, strict=False)
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        with contextlib.suppress(ConnectionLost):
            await self.peer.run()

    def says(self, each: Malformed) -> tuple[str, str]:
        """How the call ended."""
        exchange = RecordingExchange()
        uid = self.peer.requests.open(exchange)
        sound = b'{"jsonrpc":"2.0","id":%d,"result":"sound"}' % uid
        data = each.data.replace(str(UID).encode(), str(uid).encode()) + b"\n" + sound + b"\n"
        buffer = LineBuffer(max_line=1 << 20)
        step = max(1, len(data) // 50)
        for start in range(0, len(data), step):
            self.link.receive(*map(bytes, buffer.feed(data[start : start + step])))
        (ending,) = exchange.endings
        return ending


async def test_a_call_ends_once_with_what_answered_it_whatever_else_its_server_says() -> None:
    async with trio.open_nursery() as nursery:
        call = Call(nursery)
        await trio.testing.wait_all_tasks_blocked()
        for each in malformed(SEED, FROM_SERVERS, INPUTS):
            wanted, _ = expected(each.data)
            how, what = call.says(each)
            assert any(fits(how, what, said, value) for said, value in wanted.answers), each
        assert call.peer.requests.forwarded == 0
        nursery.cancel_scope.cancel()


def fits(how: str, what: str, said: Said, value: object) -> bool:
    match said:
        case Said.RESULT:
            return how == "answered" and read(what) == value
        case Said.ERROR:
            return how == "refused"
        case Said.TAKEN:
            return (how, what) == ("answered", '"sound"')
        case _:
            return True


async def test_everything_that_a_server_is_told_is_json(nursery: trio.Nursery) -> None:
    call = Call(nursery)
    await trio.testing.wait_all_tasks_blocked()
    for each in malformed(SEED + 1, FROM_SERVERS, 300):
        call.says(each)
    for request_id, *_ in call.handler.requests:
        call.peer.answer(request_id, b"{}")
    call.link.flush()
    assert call.link.sent
    for line in call.link.sent:
        assert msgspec.json.decode(line, type=dict[str, msgspec.Raw]).keys() == {"jsonrpc", "id", "result"}
