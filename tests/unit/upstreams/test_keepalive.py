"""Pings, on a clock that leaps: who is silent is given up, who shows any life is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest
import trio

from daemon.causes import Cause, Reason
from daemon.config.model import Timeouts
from daemon.errors import UpstreamTimeout
from daemon.model import Era
from daemon.upstreams.keepalive import fallen_silent
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from daemon.ports import UpstreamConnection

TIMEOUTS = Timeouts(ping_interval=25.0, ping=10.0, missed_pings=3)
LONG = 10_000.0


@attrs.define
class Server:
    """Answers its nth ping as `answer` says, or not at all."""

    answer: Callable[[int], object]
    in_flight: int = 0
    is_held: bool = False
    asked: list[str] = attrs.field(factory=list)
    heard: float = attrs.field(factory=trio.current_time)

    @property
    def last_heard(self) -> float:
        return trio.current_time() if self.is_held else self.heard

    async def request(self, method: str, params: dict[str, Any], *, timeout: float) -> bytes:  # noqa: ASYNC109
        self.asked.append(method)
        answer = self.answer(len(self.asked))
        if answer is None:
            await trio.sleep(timeout)
            raise UpstreamTimeout("nothing")
        self.heard = trio.current_time()
        if isinstance(answer, Exception):
            raise answer
        return b"{}"


async def given_up(server: Server, era: Era = Era.HANDSHAKE) -> Reason | None:
    """Why; None if it is not, however long that is waited for."""
    with trio.move_on_after(LONG):
        return await fallen_silent(cast("UpstreamConnection", server), era, TIMEOUTS)
    return None


@pytest.mark.parametrize(("era", "method"), [(Era.HANDSHAKE, "ping"), (Era.MODERN, "server/discover")])
async def test_who_answers_nothing_is_given_up(era: Era, method: str, autojump_clock: MockClock) -> None:
    server = Server(lambda _: None)
    begun = trio.current_time()
    assert await given_up(server, era) == Reason(
        "no answer to 3 pings of 10 s", Cause.NOT_ANSWERING, {"count": 3, "seconds": 10.0}
    )
    assert server.asked == [method] * 3
    assert trio.current_time() - begun == pytest.approx(25 + 3 * 10)


@pytest.mark.parametrize("answer", [{}, RemoteError(-32601, "what is a ping")])
async def test_any_answer_is_a_sign_of_life(answer: object, autojump_clock: MockClock) -> None:
    server = Server(lambda _: answer)
    assert await given_up(server) is None
    assert len(server.asked) == pytest.approx(LONG / TIMEOUTS.ping_interval, rel=0.1)


async def test_missed_pings_in_between_do_not_add_up(autojump_clock: MockClock) -> None:
    assert await given_up(Server(lambda nth: None if nth % 3 else {})) is None


async def test_calls_in_flight_and_what_is_not_read_are_no_silence(autojump_clock: MockClock) -> None:
    assert await given_up(Server(lambda _: None, in_flight=1)) is None
    assert await given_up(Server(lambda _: None, is_held=True)) is None
