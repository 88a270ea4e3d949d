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

    def look(self, server: str | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
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


def started(asked: Asked, every: float = NEVER) -> StatusPoll:
    poll = StatusPoll(asked.look, every, wall=asked.wall)
    poll.start(asked.tell)
    asked.wait()
    return poll


def test_nothing_is_known_before_the_first_answer() -> None:
    assert StatusPoll(Asked().look, NEVER).picture == Picture()


def test_an_answer_is_a_picture_with_its_time() -> None:
    poll = started(Asked({"a": 1}))
    assert poll.picture == Picture(status={"a": 1}, at=2.0)
    poll.stop()


def test_another_server_is_asked_about_at_once_and_the_same_one_is_not() -> None:
    asked = Asked({"a": 1}, {"a": 2})
    poll = started(asked)
    poll.see("git")
    asked.wait()
    assert poll.picture == Picture(status={"a": 2}, one={"name": "git"}, at=4.0)
    poll.see("git")
    poll.stop()
    assert asked.wanted == [None, "git"]


@pytest.mark.parametrize("error", [DaemonUnreachable("gone"), RemoteFault(-1, "gone")])
def test_a_daemon_that_is_away_leaves_its_last_picture(error: Exception) -> None:
    asked = Asked({"a": 1}, error, error, {"a": 2})
    poll = started(asked)

    def next_of(name: str) -> Picture:
        poll.see(name)
        asked.wait()
        return poll.picture

    gone = Picture(status={"a": 1}, at=2.0, problem="gone", away=3.0)
    assert next_of("x") == gone
    # Since when it has been away does not move on.
    assert next_of("y") == gone
    assert next_of("z") == Picture(status={"a": 2}, one={"name": "z"}, at=6.0)
    poll.stop()


def test_while_a_question_is_open_that_is_known() -> None:
    entered, leave = threading.Event(), threading.Event()

    def look(_server: str | None) -> tuple[dict[str, Any], None]:
        entered.set()
        assert leave.wait(PATIENCE)
        return {"a": 1}, None

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
    asked = Asked({"a": 1}, {"a": 2}, {"a": 3}, KeyError("the script ends"))
    poll = started(asked, every=0.001)
    tell: Callable[[], None] = asked.wait
    for _ in range(3):
        tell()
    assert poll.picture.status == {"a": 3}


def test_a_fault_of_ours_is_kept_for_who_shows_the_picture() -> None:
    fault = KeyError("servers")
    poll = started(Asked(fault))
    assert poll.fault is fault
