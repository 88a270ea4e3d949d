"""What a running child tells of itself, and who hears it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from daemon.states import ServerState
from daemon.supervision.lifecycle import Lifecycle
from daemon.supervision.starts import Rank, Start, Starts

if TYPE_CHECKING:
    from daemon.processes.effort import Effort


@attrs.define
class Child:
    """A `lifecycle.Told` that keeps everything."""

    untried: bool = True
    restarting: bool = False
    told: list[tuple[ServerState, str]] = attrs.field(factory=list)
    held: float = 0.0

    def become(self, state: ServerState, reason: str = "") -> None:
        self.told.append((state, reason))

    def hold_off(self, seconds: float) -> None:
        self.held = seconds


async def _nobody_seen(_marks: frozenset[int]) -> dict[int, Effort]:
    await trio.lowlevel.checkpoint()
    return {}


def run_of(child: Child) -> tuple[Lifecycle, Start]:
    """A run that has the only place, and the start that waits for it."""
    starts = Starts(1, _nobody_seen)
    start, following = (starts.ask(Rank.OTHER, lambda _before: None) for _ in range(2))
    return Lifecycle(child, 1, start), following


@pytest.mark.parametrize(("state", "is_healthy"), [(ServerState.READY, True), (ServerState.DEGRADED, False)])
async def test_who_serves_has_started_and_been_tried(state: ServerState, *, is_healthy: bool) -> None:
    life, following = run_of(child := Child())
    assert not following.granted.is_set()
    if is_healthy:
        life.ready()
    else:
        life.degraded("it does not list")
    assert following.granted.is_set()
    assert not child.untried
    assert (life.ready_at is not None) is is_healthy
    assert child.told == [(state, "" if is_healthy else "it does not list")]


async def test_a_run_that_ends_says_so_once_and_serves_no_more() -> None:
    life, _following = run_of(child := Child())
    life.ending("it hung up")
    life.ready()
    assert child.told == [(ServerState.BACKOFF, "it hung up")]
    child.restarting = True
    life.ending("an operator")
    assert len(child.told) == 1


async def test_the_wish_to_be_left_alone_and_the_tree_are_passed_on() -> None:
    starts = Starts(1, _nobody_seen)
    start = starts.ask(Rank.OTHER, lambda _before: None)
    life = Lifecycle(child := Child(), 1, start)
    life.hold_off(30.0)
    life.runs_as(7)
    assert (child.held, start.mark) == (30.0, 7)
