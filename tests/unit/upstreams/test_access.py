"""How long a server is waited for by calls and listings (virtual clock), and what is said if it is down."""

import math
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from daemon.causes import Cause, Reason, Remedy
from daemon.config.tuning import Timeouts
from daemon.facts import ServerStatus
from daemon.states import ServerState
from daemon.supervision.supervisor import Child
from daemon.upstreams.upstream_access import LINE_SECONDS, Waking, outlook, unavailable
from tests.plays import (
    BACKOFF,
    DORMANT,
    HANG,
    LOST,
    QUEUED,
    READY,
    STARTING,
    Actor,
    Play,
    Stage,
    play,
    supervised,
)
from tests.unit.cases import cases

pytestmark = pytest.mark.usefixtures("autojump_clock")

START, WAKE, PROBE = 30.0, 2.0, 3.0
SLOW = play(start=20.0, ready_for=math.inf)


def waking() -> Waking:
    return Waking(Timeouts(wake=WAKE, probe=PROBE), lambda: START)


async def seconds(wait: Callable[[Child], Awaitable[None]], stage: Stage) -> float:
    began = trio.current_time()
    await wait(stage.child)
    return trio.current_time() - began


@pytest.mark.parametrize(
    ("plays", "lazy", "waits", "state"),
    [
        ([SLOW], True, 20.0, READY),
        ([SLOW], False, 20.0, READY),
        ([play(LOST, start=5.0), HANG], False, 5.0, BACKOFF),
        ([HANG], False, PROBE + START, STARTING),
    ],
    ids=["asleep", "starting", "fails", "hangs"],
)
async def test_a_call_waits_for_a_first_start_as_long_as_it_may_take(
    plays: list[Play], waits: float, state: ServerState, *, lazy: bool
) -> None:
    async with supervised(Actor(*plays).spec(lazy=lazy)) as stage:
        await trio.testing.wait_all_tasks_blocked()
        assert (await seconds(waking().for_call, stage), stage.state) == (waits, state)


@pytest.mark.parametrize("first", [play(LOST), play(LOST, ready_for=5.0)], ids=["failed", "was up"])
async def test_a_server_that_went_down_is_waited_for_as_configured(
    first: Callable[..., Awaitable[None]],
) -> None:
    async with supervised(Actor(first, HANG).spec()) as stage:
        await stage.reach(BACKOFF)
        assert await seconds(waking().for_call, stage) == WAKE


async def in_line(stage: Stage, *actors: Actor) -> list[Child]:
    """Children that are called one after the other while another has the place, so that they are in line."""
    await trio.testing.wait_all_tasks_blocked()
    children = []
    for actor in actors:
        children.append(stage.supervisor.add(actor.spec(f"c{len(stage.supervisor.children)}")))
        await trio.testing.wait_all_tasks_blocked()
        children[-1].wake()
    return children


LATE = PROBE + START - 1


@pytest.mark.parametrize(
    ("plays", "waits", "state"),
    [
        ([[SLOW], [play(start=LATE, ready_for=math.inf)]], 20.0 + LATE, READY),
        ([[SLOW], [play(LOST), HANG]], 20.0, BACKOFF),
        ([[HANG]] * 3, LINE_SECONDS, QUEUED),
    ],
    ids=["has its whole time", "fails at once", "a line without an end"],
)
async def test_a_call_waits_in_line_and_then_for_the_start(
    plays: list[list[Play]], waits: float, state: ServerState
) -> None:
    async with supervised(Actor(HANG).spec(), starts=1) as stage:
        *_, last = await in_line(stage, *(Actor(*each) for each in plays))
        await waking().for_call(last)
        assert (last.status.value.state, trio.current_time()) == (state, waits)


async def test_a_hanging_start_costs_those_who_ask_what_there_is_one_wait() -> None:
    async with supervised(Actor(HANG).spec()) as stage:
        wait = waking().for_list
        assert [await seconds(wait, stage) for _ in range(3)] == [WAKE, 0.0, 0.0]


async def test_all_who_ask_at_once_wait_for_the_same_moment() -> None:
    ended: list[float] = []

    async def ask(after: float) -> None:
        await trio.sleep(after)
        await wait(stage.child)
        ended.append(trio.current_time())

    async with supervised(Actor(HANG).spec()) as stage, trio.open_nursery() as nursery:
        wait = waking().for_list
        for after in (0.0, 0.5, 1.5, 5.0):
            nursery.start_soon(ask, after)
    assert sorted(ended) == [WAKE, WAKE, WAKE, 5.0]


async def test_one_that_nobody_else_would_start_is_started_and_waited_for_by_who_asks_first() -> None:
    async with supervised(Actor(HANG).spec(lazy=True)) as stage:
        await stage.reach(DORMANT)
        wait = waking().for_list
        assert [await seconds(wait, stage) for _ in range(3)] == [PROBE + START, 0.0, 0.0]


def test_a_call_that_is_not_sent_is_told_why_since_when_and_when_to_try_again() -> None:
    reason = "exited with status 3"
    status = ServerStatus(
        state=ServerState.BACKOFF, since=5.0, why=Reason(reason, Cause.EXITED), attempt=4, next_retry_at=12.5
    )
    error = unavailable("git", status, 10.0)
    assert error.message == (
        "server git is in backoff: exited with status 3. The call was not sent. The next attempt is in 2.5 s."
        " Try again later, or use another tool."
    )
    assert error.details == {
        "server": "git",
        "state": "backoff",
        "reason": reason,
        "cause": "exited",
        "attempt": 4,
        "nextRetryInMs": 2500,
    }


@cases("state", "hint")
def test_what_to_do_depends_on_how_the_server_is(state: str, hint: str) -> None:
    error = unavailable("git", ServerStatus(state=ServerState(state), since=0.0), 1.0)
    assert f"server git is {state}: not ready yet. The call was not sent." in error.message
    assert hint in error.message
    assert error.details["nextRetryInMs"] is None


@cases("cause", "by_words", "said")
def test_what_is_known_of_the_cause_is_told_and_what_helps(cause: str, said: str, *, by_words: bool) -> None:
    remedy = Remedy("It wants KEY.", "Fix.", by_words=by_words)
    status = ServerStatus(state=ServerState.FAILED, why=Reason("no foo", Cause(cause), {}, remedy))
    error = unavailable("git#3" if cause == Cause.LOGIN_NEEDED else "git", status, 1.0)
    assert said in error.message
    assert (error.details["happened"], error.details["helps"]) == ("It wants KEY.", "Fix.")


def test_who_waits_is_told_how_the_server_is() -> None:
    queued = ServerStatus(state=ServerState.QUEUED, since=0.0, why=Reason("waits for its turn, 3 before it"))
    assert outlook("git", queued) == "server git is queued: waits for its turn, 3 before it"
    assert outlook("git", ServerStatus(state=ServerState.STARTING, since=0.0)) == "server git is starting"
