"""What clients and operators do in a case: more words that the tables of cases are written in."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from tests.faults.arena import BOUND, Client, Pending, code_of
from tests.faults.case import NOTHING, Play, alone
from tests.faults.stage import resident_kib
from tests.faults.wire import HARMLESS, Toxic
from tests.waiting import background, in_time

STANDSTILL_SECONDS = 0.3
"""A connection of which nothing is taken for so long is taken for one that is not read from."""

MEMORY_KIB = 48 * 1024
"""What a client that never reads may cost for a while: its queue, and what the allocator keeps of it."""

# --- what operators do ----------------------------------------------------------------------------------------


async def operator(play: Play, *, method: str, params: Mapping[str, Any] = NOTHING, error: str = "") -> None:
    """A word of an operator's, and whether it is obeyed (`error`: a pattern of why not).

    `params`: `{name}` stands for the server.
    """
    said = json.loads(json.dumps(dict(params)).replace("{name}", play.name))
    answer = await (await play.operator.ask(method, said)).wait()
    assert ("error" in answer) == bool(error), answer
    assert re.search(error, json.dumps(answer)), answer


@alone
async def writes(play: Play, *, text: str | None) -> None:
    """The configuration's file becomes this text (None: it is gone)."""
    if text is None:
        play.arena.daemon.config.unlink()
    else:
        play.arena.write(text)


async def reconfigures(play: Play, *, entry: Mapping[str, Any]) -> None:
    """Some keys of the server's entry become others."""
    await play.reconfigure(**entry)


@alone
async def asks(play: Play, *, method: str, times: int) -> None:
    """An operator asks the same so many times, one after the other; no process is started for it."""
    before = play.arena.children()
    for _ in range(times):
        answer = await (await play.operator.ask(method)).wait()
        assert "result" in answer, answer
    assert play.arena.children() == before


@alone
async def floods(play: Play, *, method: str, times: int, refused: bool = False) -> None:
    """An operator asks the same so many times at once; all are answered, or some refused."""
    operator = await play.visitors.operator()
    asked = [await operator.ask(method) for _ in range(times)]
    answers = [await pending.wait() for pending in asked]
    assert refused or all("result" in answer for answer in answers)
    assert any("result" in answer for answer in answers)
    await operator.close()


# --- what clients do ------------------------------------------------------------------------------------------


async def says(
    play: Play,
    *,
    data: bytes,
    answers: Sequence[tuple[str, str]] = (),
    cut_off: bool = False,
    up: Toxic = HARMLESS,
    down: Toxic = HARMLESS,
) -> None:
    """A client of its own says these bytes, and is answered so; then it asks for something ordinary.

    `answers`: id (as JSON) and code of each answer, in any order.
    `cut_off`: it is hung up on instead of being served on.
    """
    client = await play.visitors.client(up, down)
    owed = [(client.expects(identity), code) for identity, code in answers]
    await client.send(data.replace(b"%NAME%", play.name.encode()))
    for pending, code in owed:
        answer = await pending.wait()
        assert code_of(answer) in code.split("|"), (answer, code)
    if cut_off:
        await in_time(client.closed.wait(), BOUND)
    else:
        await (await client.ask("ping")).wait()
        await client.close()


@alone
async def never_reads(play: Play, *, request: bytes, times: int, cut_off: bool = False) -> None:
    """A client asks and asks, and reads nothing: it costs little memory, and others are served.

    `cut_off`: it is hung up on; otherwise it is read from no more.
    """
    before = resident_kib(play.arena.pid)
    async with await play.visitors.silent() as stream, background() as nursery:
        sender = _Sender(stream, request.replace(b"%NAME%", play.name.encode()))
        nursery.start_soon(sender.run, times)
        other = await play.visitors.client()
        while not sender.cut_off and (cut_off or sender.moves()):
            await (await other.call(play.name, "echo")).wait()
            await trio.sleep(STANDSTILL_SECONDS / 10)
        await other.close()
    assert sender.cut_off == cut_off
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


async def crowd(
    play: Play,
    *,
    clients: int,
    calls: int,
    tool: str = "echo",
    args: Mapping[str, Any] = NOTHING,
    code: str = "",
) -> None:
    """So many clients at once, each with so many calls to the server, all of id 1 to n.

    `code`: what the calls may be answered with; several with `|` between them.
    """

    async def one() -> None:
        client: Client = await play.visitors.client()
        asked: list[Pending] = [
            await client.call(play.name, tool, id_=number, **args) for number in range(1, calls + 1)
        ]
        for pending in asked:
            answer = await pending.wait()
            assert code_of(answer) in code.split("|"), answer
        await client.close()

    async with trio.open_nursery() as nursery:
        for _ in range(clients):
            nursery.start_soon(one)


@alone
async def connects(play: Play, *, times: int, data: bytes = b"") -> None:
    """So many connections that say nothing, or half a line; all are open at once and then closed."""
    streams = [await play.visitors.silent() for _ in range(times)]
    try:
        for stream in streams:
            if data:
                await stream.send_all(data)
        late = await play.visitors.client()
        await (await late.ask("ping")).wait()
        await late.close()
    finally:
        for stream in streams:
            await trio.aclose_forcefully(stream)


async def same_id(play: Play) -> None:
    """A second request under the id of one that is in flight is refused."""
    client = await play.visitors.client()
    before = len(play.taken("tools/call"))
    first = await client.call(play.name, "sleep", id_="twice")
    await play.until(lambda: len(play.taken("tools/call")) > before, "the call has not arrived")
    # The refusal comes under the same id, so it is the first answer.
    await client.call(play.name, "echo", id_="twice")
    assert code_of(await first.wait()) == "-32600"
    await client.close()


async def progress_of(
    play: Play, *, tool: str, args: Mapping[str, Any], times: int, token: object = "mine"
) -> None:
    """A call that wants progress gets it, under its own token, and none after its answer."""
    client = await play.visitors.client()
    pending = await client.call(play.name, tool, meta={"progressToken": token}, **args)
    answer = await pending.wait()
    assert code_of(answer) == "", answer
    told = len(client.notices)
    # Whatever the server had sent before is ahead of this answer.
    await (await client.call(play.name, "echo")).wait()
    assert [note["params"]["progressToken"] for note in client.notices] == [token] * times
    assert len(client.notices) == told
    await client.close()
