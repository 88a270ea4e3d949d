"""What becomes of a call while its server says what is not JSON-RPC, or only nearly: thousands of inputs."""

import contextlib

import pytest
import trio
import trio.testing

from daemon.errors import ConnectionLost
from daemon.wire.envelope import LineBuffer
from daemon.wire.outbox import Outbox
from daemon.wire.requests import Peer
from tests.fuzz.listening import expected
from tests.fuzz.mutation import FROM_SERVERS, UID, Malformed, malformed
from tests.fuzz.promises import Said, read
from tests.pairwise import at_night
from tests.unit.wire.fakes import RecordingExchange, RecordingHandler, ScriptedLink
from tests.waiting import background

INPUTS = at_night([400, 2000], 400)
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


@pytest.mark.parametrize("inputs", INPUTS)
async def test_a_call_ends_once_with_what_answered_it_whatever_else_its_server_says(inputs: int) -> None:
    async with background() as nursery:
        call = Call(nursery)
        await trio.testing.wait_all_tasks_blocked()
        for each in malformed(SEED, FROM_SERVERS, inputs):
            wanted, _ = expected(each.data)
            how, what = call.says(each)
            assert any(fits(how, what, said, value) for said, value in wanted.answers), each
        assert call.peer.requests.forwarded == 0


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
