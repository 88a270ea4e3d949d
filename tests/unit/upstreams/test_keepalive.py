"""Pings, on a clock that leaps: who is silent is given up, who shows any life is not."""

from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest
import trio

from daemon.causes import HEALTHY, Cause, Reason
from daemon.config.tuning import Timeouts
from daemon.errors import UpstreamTimeout
from daemon.model import Era
from daemon.ports import UpstreamConnection
from daemon.upstreams.handshake import Keepalive
from daemon.wire.envelope import RemoteError
from tests.waiting import beside

pytestmark = pytest.mark.usefixtures("autojump_clock")

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


@attrs.define
class Watched:
    """The pings of a server, and what was said of it: when, and by which cause."""

    server: Server
    timeouts: Timeouts = TIMEOUTS
    told: list[tuple[float, Reason]] = attrs.field(factory=list)
    begun: float = attrs.field(factory=trio.current_time)
    pings: Keepalive = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        connection = cast("UpstreamConnection", self.server)
        self.pings = Keepalive(connection, self.timeouts, self.changed)

    def changed(self, problem: Reason) -> None:
        self.told.append((trio.current_time() - self.begun, problem))

    @property
    def causes(self) -> list[tuple[float, Cause | None]]:
        return [(round(at, 3), problem.cause) for at, problem in self.told]

    async def given_up(self, era: Era = Era.HANDSHAKE, within: float = LONG) -> Reason | None:
        """Why; None if it is not, however long that is waited for."""
        with trio.move_on_after(within):
            return await self.pings.run(era)
        return None


@pytest.mark.parametrize(("era", "method"), [(Era.HANDSHAKE, "ping"), (Era.MODERN, "server/discover")])
async def test_who_answers_nothing_is_given_up(era: Era, method: str) -> None:
    it = Watched(Server(lambda _: None))
    assert await it.given_up(era) == Reason(
        "no answer to 3 pings of 10 s", Cause.NOT_ANSWERING, {"count": 3, "seconds": 10.0}
    )
    assert it.server.asked == [method] * 3
    assert trio.current_time() - it.begun == pytest.approx(25 + 3 * 10)


@pytest.mark.parametrize("answer", [{}, RemoteError(-32601, "what is a ping")])
async def test_any_answer_is_a_sign_of_life(answer: object) -> None:
    it = Watched(Server(lambda _: answer))
    assert await it.given_up() is None
    assert len(it.server.asked) == pytest.approx(LONG / TIMEOUTS.ping_interval, rel=0.1)
    assert it.told == []


async def test_missed_pings_in_between_do_not_add_up() -> None:
    assert await Watched(Server(lambda nth: None if nth % 3 else {})).given_up() is None


async def test_calls_in_flight_and_what_is_not_read_are_no_silence() -> None:
    assert await Watched(Server(lambda _: None, in_flight=1)).given_up() is None
    held = Watched(Server(lambda _: None, is_held=True))
    assert await held.given_up() is None
    assert held.told == []


async def test_the_first_unanswered_ping_degrades_and_any_sign_of_life_ends_that() -> None:
    it = Watched(Server(lambda nth: None if nth == 2 else {}))
    assert await it.given_up(within=200) is None
    assert it.causes == [(25 + 25 + 10, Cause.UNANSWERED_PINGS), (60, None)]
    (_, silent), (_, well) = it.told
    assert silent.text == "answers no pings (1 ping so far), and was last heard 35s ago"
    assert silent.data == {"count": 1, "seconds": 35, "calls": 0}
    assert well == HEALTHY
    assert it.pings.unanswered == 0


async def test_what_is_said_of_a_silent_server_is_counted_on() -> None:
    it = Watched(Server(lambda _: None, in_flight=1))
    assert it.pings.problem == HEALTHY
    assert await it.given_up(within=100) is None
    assert it.pings.problem.text == "answers no pings while it works on 1 call, last heard 1m 40s ago"
    assert it.pings.problem.data["seconds"] == 100


async def test_one_that_works_on_a_call_has_two_intervals_before_anything_is_said() -> None:
    it = Watched(Server(lambda _: None, in_flight=1))
    assert await it.given_up(within=1000) is None
    assert it.causes == [(2 * 25, Cause.UNANSWERED_PINGS)]


@pytest.mark.parametrize(("calls", "after", "causes"), [(0, 30, [35]), (1, 62, [50, 70])])
async def test_a_call_that_comes_while_a_ping_is_unanswered_is_no_excuse_and_a_line_of_another_kind_is_one(
    calls: int, after: float, causes: list[float]
) -> None:
    server = Server(lambda _: None, in_flight=calls)
    it = Watched(server)
    async with beside(it.given_up):
        await trio.sleep(after)
        if calls:
            server.heard = trio.current_time()
        server.in_flight = 1
        await trio.sleep(20 if calls else 100)
    assert it.causes == [*zip(causes, (Cause.UNANSWERED_PINGS, None), strict=False)]


async def test_pings_that_may_take_longer_than_the_interval_have_their_time() -> None:
    patient = Timeouts(ping_interval=5.0, ping=20.0, missed_pings=2)
    for in_flight in (0, 1):
        it = Watched(Server(lambda _: None, in_flight=in_flight), patient)
        await it.given_up(within=100)
        assert it.causes == [(5 + 20, Cause.UNANSWERED_PINGS)]


async def test_how_long_an_answer_took_is_kept() -> None:
    it = Watched(Server(lambda _: {}))
    before = it.pings.last_ms
    await it.given_up(within=30)
    assert (before, it.pings.last_ms) == (None, 0.0)
    assert it.pings.silence == pytest.approx(5)
