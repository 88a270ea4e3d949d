"""When a server is started again: the whole policy as tables, in virtual numbers."""

import weakref

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.causes import Reason
from daemon.config.tuning import Restart
from daemon.states import ServerState
from daemon.supervision.backoff import Backoff, Ending, Run, Streak, judge
from tests.unit.cases import cases

POLICY = Restart()
ALMOST_ONE = 1 - 2**-53
FAR_APART = 1000.0


def run(ending: Ending = Ending.CRASHED, *, healthy: float = 0.0, at: float = 0.0) -> Run:
    return Run(ending=ending, reason=Reason("because"), healthy=healthy, ended_at=at)


def streak(length: int, *, apart: float = FAR_APART, first_healthy: float = 0.0) -> list[Run]:
    runs = [run(at=number * apart) for number in range(length)]
    return [attrs.evolve(runs[0], healthy=first_healthy), *runs[1:]]


@pytest.mark.parametrize(
    ("length", "least", "most"),
    [*((n, 2 ** (n - 2), 2 ** (n - 1)) for n in range(1, 7)), (7, 30, 60), (8, 30, 60), (10_000, 30, 60)],
)
def test_delays_double_up_to_the_cap_with_half_of_each_left_to_chance(
    length: int, least: float, most: float
) -> None:
    assert judge(POLICY, streak(length), 0.0) == Backoff(state=ServerState.BACKOFF, delay=least)
    longest = judge(POLICY, streak(length), ALMOST_ONE)
    assert longest.state is ServerState.BACKOFF
    assert most * 0.999 < longest.delay <= most


@given(
    base=st.floats(0.001, 1000),
    cap=st.floats(0.001, 1000),
    floor=st.floats(0, 10),
    length=st.integers(1, 200),
    jitter=st.floats(0, ALMOST_ONE),
)
def test_a_delay_is_never_under_the_floor_nor_over_the_cap(
    base: float, cap: float, floor: float, length: int, jitter: float
) -> None:
    policy = Restart(base=base, cap=cap, floor=floor)
    delay = judge(policy, streak(length), jitter).delay
    assert floor <= delay <= max(floor, cap)
    assert delay >= min(base, cap) / 2


def test_the_free_restart_is_granted_once_and_not_charged() -> None:
    delays = [judge(POLICY, streak(length, first_healthy=10.0), 0.0).delay for length in (1, 2, 3, 4)]
    assert delays == [0.0, 0.5, 1.0, 2.0]


@cases("length", "apart", "state")
def test_more_than_five_failures_within_sixty_seconds_are_a_crashloop(
    length: int, apart: float, state: str
) -> None:
    verdict = judge(POLICY, streak(length, apart=apart), 0.0)
    assert verdict.state == state
    if state == ServerState.CRASHLOOP:
        assert verdict.delay == 30.0


@pytest.mark.parametrize(
    ("ending", "state"),
    [(Ending.CANNOT_START, ServerState.FAILED), (Ending.NEEDS_AUTH, ServerState.NEEDS_AUTH)],
)
def test_what_cannot_be_expected_to_work_is_parked_whatever_went_before(
    ending: Ending, state: ServerState
) -> None:
    for before in (0, 1, 50):
        runs = [*(streak(before, apart=0.1) if before else []), run(ending, healthy=50.0, at=5.0)]
        assert judge(POLICY, runs, 0.0) == Backoff(state=state, delay=300.0), before


def test_a_streak_of_ten_thousand_failures_is_judged_run_by_run_and_not_remembered_one_by_one() -> None:
    judging = Streak(POLICY, rng=lambda: 0.0)
    seen: list[weakref.ref[Run]] = []

    def judged(*runs: Run) -> list[float]:
        seen.extend(map(weakref.ref, runs))
        return [judging.judge(each).delay for each in runs]

    first = judged(*streak(4), run(Ending.CANNOT_START, at=4000.0), run(at=5000.0))
    assert first == [0.5, 1.0, 2.0, 4.0, 300.0, 16.0]
    assert {judged(run(at=number * FAR_APART))[0] for number in range(6, 10_000)} == {30.0}
    assert sum(ref() is not None for ref in seen) < 20
    judging.forget()
    assert judged(*streak(2)) == [0.5, 1.0]
    judged(*streak(6, apart=1.0), run(Ending.CANNOT_START, at=400.0))
    assert judging.judge(run(at=800.0)).state is ServerState.CRASHLOOP, "still"
