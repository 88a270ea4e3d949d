"""What clients and operators do in a case: more words that the tables of cases are written in."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs
import trio

from tests.faults.arena import BOUND, Client, Pending, code_of
from tests.faults.case import Play
from tests.faults.stage import resident_kib
from tests.faults.wire import HARMLESS, Toxic
from tests.waiting import background, in_time

STANDSTILL_SECONDS = 0.3
"""A connection of which nothing is taken for so long is taken for one that is not read from."""

MEMORY_KIB = 48 * 1024
"""What a client that never reads may cost for a while: its queue, and what the allocator keeps of it."""

# --- what operators do ----------------------------------------------------------------------------------------


@attrs.frozen
class Operator:
    """A word of an operator's, and whether it is obeyed (`error`: a pattern of why not)."""

    method: str
    params: Mapping[str, Any] = attrs.field(factory=dict)
    """`{name}` stands for the server."""
    error: str = ""

    async def take(self, play: Play) -> None:
        """Ask and wait."""
        params = json.loads(json.dumps(dict(self.params)).replace("{name}", play.name))
        answer = await (await play.operator.ask(self.method, params)).wait()
        assert ("error" in answer) == bool(self.error), answer
        assert re.search(self.error, json.dumps(answer)), answer


@attrs.frozen
class Writes:
    """The configuration's file becomes this text (None: it is gone)."""

    text: str | None
    alone: ClassVar[bool] = True

    async def take(self, play: Play) -> None:
        """Write it."""
        if self.text is None:
            play.arena.daemon.config.unlink()
        else:
            play.arena.write(self.text)


@attrs.frozen
class Reconfigures:
    """Some keys of the server's entry become others."""

    entry: Mapping[str, Any]

    async def take(self, play: Play) -> None:
        """Reload."""
        await play.reconfigure(**self.entry)


@attrs.frozen
class Asks:
    """An operator asks the same so many times, one after the other; no process is started for it."""

    method: str
    times: int
    alone: ClassVar[bool] = True

    async def take(self, play: Play) -> None:
        """Ask and wait."""
        before = play.arena.children()
        for _ in range(self.times):
            answer = await (await play.operator.ask(self.method)).wait()
            assert "result" in answer, answer
        assert play.arena.children() == before


@attrs.frozen
class Floods:
    """An operator asks the same so many times at once; all are answered, or some refused."""

    method: str
    times: int
    refused: bool = False
    alone: ClassVar[bool] = True

    async def take(self, play: Play) -> None:
        """Ask, then wait."""
        operator = await play.visitors.operator()
        asked = [await operator.ask(self.method) for _ in range(self.times)]
        answers = [await pending.wait() for pending in asked]
        assert self.refused or all("result" in answer for answer in answers)
        assert any("result" in answer for answer in answers)
        await operator.close()


# --- what clients do ------------------------------------------------------------------------------------------


@attrs.frozen
class Says:
    """A client of its own says these bytes, and is answered so; then it asks for something ordinary."""

    data: bytes
    answers: Sequence[tuple[str, str]] = ()
    """Id (as JSON) and code of each answer, in any order."""
    cut_off: bool = False
    """It is hung up on instead of being served on."""
    up: Toxic = attrs.field(default=HARMLESS, kw_only=True)
    down: Toxic = attrs.field(default=HARMLESS, kw_only=True)

    async def take(self, play: Play) -> None:
        """Say it and wait."""
        client = await play.visitors.client(self.up, self.down)
        owed = [(client.expects(identity), code) for identity, code in self.answers]
        await client.send(self.data.replace(b"%NAME%", play.name.encode()))
        for pending, code in owed:
            answer = await pending.wait()
            assert code_of(answer) in code.split("|"), (answer, code)
        if self.cut_off:
            await in_time(client.closed.wait(), BOUND)
        else:
            await (await client.ask("ping")).wait()
            await client.close()


@attrs.frozen
class NeverReads:
    """A client asks and asks, and reads nothing: it costs little memory, and others are served."""

    request: bytes
    times: int
    cut_off: bool = attrs.field(default=False, kw_only=True)
    """It is hung up on; otherwise it is read from no more."""
    alone: ClassVar[bool] = True

    async def take(self, play: Play) -> None:
        """Write until that is of no use any more."""
        before = resident_kib(play.arena.pid)
        async with await play.visitors.silent() as stream, background() as nursery:
            sender = _Sender(stream, self.request.replace(b"%NAME%", play.name.encode()))
            nursery.start_soon(sender.run, self.times)
            other = await play.visitors.client()
            while not sender.cut_off and (self.cut_off or sender.moves()):
                await (await other.call(play.name, "echo")).wait()
                await trio.sleep(STANDSTILL_SECONDS / 10)
            await other.close()
        assert sender.cut_off == self.cut_off
        assert resident_kib(play.arena.pid) - before < MEMORY_KIB


class _Sender:
    """Writes to a connection that nobody reads from."""

    def __init__(self, stream: trio.SocketStream, request: bytes) -> None:
        self.cut_off = False
        self._stream = stream
        self._request = request
        self._moved_at = trio.current_time()

    def moves(self) -> bool:
        """Whether anything was taken of late."""
        return trio.current_time() - self._moved_at < STANDSTILL_SECONDS

    async def run(self, times: int) -> None:
        """Ask so often, then ask for as little as possible until the connection ends."""
        try:
            for _ in range(times):
                await self._stream.send_all(self._request)
                self._moved_at = trio.current_time()
            while True:
                await self._stream.send_all(b"\n")
                await trio.sleep(STANDSTILL_SECONDS / 10)
        except trio.BrokenResourceError:
            self.cut_off = True


@attrs.frozen
class Crowd:
    """So many clients at once, each with so many calls to the server, all of id 1 to n."""

    clients: int
    calls: int
    tool: str = "echo"
    args: Mapping[str, Any] = attrs.field(factory=dict)
    code: str = ""
    """What the calls may be answered with; several with `|` between them."""

    async def take(self, play: Play) -> None:
        """All at once."""
        async with trio.open_nursery() as nursery:
            for _ in range(self.clients):
                nursery.start_soon(self._one, play)

    async def _one(self, play: Play) -> None:
        client: Client = await play.visitors.client()
        asked: list[Pending] = [
            await client.call(play.name, self.tool, id_=number, **self.args)
            for number in range(1, self.calls + 1)
        ]
        for pending in asked:
            answer = await pending.wait()
            assert code_of(answer) in self.code.split("|"), answer
        await client.close()


@attrs.frozen
class Connects:
    """So many connections that say nothing, or half a line; all are open at once and then closed."""

    times: int
    data: bytes = b""
    alone: ClassVar[bool] = True

    async def take(self, play: Play) -> None:
        """Come, wait until another one is served, go."""
        streams = [await play.visitors.silent() for _ in range(self.times)]
        try:
            for stream in streams:
                if self.data:
                    await stream.send_all(self.data)
            late = await play.visitors.client()
            await (await late.ask("ping")).wait()
            await late.close()
        finally:
            for stream in streams:
                await trio.aclose_forcefully(stream)


@attrs.frozen
class SameId:
    """A second request under the id of one that is in flight is refused."""

    async def take(self, play: Play) -> None:
        """Ask twice."""
        client = await play.visitors.client()
        before = len(play.taken("tools/call"))
        first = await client.call(play.name, "sleep", id_="twice")
        await play.until(lambda: len(play.taken("tools/call")) > before, "the call has not arrived")
        # The refusal comes under the same id, so it is the first answer.
        await client.call(play.name, "echo", id_="twice")
        assert code_of(await first.wait()) == "-32600"
        await client.close()


@attrs.frozen
class ProgressOf:
    """A call that wants progress gets it, under its own token, and none after its answer."""

    tool: str
    args: Mapping[str, Any]
    times: int
    token: object = "mine"

    async def take(self, play: Play) -> None:
        """Call and count."""
        client = await play.visitors.client()
        pending = await client.call(play.name, self.tool, meta={"progressToken": self.token}, **self.args)
        answer = await pending.wait()
        assert code_of(answer) == "", answer
        told = len(client.notices)
        # Whatever the server had sent before is ahead of this answer.
        await (await client.call(play.name, "echo")).wait()
        assert [note["params"]["progressToken"] for note in client.notices] == [self.token] * self.times
        assert len(client.notices) == told
        await client.close()
