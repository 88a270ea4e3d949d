"""The supervisor in virtual time: many children, that come and go, and none that harms another."""

from typing import Any

import pytest
import trio
import trio.testing

from daemon.config.tuning import Restart
from daemon.errors import CannotStart
from daemon.states import SERVING, ServerState
from daemon.supervision.lifecycle import ChildSpec, Lifecycle
from daemon.supervision.starts import IDLE_LOOKS, LOOK_SECONDS
from daemon.supervision.supervisor import Supervisor
from tests import plays
from tests.waiting import in_time

pytestmark = pytest.mark.usefixtures("autojump_clock")

# --- many -------------------------------------------------------------------------------------------------


async def test_at_most_so_many_start_at_once() -> None:
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
    async with plays.supervised(*specs, starts=4) as stage:
        with trio.fail_after(100):
            for child in stage.supervisor.children.values():
                await child.status.wait_until(lambda status: status.state is plays.READY)
        assert most == 4
        assert trio.current_time() == 13.0  # 50 in fours


async def test_a_start_that_is_seen_to_wait_gives_its_place_away_and_goes_on() -> None:
    async def waits(life: Lifecycle) -> None:
        life.runs_as(mark=1)
        await plays.play(start=50.0, ready_for=plays.DAY)(life)

    hanging = plays.Actor(waits)
    others = [plays.Actor(plays.FOREVER) for _ in range(49)]
    specs = [hanging.spec("hanging"), *(actor.spec(f"s{i}") for i, actor in enumerate(others))]
    async with plays.supervised(*specs, starts=1) as stage:
        await trio.sleep((IDLE_LOOKS + 1) * LOOK_SECONDS + 0.1)
        assert all(len(actor.starts) == 1 for actor in others)
        assert stage.supervisor.children["hanging"].status.value.state is plays.STARTING
        await trio.sleep(50)
        assert stage.supervisor.children["hanging"].status.value.state is plays.READY


async def join_in_turn(stage: plays.Stage, *specs: ChildSpec) -> None:
    """Add children one after the other: trio starts tasks in any order."""
    for spec in specs:
        stage.supervisor.add(spec)
        await trio.testing.wait_all_tasks_blocked()


async def test_who_is_called_is_started_before_the_others_in_line() -> None:
    actors = [plays.Actor(plays.play(start=5.0, ready_for=plays.DAY)) for _ in range(4)]
    specs = [actor.spec(f"s{i}") for i, actor in enumerate(actors)]
    async with plays.supervised(starts=1) as stage:
        await join_in_turn(stage, *specs)
        await trio.sleep(1)
        stage.supervisor.children["s3"].wake()
        stage.supervisor.children["s2"].restart()
        await trio.sleep(30)
        assert [actor.starts for actor in actors] == [[0.0], [11.0], [6.0], [1.0]]


async def test_what_an_operator_restarts_does_not_wait_for_a_boot() -> None:
    good, herd = (
        plays.Actor(plays.FOREVER),
        [plays.Actor(plays.play(start=25.0, ready_for=plays.DAY)) for _ in range(8)],
    )
    async with plays.supervised(good.spec("good")) as stage:
        await trio.sleep(1)
        await join_in_turn(stage, *(actor.spec(f"s{i}") for i, actor in enumerate(herd)))
        stage.supervisor.children["good"].restart()
        await trio.sleep(1)
        assert good.starts == [0.0, 1.0]


async def test_one_that_was_in_use_does_not_wait_for_those_that_never_were() -> None:
    used = plays.Actor(plays.play(plays.LOST, start=1.0, ready_for=60.0), plays.FOREVER)
    late = [plays.Actor(plays.play(start=5.0, ready_for=plays.DAY)) for _ in range(20)]
    async with plays.supervised(used.spec("used"), starts=1) as stage:
        await trio.sleep(58)
        await join_in_turn(stage, *(actor.spec(f"s{i}") for i, actor in enumerate(late)))
        await trio.sleep(200)
        assert used.starts == [0.0, 61.0]


async def test_whoever_is_stopped_in_line_never_starts() -> None:
    first, off, gone, last = (plays.Actor(plays.play(start=5.0, ready_for=plays.DAY)) for _ in range(4))
    specs = [actor.spec(name) for name, actor in (("first", first), ("off", off), ("gone", gone))]
    async with plays.supervised(starts=1) as stage:
        await join_in_turn(stage, *specs, last.spec("last"))
        await trio.sleep(1)
        stage.supervisor.children["off"].switch_off(plays.OFF)
        await in_time(stage.supervisor.remove("gone", "no longer in the configuration"), 1)
        await trio.sleep(20)
        assert (off.starts, gone.starts, last.starts) == ([], [], [5.0])
        assert stage.states("off") == [plays.QUEUED, plays.STOPPING, plays.STOPPED, ServerState.DISABLED]


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


BUGS: dict[str, plays.Play] = {
    "Exception": plays.play(Exception("bug")),
    "ExceptionGroup": plays.play(ExceptionGroup("bugs", [ValueError("one"), KeyError("two")])),
    "RecursionError": _recursion,
    "UnicodeDecodeError": plays.play(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bug")),
    "StopAsyncIteration": plays.play(StopAsyncIteration()),
    "TooSlowError": plays.play(trio.TooSlowError()),
    "group of ours": plays.play(ExceptionGroup("lost", [plays.LOST])),
    "group with Cancelled": _group_with_cancelled,
}


@pytest.mark.parametrize("bug", BUGS)
async def test_no_exception_of_one_child_reaches_its_siblings(bug: str) -> None:
    broken, siblings = plays.Actor(BUGS[bug]), [plays.Actor(plays.FOREVER) for _ in range(5)]
    specs = [actor.spec(f"s{i}") for i, actor in enumerate(siblings)]
    async with plays.supervised(broken.spec("broken"), *specs):
        await trio.sleep(40)
        assert len(broken.starts) > 5
        assert [actor.incarnations for actor in siblings] == [[1]] * 5
        assert all(actor.live == 1 for actor in siblings)


OURS = ExceptionGroup("two", [ValueError("noise"), ExceptionGroup("inner", [CannotStart("gone")])])


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [(KeyError("bug"), plays.BACKOFF, "internal error in mcpd: KeyError"), (OURS, plays.FAILED, "gone")],
)
async def test_a_bug_of_ours_is_named_in_the_reason_and_a_group_by_its_error_that_is_none(
    error: Exception, state: ServerState, reason: str
) -> None:
    async with plays.supervised(plays.Actor(plays.play(error)).spec()) as stage:
        assert (await stage.reach(state)).reason.startswith(reason)


# --- the end ------------------------------------------------------------------------------------------------


async def test_a_cancel_at_every_checkpoint_leaves_nothing() -> None:
    """Not by time but by step: the cancellation comes after the n-th turn of the loop."""
    for steps in range(40):
        actor = plays.Actor(plays.play(plays.LOST, start=0.0, ready_for=0.0), cleanup=0.0)
        async with plays.supervised(actor.spec(floor=0.0, base=0.001), starts=1) as stage:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
        assert actor.live == 0, steps
        assert stage.state is plays.STOPPED


async def test_errors_while_being_stopped_do_not_keep_others_from_stopping() -> None:
    async def run(life: Lifecycle) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("in the clean-up")

    other = plays.Actor(plays.FOREVER, cleanup=1.0)
    async with plays.supervised(
        ChildSpec(name="broken", run=run, policy=Restart()), other.spec("other")
    ) as stage:
        await stage.supervisor.children["other"].status.wait_until(lambda status: status.state in SERVING)
        assert other.live == 1
    assert other.live == 0


async def test_stopping_is_shown_before_the_children_have_stopped() -> None:
    actor = plays.Actor(plays.FOREVER, cleanup=2.0)
    async with plays.supervised(actor.spec()) as stage:
        await stage.reach(plays.READY)
        stage.supervisor.announce_stop()
        assert stage.state is plays.STOPPING
        stage.child.restart()
        assert stage.state is plays.STOPPING
    assert stage.states()[-2:] == [plays.STOPPING, plays.STOPPED]
    assert trio.current_time() == 2.0


async def test_children_stop_in_parallel() -> None:
    actors = [plays.Actor(plays.FOREVER, cleanup=4.0) for _ in range(50)]
    async with plays.supervised(*(actor.spec(f"s{i}") for i, actor in enumerate(actors)), starts=50):
        await trio.testing.wait_all_tasks_blocked()
        assert all(actor.live for actor in actors)
    assert trio.current_time() == 4.0


# --- children that come and go ----------------------------------------------------


async def test_a_child_may_be_added_before_the_supervisor_runs() -> None:
    supervisor = Supervisor([], starts=1, on_status=lambda *_: None, rng=lambda: 0.0, wall=trio.current_time)
    children = supervisor.children
    child = supervisor.add(plays.Actor(plays.FOREVER).spec())
    assert children == {"a": child}
    with pytest.raises(ValueError, match="two children are named 'a'"):
        supervisor.add(plays.Actor(plays.FOREVER).spec())
    await supervisor.remove("a", "gone")
    assert (children, child.status.value.state) == ({}, plays.STOPPED)


async def test_children_come_and_go_cleanly_and_alone_and_leave_their_names() -> None:
    going, staying, again = (
        plays.Actor(plays.FOREVER, cleanup=3.0),
        plays.Actor(plays.FOREVER),
        plays.Actor(plays.FOREVER),
    )
    async with plays.supervised(going.spec()) as stage:
        child = stage.child
        await stage.reach(plays.READY)
        assert await in_time(stage.supervisor.add(staying.spec("b")).status.wait_settled(), 5)
        assert (going.incarnations, staying.incarnations) == ([1], [1])
        await stage.supervisor.remove("a", "no longer configured")
        assert trio.current_time() == 3.0
        assert (going.live, staying.live, staying.incarnations) == (0, 1, [1])
        assert list(stage.supervisor.children) == ["b"]
        assert (child.status.value.state, child.status.value.reason) == (plays.STOPPED, "no longer configured")
        assert stage.states() == [plays.STARTING, plays.READY, plays.STOPPING, plays.STOPPED]
        child.restart()
        child.wake()
        await trio.sleep(plays.DAY)
        assert going.incarnations == [1]
        stage.supervisor.add(again.spec())
        await trio.testing.wait_all_tasks_blocked()
        assert (going.live, staying.incarnations, again.incarnations) == (0, [1], [1])


async def test_who_waits_for_a_child_learns_that_it_is_removed() -> None:
    async with (
        plays.supervised(plays.Actor(plays.HANG, cleanup=3.0).spec()) as stage,
        trio.open_nursery() as nursery,
    ):
        child = stage.child
        await stage.reach(plays.STARTING)
        nursery.start_soon(stage.supervisor.remove, "a", "gone")
        assert not await in_time(child.status.wait_settled(), 1)


async def test_a_retired_child_goes_on_while_another_has_its_name_and_stops_with_the_supervisor() -> None:
    first, second = plays.Actor(plays.FOREVER, cleanup=3.0), plays.Actor(plays.FOREVER)
    async with plays.supervised(first.spec()) as stage:
        await stage.reach(plays.READY)
        retired = stage.supervisor.retire("a")
        stage.supervisor.add(second.spec())
        await stage.reach(plays.READY)
        assert (first.live, second.live) == (1, 1)
        await stage.supervisor.end(retired, "nobody calls it any more")
        assert (first.live, second.live) == (0, 1)
        assert retired.status.value.reason == "nobody calls it any more"
        late = stage.supervisor.retire("a")
    assert (second.live, late.status.value.state) == (0, plays.STOPPED)


async def test_a_stop_while_a_child_is_being_switched_leaves_nothing() -> None:
    actors = [plays.Actor(plays.FOREVER, cleanup=1.0) for _ in range(3)]
    async with plays.supervised(*(actor.spec(f"s{i}") for i, actor in enumerate(actors))) as stage:
        await trio.sleep(1)
        stage.supervisor.children["s0"].switch_off(plays.OFF)
        stage.supervisor.children["s1"].replace(actors[1].spec("s1", lazy=True))
        await trio.sleep(0.5)
        stage.supervisor.announce_stop()
    assert [actor.live for actor in actors] == [0, 0, 0]
    assert all(stage.states(name)[-2:] == [plays.STOPPING, plays.STOPPED] for name in stage.supervisor.children)
