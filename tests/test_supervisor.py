"""The supervisor in virtual time: hours of crashes and restarts in milliseconds."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from loguru import logger

from daemon.config.tuning import Restart, RestartType
from daemon.errors import CannotStart, ConnectionLost, NeedsAuth, StartTimeout
from daemon.facts import ServerStatus
from daemon.states import SERVING, ServerState, move
from daemon.supervisor import START_SLOT_SECONDS, Child, ChildSpec, Lifecycle, Supervisor

Play = Callable[[Lifecycle], Awaitable[None]]
DAY = 24 * 3600.0
LOST = ConnectionLost("it hung up")
BACKOFF, CRASHLOOP, DORMANT, FAILED, NEEDS_AUTH, READY, STARTING, STOPPED, STOPPING = (
    ServerState(word)
    for word in "backoff crashloop dormant failed needs_auth ready starting stopped stopping".split()  # noqa: SIM905
)


def play(error: BaseException | None = None, *, start: float = 0.0, ready_for: float | None = None) -> Play:
    """One run: takes `start` seconds, is ready for some, then ends."""

    async def run(life: Lifecycle) -> None:
        await trio.sleep(start)
        if ready_for is not None:
            life.ready()
            await trio.sleep(ready_for)
        if error is not None:
            raise error

    return run


FOREVER = play(ready_for=float("inf"))
HANG = play(start=float("inf"))


class Actor:
    """A child's body that plays its plays in turn, the last one for ever, and takes time to clean up."""

    def __init__(self, *plays: Play, cleanup: float = 0.0) -> None:
        self.starts: list[float] = []
        self.incarnations: list[int] = []
        self.live = 0
        self.most_live = 0
        self._plays = plays
        self._cleanup = cleanup

    async def run(self, life: Lifecycle) -> None:
        self.starts.append(trio.current_time())
        self.incarnations.append(life.incarnation)
        self.live += 1
        self.most_live = max(self.live, self.most_live)
        try:
            await self._plays[min(len(self.starts), len(self._plays)) - 1](life)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self._cleanup)
            self.live -= 1

    @property
    def gaps(self) -> list[float]:
        """Seconds between starts."""
        return [later - earlier for earlier, later in pairwise(self.starts)]

    def spec(self, name: str = "a", *, lazy: bool = False, **policy: Any) -> ChildSpec:
        return ChildSpec(name=name, run=self.run, policy=Restart(**policy), lazy=lazy)


@attrs.define
class Stage:
    """A supervisor at work, and everything it ever said."""

    supervisor: Supervisor
    history: list[tuple[str, ServerStatus]]

    @property
    def child(self) -> Child:
        return next(iter(self.supervisor.children.values()))

    @property
    def state(self) -> ServerState:
        return self.child.status.value.state

    def states(self, name: str = "a") -> list[ServerState]:
        """The states that a child went through, each once."""
        told = [status.state for who, status in self.history if who == name]
        return [state for i, state in enumerate(told) if i == 0 or told[i - 1] is not state]

    async def reach(self, state: ServerState, *, within: float = 1000.0) -> ServerStatus:
        with trio.fail_after(within):
            return await self.child.status.wait_until(lambda status: status.state is state)


@asynccontextmanager
async def supervised(
    *specs: ChildSpec, starts: int = 4, rng: Callable[[], float] = lambda: 0.0
) -> AsyncIterator[Stage]:
    history: list[tuple[str, ServerStatus]] = []
    supervisor = Supervisor(
        specs,
        starts=starts,
        on_status=lambda name, status: history.append((name, status)),
        rng=rng,
        wall=trio.current_time,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        yield Stage(supervisor, history)
        nursery.cancel_scope.cancel()
    assert all(child.status.value.state is STOPPED for child in supervisor.children.values())


# --- when it is started again -------------------------------------------------------------------------------

ENDINGS: dict[str, tuple[BaseException | None, set[RestartType]]] = {
    "it returns": (None, {RestartType.PERMANENT}),
    "it exits with status 0": (ConnectionLost("bye", normal=True), {RestartType.PERMANENT}),
    "it crashes": (LOST, {RestartType.PERMANENT, RestartType.TRANSIENT}),
    "it never came up": (StartTimeout("no answer"), {RestartType.PERMANENT, RestartType.TRANSIENT}),
    "a bug of ours": (KeyError("bug"), {RestartType.PERMANENT, RestartType.TRANSIENT}),
    "it cannot start": (CannotStart("no such command"), {RestartType.PERMANENT, RestartType.TRANSIENT}),
    "it wants credentials": (NeedsAuth("401"), {RestartType.PERMANENT, RestartType.TRANSIENT}),
}


@pytest.mark.parametrize("restart_type", RestartType)
@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_restart_type_and_the_ending_decide_about_a_restart(
    restart_type: RestartType, ending: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Every cell of OTP's table."""
    error, restarted = ENDINGS[ending]
    actor = Actor(play(error, ready_for=1.0), FOREVER)
    async with supervised(actor.spec(type=restart_type)) as stage:
        await trio.sleep(400)
        assert len(actor.starts) == (2 if restart_type in restarted else 1)
        assert stage.state is (READY if restart_type in restarted else STOPPED)


@pytest.mark.parametrize("restart_type", RestartType)
async def test_an_operator_restarts_whatever_the_restart_type(
    restart_type: RestartType, autojump_clock: trio.testing.MockClock
) -> None:
    actor = Actor(FOREVER)
    async with supervised(actor.spec(type=restart_type)) as stage:
        await stage.reach(READY)
        stage.child.restart()
        await stage.reach(BACKOFF)
        await stage.reach(READY)
        assert actor.incarnations == [1, 2]


async def test_a_child_that_is_not_restarted_says_why_it_stopped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with supervised(Actor(play(LOST)).spec(type="temporary")) as stage:
        await stage.reach(STARTING)
        assert (await stage.reach(STOPPED)).reason == "it hung up"


async def test_states_are_told_in_order(autojump_clock: trio.testing.MockClock) -> None:
    actor = Actor(play(LOST), play(LOST, ready_for=5.0), play(CannotStart("gone")), FOREVER)
    async with supervised(actor.spec()) as stage:
        await trio.sleep(400)
    assert stage.states() == [
        *(STARTING, BACKOFF, STARTING, READY, BACKOFF, STARTING, FAILED, STARTING, READY),
        *(STOPPING, STOPPED),
    ]
    told = [status.state for _, status in stage.history]
    for before, after in pairwise(told):
        assert before is after or move(before, after)


async def test_a_status_tells_attempt_reason_retry_and_incarnation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with supervised(Actor(play(LOST, start=3.0)).spec()) as stage:
        status = await stage.reach(BACKOFF)
        assert status == ServerStatus(
            state=BACKOFF, reason="it hung up", since=3.0, attempt=1, next_retry_at=3.5, incarnation=1
        )
        await stage.reach(STARTING)
        again = await stage.reach(BACKOFF)
        assert (again.attempt, again.incarnation, again.restarts) == (2, 2, 1)


async def test_every_start_has_a_new_incarnation(autojump_clock: trio.testing.MockClock) -> None:
    actor = Actor(play(LOST))
    async with supervised(actor.spec()):
        await trio.sleep(1000)
    assert actor.incarnations == list(range(1, len(actor.starts) + 1))
    assert actor.most_live == 1


async def test_the_end_of_a_run_is_told_before_its_clean_up(autojump_clock: trio.testing.MockClock) -> None:
    async def run(life: Lifecycle) -> None:
        life.ready()
        life.ending("it hung up")
        raise LOST

    actor = Actor(run, cleanup=4.0)
    async with supervised(actor.spec()) as stage:
        status = await stage.reach(BACKOFF)
        assert (trio.current_time(), actor.live, status.next_retry_at) == (0.0, 1, None)
        await stage.reach(STARTING)
        await trio.testing.wait_all_tasks_blocked()
        assert actor.starts == [0.0, 4.5]


# --- how soon -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.5), (0.5, 0.75), (0.999, 0.9995)])
async def test_delays_double_with_equal_jitter_and_a_floor(
    jitter: float, share: float, autojump_clock: trio.testing.MockClock
) -> None:
    actor = Actor(play(LOST))
    async with supervised(actor.spec(), rng=lambda: jitter):
        await trio.sleep(40)
    expected = [max(0.5, share * nominal) for nominal in (1, 2, 4, 8, 16)]
    assert actor.gaps[:5] == pytest.approx(expected)


@settings(max_examples=10, deadline=None)
@given(draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=30, max_size=30), cap=st.floats(1, 100))
def test_no_delay_leaves_the_bounds_of_equal_jitter(draws: Sequence[float], cap: float) -> None:
    """Half of the nominal delay is certain, and nothing exceeds the cap, whatever the dice say."""
    numbers = iter(draws)
    actor = Actor(play(LOST))

    async def main() -> None:
        async with supervised(actor.spec(cap=cap), rng=lambda: next(numbers, 0.5)):
            await trio.sleep(500)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    for number, gap in enumerate(actor.gaps):
        nominal = min(cap, 2.0**number)
        assert min(nominal, cap) / 2 * 0.999 <= gap <= cap * 1.001 or number >= 5
        assert 0.499 <= gap <= cap * 1.001


@pytest.mark.parametrize(("healthy", "gap"), [(10.0, 10.0), (9.9, 10.4)])
async def test_a_run_of_ten_healthy_seconds_earns_one_immediate_restart(
    healthy: float, gap: float, autojump_clock: trio.testing.MockClock
) -> None:
    actor = Actor(play(LOST, ready_for=healthy))
    async with supervised(actor.spec()):
        await trio.sleep(60)
    assert actor.gaps[0] == pytest.approx(gap)
    assert actor.gaps[1] > 10.4  # only the first one


async def test_only_health_counts_for_the_immediate_restart_not_a_long_start(
    autojump_clock: trio.testing.MockClock,
) -> None:
    actor = Actor(play(LOST, start=100.0))
    async with supervised(actor.spec()):
        await trio.sleep(150)
    assert actor.gaps == [100.5]


@pytest.mark.parametrize(("healthy", "attempt"), [(120.0, 1), (119.0, 5)])
async def test_two_healthy_minutes_forget_the_failures(
    healthy: float, attempt: int, autojump_clock: trio.testing.MockClock
) -> None:
    actor = Actor(play(LOST), play(LOST), play(LOST), play(LOST, ready_for=healthy), play(LOST, start=0.001))
    attempts: list[int] = []
    async with supervised(actor.spec()) as stage:
        with trio.fail_after(200):
            while len(actor.starts) < 5:
                await stage.child.status.wait_changed(stage.child.status.value)
        with trio.fail_after(100):
            status = await stage.child.status.wait_until(lambda status: status.state is BACKOFF)
        attempts.append(status.attempt)
    assert attempts == [attempt]


async def test_more_than_five_failures_within_a_minute_are_a_crash_loop(
    autojump_clock: trio.testing.MockClock,
) -> None:
    actor = Actor(play(LOST))
    async with supervised(actor.spec()) as stage:
        await stage.reach(CRASHLOOP)
        assert len(actor.starts) == 6
        assert stage.child.status.value.next_retry_at == pytest.approx(trio.current_time() + 30)
        assert BACKOFF in stage.states()


async def test_a_crash_loop_is_called_one_until_the_server_has_been_healthy(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It is retried at the cap, so "five within a minute" alone would forget it with the next failure."""
    async with supervised(Actor(play(LOST)).spec()) as stage:
        await stage.reach(CRASHLOOP)
        await trio.sleep(3600)
    waits = [status.state for _, status in stage.history if status.next_retry_at is not None]
    assert set(waits[waits.index(CRASHLOOP) :]) == {CRASHLOOP}


async def test_a_failing_child_is_retried_for_ever_at_the_cap(autojump_clock: trio.testing.MockClock) -> None:
    actor = Actor(play(LOST))
    async with supervised(actor.spec(), rng=lambda: 0.5) as stage:
        await trio.sleep(DAY)
        assert 0.9 * DAY / 45 <= len(actor.starts) <= DAY / 45 + 10
        assert stage.state in {BACKOFF, CRASHLOOP}
        assert max(actor.gaps) <= 60


@pytest.mark.parametrize(
    "policy", [{}, {"base": 0.1, "floor": 0.0, "period": 0.01}, {"intensity": 1, "period": 1.0}]
)
async def test_delays_grow_to_the_cap_whatever_the_policy(
    policy: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    """Also when the first restart of the streak was free."""
    actor = Actor(play(LOST, ready_for=10.0), play(LOST))
    async with supervised(actor.spec(**policy), rng=lambda: 0.9999999):
        await trio.sleep(3600)
    assert actor.gaps[-1] == pytest.approx(60, rel=0.01)


@pytest.mark.parametrize(
    ("error", "state"), [(CannotStart("no such command"), FAILED), (NeedsAuth("HTTP 401"), NEEDS_AUTH)]
)
async def test_what_trying_soon_cannot_help_is_parked_for_five_minutes(
    error: Exception, state: ServerState, autojump_clock: trio.testing.MockClock
) -> None:
    actor = Actor(play(error))
    async with supervised(actor.spec()) as stage:
        await trio.sleep(299)
        assert (stage.state, actor.starts) == (state, [0.0])
        assert stage.child.status.value.next_retry_at == 300.0
        stage.child.wake()
        await trio.sleep(0.5)
        assert actor.starts == [0.0]
        await trio.sleep(1)
        assert actor.starts == [0.0, 300.0]


# --- cutting a wait short -----------------------------------------------------------------------------------


async def test_many_calls_wake_a_child_once(autojump_clock: trio.testing.MockClock) -> None:
    actor = Actor(play(LOST), play(LOST), play(LOST), play(LOST), play(start=0.5, ready_for=DAY))
    async with supervised(actor.spec()) as stage:
        await trio.sleep(6.5)  # within the fourth delay, of 4 s
        assert len(actor.starts) == 4
        for _ in range(100):
            stage.child.wake()
            await trio.sleep(0.001)
        assert actor.starts[4:] == [6.5]
        assert await stage.child.wait_settled()


async def test_calls_wake_a_child_at_most_once_per_second(autojump_clock: trio.testing.MockClock) -> None:
    actor = Actor(play(LOST))
    async with supervised(actor.spec(base=60.0)) as stage:
        for _ in range(100):
            await trio.sleep(0.1)
            stage.child.wake()
    assert 9 <= len(actor.starts) <= 11
    assert min(actor.gaps) >= 1.0


async def test_a_crash_loop_can_be_woken(autojump_clock: trio.testing.MockClock) -> None:
    actor = Actor(*[play(LOST)] * 6, FOREVER)
    async with supervised(actor.spec()) as stage:
        await stage.reach(CRASHLOOP)
        await trio.sleep(1)
        stage.child.wake()
        assert await stage.child.wait_settled()
        assert actor.gaps[-1] == pytest.approx(1.0)


async def test_whoever_waits_learns_that_the_attempt_under_way_failed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    actor = Actor(play(LOST), play(LOST, start=3.0))
    async with supervised(actor.spec(base=60.0)) as stage:
        await trio.sleep(10)
        stage.child.wake()
        with trio.fail_after(5):
            assert not await stage.child.wait_settled()
        assert trio.current_time() == 13.0


async def test_a_call_during_the_clean_up_makes_the_next_start_immediate(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def run(life: Lifecycle) -> None:
        life.ready()
        await trio.sleep(2)
        life.ending("it hung up")
        raise LOST

    actor = Actor(run, cleanup=3.0)
    async with supervised(actor.spec(base=60.0)) as stage:
        await trio.sleep(3)
        stage.child.wake()
        await trio.sleep(3)
    assert actor.starts == [0.0, 5.0]


async def _in_state(stage: Stage, state: ServerState) -> None:
    await stage.child.status.wait_until(
        lambda status: status.state is state and (state is not BACKOFF or status.next_retry_at is not None)
    )


def _degraded() -> Play:
    async def run(life: Lifecycle) -> None:
        life.degraded("half of it")
        await trio.sleep_forever()

    return run


BEFORE_RESTART: dict[ServerState, tuple[list[Play], dict[str, Any]]] = {
    STARTING: ([HANG], {}),
    READY: ([FOREVER], {}),
    ServerState.DEGRADED: ([_degraded()], {}),
    BACKOFF: ([play(LOST)], {"base": 60.0}),
    CRASHLOOP: ([play(LOST)] * 6, {}),
    FAILED: ([play(CannotStart("no such command"))], {}),
    NEEDS_AUTH: ([play(NeedsAuth("401"))], {}),
    DORMANT: ([], {"lazy": True}),
    STOPPED: ([play()], {"type": "temporary"}),
}


@pytest.mark.parametrize("state", BEFORE_RESTART)
async def test_an_operator_can_restart_from_every_state(
    state: ServerState, autojump_clock: trio.testing.MockClock
) -> None:
    plays, options = BEFORE_RESTART[state]
    actor = Actor(*plays, play(start=0.1, ready_for=DAY))
    async with supervised(actor.spec(**options)) as stage:
        with trio.fail_after(100):
            await trio.testing.wait_all_tasks_blocked()
            await _in_state(stage, state)
        before = trio.current_time()
        stage.child.restart()
        with trio.fail_after(1):
            await trio.testing.wait_all_tasks_blocked()
            await stage.reach(READY)
        assert trio.current_time() - before == pytest.approx(0.1)
        assert stage.child.status.value.attempt == 0
        assert len(actor.starts) == len(plays) + 1
        assert actor.live == 1


async def test_an_operators_restart_forgets_the_failures(autojump_clock: trio.testing.MockClock) -> None:
    actor = Actor(play(LOST))
    async with supervised(actor.spec()) as stage:
        await stage.reach(CRASHLOOP)
        await trio.sleep(5)
        stage.child.restart()
        await stage.reach(BACKOFF)
        await trio.sleep(1)
        assert actor.gaps[-1] == pytest.approx(0.5)


async def test_a_restart_that_meets_a_child_just_getting_ready_is_no_fault_of_ours(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The child's task may have one more step to go before its cancellation reaches it."""
    up = trio.Event()
    faults: list[str] = []

    async def run(life: Lifecycle) -> None:
        await up.wait()
        life.ready()
        await trio.sleep_forever()

    actor = Actor(run)
    sink = logger.add(faults.append, level="ERROR")
    try:
        async with supervised(actor.spec()) as stage:
            await trio.testing.wait_all_tasks_blocked()
            up.set()
            stage.child.restart()
            with trio.fail_after(5):
                await trio.testing.wait_all_tasks_blocked()
                await stage.reach(READY)
            assert actor.incarnations == [1, 2]
    finally:
        logger.remove(sink)
    assert faults == []


# --- many -------------------------------------------------------------------------------------------------


async def test_at_most_so_many_start_at_once(autojump_clock: trio.testing.MockClock) -> None:
    starting = most = 0

    async def run(life: Lifecycle) -> None:
        nonlocal starting, most
        starting += 1
        most = max(most, starting)
        await trio.sleep(1)
        starting -= 1
        life.ready()
        await trio.sleep_forever()

    specs = [ChildSpec(name=f"s{i}", run=run, policy=Restart()) for i in range(50)]
    async with supervised(*specs, starts=4) as stage:
        with trio.fail_after(100):
            for child in stage.supervisor.children.values():
                await child.status.wait_until(lambda status: status.state is READY)
        assert most == 4
        assert trio.current_time() == 13.0  # 50 in fours


async def test_a_hanging_start_gives_its_place_away_and_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    hanging = Actor(play(start=50.0, ready_for=DAY))
    others = [Actor(FOREVER) for _ in range(49)]
    specs = [hanging.spec("hanging"), *(actor.spec(f"s{i}") for i, actor in enumerate(others))]
    async with supervised(*specs, starts=1) as stage:
        await trio.sleep(START_SLOT_SECONDS + 0.1)
        assert all(len(actor.starts) == 1 for actor in others)
        assert stage.supervisor.children["hanging"].status.value.state is STARTING
        await trio.sleep(50)
        assert stage.supervisor.children["hanging"].status.value.state is READY


async def test_a_failed_start_gives_its_place_back(autojump_clock: trio.testing.MockClock) -> None:
    failing = [Actor(play(LOST)).spec(f"f{i}") for i in range(20)]
    good = Actor(FOREVER)
    async with supervised(*failing, good.spec("good"), starts=1):
        await trio.sleep(100)
        assert len(good.starts) == 1


async def _group_with_cancelled(life: Lifecycle) -> None:
    with trio.CancelScope() as inner:
        inner.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            held = cancelled
    raise BaseExceptionGroup("both", [held, ValueError("bug")])


def _recurse(life: Lifecycle) -> Any:
    return _recurse(life)


async def _recursion(life: Lifecycle) -> None:
    await trio.lowlevel.checkpoint()
    _recurse(life)


BUGS: dict[str, Play] = {
    "Exception": play(Exception("bug")),
    "ExceptionGroup": play(ExceptionGroup("bugs", [ValueError("one"), KeyError("two")])),
    "nested group": play(ExceptionGroup("bugs", [ExceptionGroup("more", [OSError("one")])])),
    "RecursionError": _recursion,
    "KeyError": play(KeyError("bug")),
    "UnicodeDecodeError": play(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bug")),
    "MemoryError": play(MemoryError()),
    "StopAsyncIteration": play(StopAsyncIteration()),
    "AssertionError": play(AssertionError("bug")),
    "BrokenResourceError": play(trio.BrokenResourceError()),
    "TooSlowError": play(trio.TooSlowError()),
    "group of ours": play(ExceptionGroup("lost", [LOST])),
    "group with Cancelled": _group_with_cancelled,
}


@pytest.mark.parametrize("bug", BUGS)
async def test_no_exception_of_one_child_reaches_its_siblings(
    bug: str, autojump_clock: trio.testing.MockClock
) -> None:
    broken, siblings = Actor(BUGS[bug]), [Actor(FOREVER) for _ in range(5)]
    specs = [actor.spec(f"s{i}") for i, actor in enumerate(siblings)]
    async with supervised(broken.spec("broken"), *specs):
        await trio.sleep(600)
        assert len(broken.starts) > 5
        assert [actor.incarnations for actor in siblings] == [[1]] * 5
        assert all(actor.live == 1 for actor in siblings)


async def test_a_bug_of_ours_is_named_in_the_reason(autojump_clock: trio.testing.MockClock) -> None:
    async with supervised(Actor(play(KeyError("bug"))).spec()) as stage:
        assert "mcpd's own fault: KeyError" in (await stage.reach(BACKOFF)).reason


async def test_a_group_is_told_by_the_error_that_is_ours(autojump_clock: trio.testing.MockClock) -> None:
    group = ExceptionGroup("two", [ValueError("noise"), ExceptionGroup("inner", [CannotStart("gone")])])
    async with supervised(Actor(play(group)).spec()) as stage:
        assert (await stage.reach(FAILED)).reason == "gone"


async def test_two_children_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two children are named 'a'"):
        Supervisor(
            [Actor().spec(), Actor().spec()],
            starts=1,
            on_status=lambda *_: None,
            rng=lambda: 0.0,
            wall=lambda: 0.0,
        )


# --- lazy, and the end --------------------------------------------------------------------------------------


async def test_a_lazy_child_sleeps_until_it_is_called(autojump_clock: trio.testing.MockClock) -> None:
    actor = Actor(FOREVER)
    async with supervised(actor.spec(lazy=True)) as stage:
        await trio.sleep(DAY)
        assert (stage.state, actor.starts) == (DORMANT, [])
        stage.child.wake()
        assert await stage.child.wait_settled()
        assert actor.starts == [DAY]


async def test_a_lazy_child_that_crashed_is_restarted_like_any_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    actor = Actor(play(LOST), FOREVER)
    async with supervised(actor.spec(lazy=True)) as stage:
        await stage.reach(DORMANT)
        stage.child.wake()
        await stage.reach(READY)
        assert len(actor.starts) == 2


@pytest.mark.parametrize("moment", [0.0, 0.3, 1.0, 1.5, 2.0, 2.5, 3.0, 3.2, 3.7, 4.6, 5.5, 6.2])
async def test_a_cancel_at_any_moment_leaves_nothing(
    moment: float, autojump_clock: trio.testing.MockClock
) -> None:
    """One round is 1 s of starting, 1 s of service, 1 s of cleaning up and 0.5 s of backoff."""
    actors = [Actor(play(LOST, start=1.0, ready_for=1.0), cleanup=1.0) for _ in range(3)]
    specs = [actor.spec(f"s{i}", cap=1.0) for i, actor in enumerate(actors)]
    async with supervised(*specs, starts=2) as stage:
        await trio.sleep(moment)
    assert trio.current_time() <= moment + 1.0
    assert [actor.live for actor in actors] == [0, 0, 0]
    for name in stage.supervisor.children:
        assert stage.states(name)[-1:] in ([STOPPED], [])


async def test_a_cancel_at_every_checkpoint_leaves_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """Not by time but by step: the cancellation comes after the n-th turn of the loop."""
    for steps in range(40):
        actor = Actor(play(LOST, start=0.0, ready_for=0.0), cleanup=0.0)
        async with supervised(actor.spec(floor=0.0, base=0.001), starts=1) as stage:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
        assert actor.live == 0, steps
        assert stage.state is STOPPED


async def test_errors_while_being_stopped_do_not_keep_others_from_stopping(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def run(life: Lifecycle) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("in the clean-up")

    other = Actor(FOREVER, cleanup=1.0)
    async with supervised(ChildSpec(name="broken", run=run, policy=Restart()), other.spec("other")) as stage:
        await stage.supervisor.children["other"].status.wait_until(lambda status: status.state in SERVING)
        assert other.live == 1
    assert other.live == 0


async def test_stopping_is_shown_before_the_children_have_stopped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    actor = Actor(FOREVER, cleanup=2.0)
    async with supervised(actor.spec()) as stage:
        await stage.reach(READY)
        stage.supervisor.announce_stop()
        assert stage.state is STOPPING
        stage.child.restart()
        assert stage.state is STOPPING
    assert stage.states()[-2:] == [STOPPING, STOPPED]
    assert trio.current_time() == 2.0


async def test_children_stop_in_parallel(autojump_clock: trio.testing.MockClock) -> None:
    actors = [Actor(FOREVER, cleanup=4.0) for _ in range(50)]
    async with supervised(*(actor.spec(f"s{i}") for i, actor in enumerate(actors)), starts=50):
        await trio.testing.wait_all_tasks_blocked()
        assert all(actor.live for actor in actors)
    assert trio.current_time() == 4.0


async def test_a_child_and_its_repr_say_how_it_is(autojump_clock: trio.testing.MockClock) -> None:
    async with supervised(Actor(FOREVER).spec()) as stage:
        await stage.reach(READY)
        assert repr(stage.child) == "<Child a: ready, incarnation 1>"
