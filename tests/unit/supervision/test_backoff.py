"""When a server is started again: the whole policy as tables, in virtual numbers."""

from __future__ import annotations

import weakref
from itertools import product
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.causes import Reason
from daemon.config.tuning import Restart, RestartType
from daemon.states import ServerState
from daemon.supervision.backoff import Backoff, Ending, Run, Streak, is_stable, judge, wants_restart

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = Restart()
ALMOST_ONE = 1 - 2**-53
FAR_APART = 1000.0


def run(ending: Ending = Ending.CRASHED, *, healthy: float = 0.0, at: float = 0.0) -> Run:
    return Run(ending=ending, reason=Reason("because"), healthy=healthy, ended_at=at)


def streak(length: int, *, apart: float = FAR_APART, first_healthy: float = 0.0) -> list[Run]:
    runs = [run(at=number * apart) for number in range(length)]
    return [attrs.evolve(runs[0], healthy=first_healthy), *runs[1:]]


# OTP's table: restart type x how the run ended.
RESTARTED = {
    ("permanent", "normal"): True,
    ("permanent", "crashed"): True,
    ("permanent", "cannot_start"): True,
    ("permanent", "needs_auth"): True,
    ("permanent", "asked"): True,
    ("transient", "normal"): False,
    ("transient", "crashed"): True,
    ("transient", "cannot_start"): True,
    ("transient", "needs_auth"): True,
    ("transient", "asked"): True,
    ("temporary", "normal"): False,
    ("temporary", "crashed"): False,
    ("temporary", "cannot_start"): False,
    ("temporary", "needs_auth"): False,
    ("temporary", "asked"): True,
}


@pytest.mark.parametrize(("restart_type", "ending"), list(product(RestartType, Ending)))
def test_what_is_restarted_is_a_matter_of_type_and_ending(restart_type: RestartType, ending: Ending) -> None:
    policy = Restart(type=restart_type)
    assert wants_restart(policy, run(ending)) is RESTARTED[restart_type, ending]


@pytest.mark.parametrize(
    ("ending", "healthy", "stable"),
    [
        (Ending.CRASHED, 119.9, False),
        (Ending.CRASHED, 120.0, True),
        (Ending.NORMAL, 0.0, False),
        (Ending.NORMAL, 500.0, True),
        (Ending.CANNOT_START, 0.0, False),
        (Ending.ASKED, 0.0, True),
    ],
)
def test_health_or_our_own_wish_ends_a_streak(ending: Ending, healthy: float, *, stable: bool) -> None:
    assert is_stable(POLICY, run(ending, healthy=healthy)) is stable


@pytest.mark.parametrize(
    ("length", "least", "most"),
    [
        (1, 0.5, 1),
        (2, 1, 2),
        (3, 2, 4),
        (4, 4, 8),
        (5, 8, 16),
        (6, 16, 32),
        (7, 30, 60),
        (8, 30, 60),
        (40, 30, 60),
    ],
)
def test_delays_double_up_to_the_cap_with_half_of_each_left_to_chance(
    length: int, least: float, most: float
) -> None:
    assert judge(POLICY, streak(length), 0.0) == Backoff(state=ServerState.BACKOFF, delay=least)
    longest = judge(POLICY, streak(length), ALMOST_ONE)
    assert longest.state is ServerState.BACKOFF
    assert most * 0.999 < longest.delay <= most


@pytest.mark.parametrize("jitter", [0.0, ALMOST_ONE])
def test_no_delay_is_under_the_floor(jitter: float) -> None:
    policy = Restart(base=0.01, floor=3.0)
    assert judge(policy, streak(1), jitter).delay == 3.0


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


@pytest.mark.parametrize(("healthy", "delay"), [(9.9, 0.5), (10.0, 0.0), (119.0, 0.0)])
def test_a_run_that_was_healthy_for_ten_seconds_earns_one_immediate_restart(
    healthy: float, delay: float
) -> None:
    assert judge(POLICY, streak(1, first_healthy=healthy), 0.0) == Backoff(
        state=ServerState.BACKOFF, delay=delay
    )


def test_the_free_restart_is_granted_once_and_not_charged() -> None:
    delays = [judge(POLICY, streak(length, first_healthy=10.0), 0.0).delay for length in (1, 2, 3, 4)]
    assert delays == [0.0, 0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("length", "apart", "state"),
    [
        (5, 1.0, ServerState.BACKOFF),
        (6, 1.0, ServerState.CRASHLOOP),
        (6, 12.0, ServerState.CRASHLOOP),
        (6, 12.1, ServerState.BACKOFF),
        (100, 1.0, ServerState.CRASHLOOP),
    ],
)
def test_more_than_five_failures_within_sixty_seconds_are_a_crashloop(
    length: int, apart: float, state: ServerState
) -> None:
    assert judge(POLICY, streak(length, apart=apart), 0.0).state is state


@pytest.mark.parametrize(("jitter", "delay"), [(0.0, 30.0), (ALMOST_ONE, 60.0)])
def test_a_crashloop_is_retried_at_the_cap(jitter: float, delay: float) -> None:
    verdict = judge(POLICY, streak(6, apart=1.0), jitter)
    assert verdict.state is ServerState.CRASHLOOP
    assert verdict.delay == pytest.approx(delay)


def test_a_crashloop_calms_down_once_its_failures_lie_apart() -> None:
    runs = [*streak(6, apart=1.0), run(at=66.0)]
    assert judge(POLICY, runs, 0.0).state is ServerState.BACKOFF


@pytest.mark.parametrize(
    ("ending", "state"),
    [(Ending.CANNOT_START, ServerState.FAILED), (Ending.NEEDS_AUTH, ServerState.NEEDS_AUTH)],
)
@pytest.mark.parametrize("before", [0, 1, 50])
@pytest.mark.parametrize("jitter", [0.0, ALMOST_ONE])
def test_what_cannot_be_expected_to_work_is_parked(
    ending: Ending, state: ServerState, before: int, jitter: float
) -> None:
    runs = [*(streak(before, apart=0.1) if before else []), run(ending, healthy=50.0, at=5.0)]
    assert judge(POLICY, runs, jitter) == Backoff(state=state, delay=300.0)


def test_ten_thousand_failures_neither_overflow_nor_exceed_the_cap() -> None:
    assert judge(POLICY, streak(10_000), ALMOST_ONE).delay <= 60.0


# --- a streak of failures ---------------------------------------------------------------------------------


@attrs.define
class Supervised:
    """A child whose runs are scripted; what it would wait, and in which state, is noted."""

    policy: Restart
    streak: Streak = attrs.field(init=False)
    slept: list[float] = attrs.field(factory=list)
    states: list[ServerState] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.streak = Streak(self.policy, rng=lambda: 0.0)

    def live(self, runs: Iterator[Run]) -> None:
        """Go through `runs` until one is stable."""
        for ended in runs:
            if is_stable(self.policy, ended):
                self.streak.forget()
                return
            verdict = self.streak.judge(ended)
            self.slept.append(verdict.delay)
            self.states.append(verdict.state)


STABLE = run(healthy=1000.0)


def test_a_streak_is_judged_run_by_run() -> None:
    child = Supervised(POLICY)
    child.live(iter([*streak(4), run(Ending.CANNOT_START, at=4000.0), run(at=5000.0), STABLE]))
    assert child.slept == [0.5, 1.0, 2.0, 4.0, 300.0, 16.0]
    assert child.states == [ServerState.BACKOFF] * 4 + [ServerState.FAILED, ServerState.BACKOFF]


def test_a_stable_run_forgets_the_failures_before_it() -> None:
    child = Supervised(POLICY)
    child.live(iter([*streak(3), STABLE]))
    child.live(iter([*streak(2), STABLE]))
    assert child.slept == [0.5, 1.0, 2.0, 0.5, 1.0]


def test_an_operator_can_have_the_failures_forgotten() -> None:
    child = Supervised(POLICY)

    def runs() -> Iterator[Run]:
        yield from streak(3)
        child.streak.forget()
        yield run(at=3000.0)
        yield STABLE

    child.live(runs())
    assert child.slept == [0.5, 1.0, 2.0, 0.5]


def test_a_crashloop_is_recognised_and_stays_one_until_the_server_is_healthy() -> None:
    """At the cap, failures no longer come often enough to say so by themselves."""
    child = Supervised(POLICY)
    calm = run(at=6 + 61.0)
    child.live(iter([*streak(7, apart=1.0), calm, STABLE]))
    crashloop, backoff = ServerState.CRASHLOOP, ServerState.BACKOFF
    assert child.states == [backoff] * 5 + [crashloop] * 3


@pytest.mark.parametrize("intensity", [1, 2, 5])
def test_delays_reach_the_cap_however_few_failures_make_a_crashloop(intensity: int) -> None:
    child = Supervised(Restart(intensity=intensity, period=10.0))
    child.live(iter([*streak(8), STABLE]))
    assert child.slept == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_ten_thousand_failures_are_not_remembered_one_by_one() -> None:
    child = Supervised(POLICY)
    seen: list[weakref.ref[Run]] = []

    def runs() -> Iterator[Run]:
        for number in range(10_000):
            failed = run(at=number * FAR_APART)
            seen.append(weakref.ref(failed))
            yield failed
        yield STABLE

    child.live(runs())
    assert len(child.slept) == 10_000
    assert max(child.slept) == 30.0
    assert sum(ref() is not None for ref in seen) < 20
