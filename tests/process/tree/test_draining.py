"""A stop lets calls finish for a moment, and answers those that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs
import trio
import trio.testing

from daemon.errors import CallError, UpstreamLost
from daemon.tree.running import DRAIN_SECONDS, drain

if TYPE_CHECKING:
    from daemon.actors.session import Session
    from daemon.upstreams.upstream_access import UpstreamAccess


@attrs.define
class Client:
    in_flight: int = 0
    lost: list[CallError] = attrs.field(factory=list)
    given_back: int = 0

    def give_back(self) -> None:
        self.given_back += 1

    def lose_calls(self, error: CallError) -> None:
        self.lost.append(error)


@attrs.define
class Server:
    is_closed: bool = False

    def close_line(self) -> None:
        self.is_closed = True


def session(client: Client) -> Session:
    return cast("Session", client)


async def test_nobody_is_waited_for_who_has_no_call(autojump_clock: trio.testing.MockClock) -> None:
    await drain([session(Client())], {})
    assert trio.current_time() == 0


async def test_calls_have_a_moment_to_finish(autojump_clock: trio.testing.MockClock) -> None:
    client = Client(in_flight=1)

    async def finish() -> None:
        await trio.sleep(DRAIN_SECONDS / 2)
        client.in_flight = 0

    async with trio.open_nursery() as nursery:
        nursery.start_soon(finish)
        await drain([session(client)], {})
        assert trio.current_time() < DRAIN_SECONDS


async def test_a_call_that_takes_longer_is_answered_and_nothing_is_sent_after_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    client, server = Client(in_flight=1), Server()
    await drain([session(client)], {"s": cast("UpstreamAccess", server)})
    assert trio.current_time() == DRAIN_SECONDS
    assert server.is_closed
    assert isinstance(client.lost[0], UpstreamLost)
