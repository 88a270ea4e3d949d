"""Asking beside the screen: what a picture has while the daemon answers, is away or is silent."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli.control import DaemonUnreachable, RemoteFault
from daemon.cli.watch_view import Picture, StatusPoll
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

NEVER = PATIENCE * 100
"""Seconds between two questions where no second one is to come by itself."""


class Asked:
    """A daemon that answers with what it is given, one after the other; a clock that goes on with each look."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.wanted: list[str | None] = []
        self._answers = list(answers)
        self._now = 0.0
        self._told = threading.Semaphore(0)

    def look(self, server: str | None) -> tuple[Any, Any]:
        self.wanted.append(server)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, None if server is None else {"name": server}

    def wall(self) -> float:
        self._now += 1
        return self._now

    def tell(self) -> None:
        self._told.release()

    def wait(self) -> None:
        assert self._told.acquire(timeout=PATIENCE)


FIRST: Any = {"a": 1}
SECOND: Any = {"a": 2}
THIRD: Any = {"a": 3}


def named(name: str) -> Any:
    """What is told of one server."""
    return {"name": name}


def started(asked: Asked, every: float = NEVER) -> StatusPoll:
    poll = StatusPoll(asked.look, every, wall=asked.wall)
    poll.start(asked.tell)
    asked.wait()
    return poll


def test_nothing_is_known_before_the_first_answer() -> None:
    assert StatusPoll(Asked().look, NEVER).picture == Picture()


def test_an_answer_is_a_picture_with_its_time() -> None:
    poll = started(Asked(FIRST))
    assert poll.picture == Picture(status=FIRST, at=2.0)
    poll.stop()


def test_another_server_is_asked_about_at_once_and_the_same_one_is_not() -> None:
    asked = Asked(FIRST, SECOND)
    poll = started(asked)
    poll.see("git")
    asked.wait()
    assert poll.picture == Picture(status=SECOND, one=named("git"), at=4.0)
    poll.see("git")
    poll.stop()
    assert asked.wanted == [None, "git"]


@pytest.mark.parametrize("error", [DaemonUnreachable("gone"), RemoteFault(-1, "gone")])
def test_a_daemon_that_is_away_leaves_its_last_picture(error: Exception) -> None:
    asked = Asked(FIRST, error, error, SECOND)
    poll = started(asked)

    def next_of(name: str) -> Picture:
        poll.see(name)
        asked.wait()
        return poll.picture

    gone = Picture(status=FIRST, at=2.0, problem="gone", away=3.0)
    assert next_of("x") == gone
    # Since when it has been away does not move on.
    assert next_of("y") == gone
    assert next_of("z") == Picture(status=SECOND, one=named("z"), at=6.0)
    poll.stop()


def test_while_a_question_is_open_that_is_known() -> None:
    entered, leave = threading.Event(), threading.Event()

    def look(_server: str | None) -> tuple[Any, None]:
        entered.set()
        assert leave.wait(PATIENCE)
        return FIRST, None

    asked = Asked()
    poll = StatusPoll(look, NEVER, wall=asked.wall)
    poll.start(asked.tell)
    assert entered.wait(PATIENCE)
    assert poll.picture == Picture(asked=1.0)
    leave.set()
    asked.wait()
    assert poll.picture.asked == 0
    poll.stop()


def test_it_is_asked_again_and_again() -> None:
    asked = Asked(FIRST, SECOND, THIRD, KeyError("the script ends"))
    poll = started(asked, every=0.001)
    tell: Callable[[], None] = asked.wait
    for _ in range(3):
        tell()
    assert poll.picture.status == THIRD


def test_a_fault_of_ours_is_kept_for_who_shows_the_picture() -> None:
    fault = KeyError("servers")
    poll = started(Asked(fault))
    assert poll.fault is fault
