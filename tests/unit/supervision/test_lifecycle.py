"""What a running child tells of itself, and who hears it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from daemon.causes import Cause, Reason
from daemon.states import ServerState
from daemon.supervision.lifecycle import ChildStatus, Lifecycle, Pause
from daemon.supervision.starts import QueuedStart, Rank, StartQueue

if TYPE_CHECKING:
    from daemon.facts import ServerStatus
    from daemon.processes.marks import Effort

LOST = Reason("it hung up", Cause.CONNECTION_LOST)


async def _nobody_seen(_marks: frozenset[int]) -> dict[int, Effort]:
    return {}


@attrs.define
class Scene:
    """A run that has the only place, the start that waits for it, and all that is told."""

    told: list[ServerStatus] = attrs.field(factory=list)
    pause: Pause = attrs.field(factory=Pause)
    status: ChildStatus = attrs.field(init=False)
    start: QueuedStart = attrs.field(init=False)
    following: QueuedStart = attrs.field(init=False)
    life: Lifecycle = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.status = ChildStatus(self.told.append, lambda: 0.0, str)
        self.status.become(ServerState.STARTING)
        self.told.clear()
        starts = StartQueue(1, _nobody_seen)
        self.start, self.following = (starts.ask(Rank.OTHER, lambda _before: None) for _ in range(2))
        self.life = Lifecycle(self.status, self.pause, self.start)


@pytest.mark.parametrize(("state", "is_healthy"), [(ServerState.READY, True), (ServerState.DEGRADED, False)])
async def test_who_serves_has_started_and_been_tried(state: ServerState, *, is_healthy: bool) -> None:
    it = Scene()
    assert not it.following.granted.is_set()
    if is_healthy:
        it.life.ready()
    else:
        it.life.degraded(Reason("it does not list", Cause.LIST_TIMEOUT, {"seconds": 3}))
    assert it.following.granted.is_set()
    assert not it.status.untried
    assert (it.life.ready_at is not None) is is_healthy
    (told,) = it.told
    assert (told.state, told.reason) == (state, "" if is_healthy else "it does not list")
    assert (told.cause, told.cause_data) == ((None, {}) if is_healthy else ("list-timeout", {"seconds": 3}))


async def test_a_run_that_ends_says_so_once_and_serves_no_more() -> None:
    it = Scene()
    it.life.ending(LOST)
    it.life.ready()
    assert [(status.state, status.cause) for status in it.told] == [(ServerState.BACKOFF, LOST.cause)]
    it.life.restart(Reason("an operator"))
    it.life.ending(LOST)
    assert len(it.told) == 1
    assert it.life.scope.cancel_called
    assert it.life.ready_at is None


async def test_the_wish_to_be_left_alone_and_the_tree_are_passed_on(autojump_clock: object) -> None:
    it = Scene()
    it.life.hold_off(30.0)
    it.life.runs_as(7)
    assert (it.pause.held, it.start.mark) == (30.0, 7)


async def test_an_operator_s_word_counts_more_than_the_server_s_wish(autojump_clock: object) -> None:
    it = Scene()
    it.life.restart(Reason("an operator"))
    it.life.hold_off(30.0)
    assert it.pause.held == 0
