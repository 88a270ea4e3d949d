"""One child in virtual time: hours of crashes and restarts in milliseconds."""

from itertools import pairwise
from typing import Any

import attrs
import msgspec
import pytest
import trio
import trio.testing

from daemon.causes import Cause, Reason
from daemon.config.tuning import RestartType
from daemon.errors import CannotStart, ConnectionLost, NeedsAuth, StartTimeout
from daemon.facts import ServerStatus
from daemon.history.event import Event, EventKind
from daemon.states import TRANSITIONS, ServerState
from daemon.supervision.lifecycle import Lifecycle, reason_of
from daemon.supervision.supervisor import Supervisor
from tests.plays import (
    BACKOFF,
    CRASHLOOP,
    DAY,
    DISABLED,
    DORMANT,
    FAILED,
    FOREVER,
    HANG,
    LOST,
    NEEDS_AUTH,
    OFF,
    READY,
    STARTING,
    STOPPED,
    STOPPING,
    Actor,
    Play,
    Stage,
    play,
    supervised,
)
from tests.waiting import beside, in_time

pytestmark = pytest.mark.usefixtures("autojump_clock")

# --- when it is started again -------------------------------------------------------------------------------

ENDINGS: dict[str, tuple[BaseException | None, set[RestartType]]] = {
    "it returns": (None, {RestartType.PERMANENT}),
    "it exits with status 0": (ConnectionLost("bye", Cause.ENDED), {RestartType.PERMANENT}),
    "it crashes": (LOST, {RestartType.PERMANENT, RestartType.TRANSIENT}),
    "it never came up": (StartTimeout("no answer"), {RestartType.PERMANENT, RestartType.TRANSIENT}),
    "a bug of ours": (KeyError("bug"), {RestartType.PERMANENT, RestartType.TRANSIENT}),
    "it cannot start": (CannotStart("no such command"), {RestartType.PERMANENT, RestartType.TRANSIENT}),
    "it wants credentials": (NeedsAuth("401"), {RestartType.PERMANENT, RestartType.TRANSIENT}),
}


@pytest.mark.parametrize("restart_type", RestartType)
@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_restart_type_and_the_ending_decide_about_a_restart(
    restart_type: RestartType, ending: str
) -> None:
    """Every cell of OTP's table."""
    error, restarted = ENDINGS[ending]
    actor = Actor(play(error, ready_for=1.0), FOREVER)
    async with supervised(actor.spec(type=restart_type)) as stage:
        await trio.sleep(400)
        assert len(actor.starts) == (2 if restart_type in restarted else 1)
        assert stage.state is (READY if restart_type in restarted else STOPPED)
        if restart_type not in restarted:
            assert stage.child.status.value.reason == reason_of(error).text


async def test_states_are_told_in_order() -> None:
    actor = Actor(play(LOST), play(LOST, ready_for=5.0), play(CannotStart("gone")), FOREVER)
    async with supervised(actor.spec()) as stage:
        await trio.sleep(400)
    assert stage.states() == [
        *(STARTING, BACKOFF, STARTING, READY, BACKOFF, STARTING, FAILED, STARTING, READY),
        *(STOPPING, STOPPED),
    ]
    told = [status.state for _, status in stage.history]
    for before, after in pairwise(told):
        assert before is after or after in TRANSITIONS[before]
    assert (actor.incarnations, actor.most_live) == ([1, 2, 3, 4], 1)


async def test_a_status_tells_attempt_reason_retry_and_incarnation() -> None:
    async with supervised(Actor(play(LOST, start=3.0)).spec()) as stage:
        status = await stage.reach(BACKOFF)
        assert attrs.evolve(status, why=attrs.evolve(status.why, remedy=None)) == ServerStatus(
            state=BACKOFF,
            why=Reason("it hung up", Cause.CONNECTION_LOST),
            since=3.0,
            attempt=1,
            next_retry_at=3.5,
            incarnation=1,
        )
        await stage.reach(STARTING)
        again = await stage.reach(BACKOFF)
        assert (again.attempt, again.incarnation, again.restarts) == (2, 2, 1)
        await trio.sleep(0.25)
        stage.child.status.become(BACKOFF, again.why, retry_at=9.0)
        assert stage.child.status.value == attrs.evolve(again, next_retry_at=9.0), "as long as before"


async def test_last_words_are_read_without_secrets_and_told_with_each_attempt_that_follows() -> None:
    exited = ConnectionLost("exited with status 1", Cause.EXITED, status=1)
    asked: list[int] = []

    def words(run: int) -> list[str]:
        asked.append(run)
        return ["ModuleNotFoundError: No module named 'hush'"] if run < 3 else ["something else"]

    spec = msgspec.structs.replace(Actor(play(exited)).spec(base=0.01, floor=0), words=words)
    told: list[ServerStatus] = []
    events: list[Event] = []
    supervisor = Supervisor(
        [spec],
        starts=1,
        on_status=lambda _name, status: told.append(status),
        rng=lambda: 0.0,
        wall=trio.current_time,
        redact=lambda _name: lambda text: text.replace("hush", "hidden"),
        note=events.append,
    )
    async with beside(supervisor.run):
        with trio.fail_after(10):
            await supervisor.children["a"].status.wait_until(lambda status: status.attempt == 3)
    said = [
        (each.state, each.incarnation, each.why.remedy.happened)
        for each in told
        if each.attempt and each.why.remedy
    ]
    missing, failed = "A Python module is missing: hidden.", "It failed with exit status 1."
    assert said[:4] == [
        (BACKOFF, 1, missing),
        (STARTING, 2, missing),
        (BACKOFF, 2, missing),
        (STARTING, 3, missing),
    ]
    assert said[4][1:] == (3, failed)
    assert asked[:3] == [1, 2, 3]
    ends = [each.details.get("happened") for each in events if each.kind is EventKind.ENDED]
    assert ends[:3] == [missing, missing, failed]
    details = [each.details for each in events if each.kind is EventKind.ENDED][:3]
    assert [(each["attempt"], "byWords" in each) for each in details] == [(1, True), (2, True), (3, False)]


async def test_the_end_of_a_run_is_told_before_its_clean_up() -> None:
    async def run(life: Lifecycle) -> None:
        life.ready()
        life.ending(Reason("it hung up"))
        life.ready()  # too late
        raise LOST

    actor = Actor(run, cleanup=4.0)
    async with supervised(actor.spec()) as stage:
        status = await stage.reach(BACKOFF)
        assert (trio.current_time(), actor.live, status.next_retry_at) == (0.0, 1, None)
        await stage.reach(STARTING)
        await stage.reach(BACKOFF)
        assert actor.starts[:2] == [0.0, 4.5]
        assert stage.states()[:4] == [STARTING, READY, BACKOFF, STARTING]


# --- how soon -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "healthy", "gap"), [(0.0, 10.0, 10.0), (0.0, 9.9, 10.4), (100.0, None, 100.5)]
)
async def test_a_run_of_ten_healthy_seconds_earns_one_immediate_restart(
    start: float, healthy: float | None, gap: float
) -> None:
    """Only health counts, not a long start."""
    actor = Actor(play(LOST, start=start, ready_for=healthy))
    async with supervised(actor.spec()):
        await trio.sleep(60 + 2 * start)
    assert actor.gaps[0] == pytest.approx(gap)
    assert actor.gaps[1] > 10.4  # only the first one


@pytest.mark.parametrize(("healthy", "attempt"), [(120.0, 1), (119.0, 5)])
async def test_two_healthy_minutes_forget_the_failures(healthy: float, attempt: int) -> None:
    actor = Actor(*[play(LOST)] * 3, play(LOST, ready_for=healthy), play(LOST, start=0.001))
    async with supervised(actor.spec()) as stage:
        with trio.fail_after(300):
            await stage.child.status.wait_until(lambda status: status.incarnation == 5)
            assert (await stage.reach(BACKOFF)).attempt == attempt


async def test_a_crash_loop_is_retried_at_the_cap_until_it_is_healthy_woken_or_forgiven() -> None:
    """Failures at the cap are never five within a minute again, and are a crash loop all the same."""
    actor = Actor(play(LOST))
    async with supervised(actor.spec()) as stage:
        await stage.reach(CRASHLOOP)
        assert len(actor.starts) == 6
        assert stage.child.status.value.next_retry_at == pytest.approx(trio.current_time() + 30)
        assert BACKOFF in stage.states()
        await trio.sleep(3601)
        waits = [status.state for _, status in stage.history if status.next_retry_at is not None]
        assert set(waits[waits.index(CRASHLOOP) :]) == {CRASHLOOP}
        assert len(actor.starts) == 6 + 120
        assert actor.gaps[-1] == pytest.approx(30)
        await trio.sleep(1)
        stage.child.wake()
        await trio.testing.wait_all_tasks_blocked()
        assert actor.gaps[-1] == pytest.approx(2)
        stage.child.restart()
        assert (await stage.reach(BACKOFF)).attempt == 1
        await trio.sleep(1)
        assert actor.gaps[-1] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "policy", [{}, {"base": 0.1, "floor": 0.0, "period": 0.01}, {"intensity": 1, "period": 1.0}]
)
async def test_delays_grow_to_the_cap_whatever_the_policy(policy: dict[str, Any]) -> None:
    """Also when the first restart of the streak was free."""
    actor = Actor(play(LOST, ready_for=10.0), play(LOST))
    async with supervised(actor.spec(**policy), rng=lambda: 0.9999999):
        await trio.sleep(3600)
    assert actor.gaps[-1] == pytest.approx(60, rel=0.01)


@pytest.mark.parametrize(
    ("error", "state"), [(CannotStart("no such command"), FAILED), (NeedsAuth("HTTP 401"), NEEDS_AUTH)]
)
async def test_what_trying_soon_cannot_help_is_parked_for_five_minutes(
    error: Exception, state: ServerState
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


async def test_calls_wake_a_child_at_most_once_per_second() -> None:
    actor = Actor(play(LOST))
    async with supervised(actor.spec(base=60.0)) as stage:
        for _ in range(100):
            await trio.sleep(0.1)
            stage.child.wake()
    assert 9 <= len(actor.starts) <= 11
    assert min(actor.gaps) >= 1.0


@pytest.mark.parametrize(("base", "after", "started"), [(60.0, 0.0, 1.0), (60.0, 0.999, 1.0), (1.0, 0.0, 0.5)])
async def test_a_call_soon_after_a_failed_start_waits_for_a_second_at_most_and_never_longer_than_without_it(
    base: float, after: float, started: float
) -> None:
    actor = Actor(play(LOST), FOREVER)
    async with supervised(actor.spec(base=base), rng=lambda: 0.0) as stage:
        await stage.reach(BACKOFF)
        await trio.sleep(after)
        stage.child.wake()
        assert await in_time(stage.child.status.wait_settled(), 1.5)
    assert actor.starts == [0.0, started]


async def test_whoever_waits_learns_that_the_attempt_under_way_failed() -> None:
    actor = Actor(play(LOST), play(LOST, start=3.0))
    async with supervised(actor.spec(base=60.0)) as stage:
        await trio.sleep(10)
        stage.child.wake()
        assert not await in_time(stage.child.status.wait_settled(), 5)
        assert trio.current_time() == 13.0


@pytest.mark.parametrize(
    ("served", "cleanup", "called", "next_start"), [(2.0, 3.0, 3.0, 5.0), (0.1, 0.3, 0.2, 1.0)]
)
async def test_a_call_during_the_clean_up_makes_the_next_start_immediate(
    served: float, cleanup: float, called: float, next_start: float
) -> None:
    """Or the one a second after the last, if the clean-up was quick."""

    async def run(life: Lifecycle) -> None:
        life.ready()
        await trio.sleep(served)
        life.ending(Reason("it hung up"))
        raise LOST

    actor = Actor(run, FOREVER, cleanup=cleanup)
    async with supervised(actor.spec(base=60.0)) as stage:
        await trio.sleep(called)
        stage.child.wake()
        assert await in_time(stage.child.status.wait_settled(), 3)
    assert actor.starts == [0.0, next_start]


def _degraded() -> Play:
    async def run(life: Lifecycle) -> None:
        life.degraded(Reason("half of it"))
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


async def _until_in(stage: Stage, state: ServerState) -> None:
    with trio.fail_after(200):
        await trio.testing.wait_all_tasks_blocked()
        await stage.child.status.wait_until(
            lambda status: status.state is state and (state is not BACKOFF or status.next_retry_at is not None)
        )


@pytest.mark.parametrize("state", BEFORE_RESTART)
async def test_an_operator_can_restart_from_every_state(state: ServerState) -> None:
    plays, options = BEFORE_RESTART[state]
    actor = Actor(*plays, play(start=0.1, ready_for=DAY))
    async with supervised(actor.spec(**options)) as stage:
        await _until_in(stage, state)
        before = trio.current_time()
        stage.child.restart()
        with trio.fail_after(1):
            await trio.testing.wait_all_tasks_blocked()
            await stage.reach(READY)
        assert trio.current_time() - before == pytest.approx(0.1)
        assert stage.child.status.value.attempt == 0
        assert len(actor.starts) == len(plays) + 1
        assert actor.live == 1


async def test_a_restart_that_meets_a_child_just_getting_ready_is_no_fault_of_ours(said: list[str]) -> None:
    """The child's task may have one more step to go before its cancellation reaches it."""
    up = trio.Event()

    async def run(life: Lifecycle) -> None:
        await up.wait()
        await FOREVER(life)

    actor = Actor(run)
    async with supervised(actor.spec()) as stage:
        await trio.testing.wait_all_tasks_blocked()
        up.set()
        stage.child.restart()
        await trio.testing.wait_all_tasks_blocked()
        await stage.reach(READY, within=5)
        assert actor.incarnations == [1, 2]
    assert said == []


async def test_a_lazy_child_sleeps_until_it_is_called_and_is_then_restarted_like_any_other() -> None:
    actor = Actor(play(LOST), FOREVER)
    async with supervised(actor.spec(lazy=True)) as stage:
        await trio.sleep(DAY)
        assert (stage.state, actor.starts) == (DORMANT, [])
        stage.child.wake()
        await stage.reach(READY)
        assert actor.starts == [DAY, DAY + 0.5]


# --- switched off and on, and replaced ---------------------------------------------------------------------


@pytest.mark.parametrize("state", BEFORE_RESTART)
async def test_a_child_can_be_switched_off_and_on_in_every_state(state: ServerState) -> None:
    plays, options = BEFORE_RESTART[state]
    lazy = bool(options.get("lazy"))
    actor = Actor(*plays, FOREVER, cleanup=1.0)
    other = Actor(FOREVER)
    async with supervised(actor.spec(**options), other.spec("other")) as stage:
        await _until_in(stage, state)
        starts = len(actor.starts)
        stage.child.switch_off(OFF)
        stage.child.switch_off("again")
        assert (await stage.reach(DISABLED, within=2)).reason == OFF
        stage.child.wake()
        stage.child.restart()
        assert not await stage.child.status.wait_settled()
        await trio.sleep(DAY)
        assert (stage.state, actor.live, len(actor.starts)) == (DISABLED, 0, starts)
        stage.child.switch_on()
        stage.child.switch_on()
        await stage.reach(DORMANT if lazy else READY, within=2)
        assert len(actor.starts) == starts + (not lazy)
        assert stage.child.status.value.attempt == 0
        assert other.incarnations == [1]
    for before, after in pairwise(status.state for name, status in stage.history if name == "a"):
        assert before is after or after in TRANSITIONS[before]


async def test_on_and_off_and_on_while_it_stops_ends_in_the_last_word() -> None:
    actor = Actor(FOREVER, cleanup=2.0)
    async with supervised(actor.spec()) as stage:
        await stage.reach(READY)
        stage.child.switch_off(OFF)
        await trio.sleep(1)
        stage.child.switch_on()
        stage.child.switch_off(OFF)
        stage.child.switch_on()
        await stage.reach(READY, within=3)
        assert (actor.incarnations, actor.most_live) == ([1, 2], 1)


async def test_a_word_at_any_step_of_a_child_is_obeyed() -> None:
    """Not by time but by step: off after the n-th turn of the loop, on after some more."""
    for steps in range(40):
        actor = Actor(play(LOST), FOREVER)
        async with supervised(actor.spec(floor=0.0, base=0.001, lazy=steps % 2 == 0), starts=1) as stage:
            stage.child.wake()
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
                stage.child.wake()
            stage.child.switch_off(OFF)
            for _ in range(steps % 7):
                await trio.lowlevel.checkpoint()
            stage.child.switch_on()
            stage.child.switch_off(OFF)
            await stage.reach(DISABLED, within=10)
            assert actor.live == 0, steps
            stage.child.switch_on()
            await trio.testing.wait_all_tasks_blocked()
            stage.child.wake()
            await stage.reach(READY, within=10)


@pytest.mark.parametrize("state", BEFORE_RESTART)
async def test_a_replaced_child_goes_on_by_its_new_spec_in_every_state(state: ServerState) -> None:
    plays, options = BEFORE_RESTART[state]
    old, new, other = Actor(*plays, FOREVER), Actor(FOREVER), Actor(FOREVER)
    async with supervised(old.spec(**options), other.spec("other")) as stage:
        await _until_in(stage, state)
        before = len(old.starts)
        stage.child.replace(new.spec())
        with trio.fail_after(2):
            await trio.testing.wait_all_tasks_blocked()
            await stage.reach(READY)
        assert (old.live, new.live, len(old.starts)) == (0, 1, before)
        assert new.incarnations == [before + 1]
        assert stage.child.status.value.attempt == 0
        assert other.incarnations == [1]


async def test_a_new_spec_that_is_lazy_or_comes_while_the_child_is_off_starts_nothing_yet() -> None:
    old, new = Actor(FOREVER, cleanup=1.0), Actor(FOREVER)
    async with supervised(old.spec()) as stage:
        await stage.reach(READY)
        stage.child.replace(new.spec(lazy=True))
        await stage.reach(DORMANT, within=2)
        assert (old.live, new.starts) == (0, [])
        stage.child.wake()
        await stage.reach(READY, within=1)
        assert new.incarnations == [2]
        stage.child.switch_off(OFF)
        stage.child.replace(old.spec())
        await stage.reach(DISABLED, within=1)
        stage.child.switch_on()
        await stage.reach(READY, within=1)
        assert (len(old.starts), len(new.starts)) == (2, 1)


async def test_delays_follow_the_policy_of_the_new_spec() -> None:
    actor = Actor(play(LOST))
    async with supervised(actor.spec(base=0.5, floor=0.5, cap=0.5)) as stage:
        await trio.sleep(2)
        stage.child.replace(actor.spec(base=100.0, floor=100.0, cap=100.0))
        await trio.sleep(0.1)
        actor.starts.clear()
        await trio.sleep(1000)
        assert actor.gaps
        assert min(actor.gaps) >= 100.0


# --- rest ----------------------------------------------------------------------------------------------------


async def test_a_child_that_rests_is_dormant_at_once_and_runs_again_when_woken() -> None:
    actor = Actor(FOREVER, cleanup=3.0)
    async with supervised(actor.spec()) as stage:
        await stage.reach(READY)
        stage.child.go_idle()
        assert (stage.state, stage.child.status.untried) == (DORMANT, True)
        await trio.sleep(DAY)
        assert (actor.live, actor.incarnations) == (0, [1])
        stage.child.wake()
        await stage.reach(READY)
        assert stage.states() == [STARTING, READY, DORMANT, STARTING, READY]
        assert [status.attempt for _name, status in stage.history] == [0] * len(stage.history)


async def test_only_a_child_that_serves_can_rest() -> None:
    async with supervised(Actor(HANG).spec()) as stage:
        await stage.reach(STARTING)
        stage.child.go_idle()
        assert stage.state is STARTING
        stage.child.switch_off("off")
        stage.child.go_idle()
        await stage.reach(DISABLED)


async def test_a_child_that_rests_can_be_woken_switched_off_and_on_restarted_and_replaced() -> None:
    actor, other = Actor(FOREVER, cleanup=3.0), Actor(FOREVER)
    async with supervised(actor.spec()) as stage:
        await stage.reach(READY)
        stage.child.go_idle()
        stage.child.wake()
        assert await in_time(stage.child.status.wait_settled(), 10)
        assert (actor.incarnations, actor.most_live, trio.current_time()) == ([1, 2], 1, 3.0)
        stage.child.go_idle()
        stage.child.switch_off(OFF)
        await stage.reach(DISABLED)
        stage.child.switch_on()
        await stage.reach(READY)
        stage.child.go_idle()
        await trio.testing.wait_all_tasks_blocked()
        stage.child.restart()
        await stage.reach(READY)
        stage.child.go_idle()
        await trio.testing.wait_all_tasks_blocked()
        stage.child.replace(other.spec())
        await stage.reach(READY)
        assert (actor.live, other.live) == (0, 1)


async def test_a_lazy_child_hears_who_wakes_it_before_it_was_supervised() -> None:
    async with supervised() as stage:
        child = stage.supervisor.add(Actor(FOREVER).spec(lazy=True))
        child.status.become(DORMANT)
        child.wake()
        assert await in_time(child.status.wait_settled(), 1)
