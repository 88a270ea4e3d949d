"""An answer that takes long becomes a stream, which shows that it is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
import trio.testing

from daemon.clients.doors.http.replies import COMMENT, COMMENT_SECONDS, PostReply
from daemon.wire import envelope
from tests.unit.clients.doors.http.visiting import visiting

if TYPE_CHECKING:
    from daemon.clients.doors.http.exchange import HttpExchange
    from tests.unit.clients.doors.http.visiting import Visit


async def passing(visit: Visit, seconds: float) -> None:
    until = trio.current_time() + seconds
    while trio.current_time() < until:
        await trio.sleep(0.5)
        visit.connection.tick(trio.current_time())
        visit.outbox.flush()


async def test_an_answer_that_takes_long_becomes_a_stream_with_comments(
    autojump_clock: trio.testing.MockClock,
) -> None:
    replies: list[PostReply] = []

    def serve(exchange: HttpExchange) -> None:
        replies.append(PostReply(exchange))

    async with visiting(serve) as visit:
        await visit.client.send("GET", "/")
        await trio.testing.wait_all_tasks_blocked()
        await passing(visit, 2 * COMMENT_SECONDS + 2)
        replies[0].answer(envelope.response(b"1", b"{}"))
        visit.outbox.flush()
        response = await visit.client.response()
    assert response.status == 200
    assert response.body == 2 * COMMENT + b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'


async def test_who_gives_up_ends_the_response_whatever_it_is(autojump_clock: trio.testing.MockClock) -> None:
    replies: list[PostReply] = []

    def serve(exchange: HttpExchange) -> None:
        replies.append(PostReply(exchange))

    with trio.fail_after(100):
        async with visiting(serve) as visit:
            await visit.client.send("GET", "/")
            await trio.testing.wait_all_tasks_blocked()
            replies[0].give_up()
            visit.outbox.flush()
            assert (await visit.client.response()).status == 404
            await visit.client.send("GET", "/")
            await trio.testing.wait_all_tasks_blocked()
            replies[1].notify((b"{}",))
            replies[1].give_up()
            visit.outbox.flush()
            assert (await visit.client.response()).body == b"data: {}\n\n"
