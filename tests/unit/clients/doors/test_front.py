"""The front: what one session's misfortune means to the others: nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import trio
import trio.testing

from daemon.clients.client import Principal
from daemon.clients.doors.listening import Front
from daemon.errors import ConnectionLost

if TYPE_CHECKING:
    from daemon.wire.outbox import Link


class Fated:
    """A session that lasts until it is told how to end."""

    def __init__(self, number: int, visitor: Principal) -> None:
        self.number = number
        self.visitor = visitor
        self.fate: Exception | None = None
        self._told = trio.Event()

    async def run(self) -> None:
        await self._told.wait()
        if self.fate is not None:
            raise self.fate

    def end(self, fate: Exception | None = None) -> None:
        self.fate = fate
        self._told.set()


def welcome(link: Link, number: int, visitor: Principal) -> Fated:
    if visitor == UNLUCKY:
        raise ValueError("an unlucky number")
    return Fated(number, visitor)


ANN, BOB, UNLUCKY = (Principal(token=name) for name in ("ann", "bob", "thirteen"))
LINK = cast("Link", None)
"""Nothing is done with it here."""


async def test_each_connection_gets_a_session_with_a_number_of_its_own(nursery: trio.Nursery) -> None:
    front = Front(welcome)
    for visitor in (ANN, BOB):
        nursery.start_soon(front.serve, LINK, visitor)
        await trio.testing.wait_all_tasks_blocked()
    assert {number: (each.number, each.visitor) for number, each in front.sessions.items()} == {
        1: (1, ANN),
        2: (2, BOB),
    }
    front.sessions[1].end()
    await trio.testing.wait_all_tasks_blocked()
    assert list(front.sessions) == [2]
    nursery.start_soon(front.serve, LINK, ANN)
    await trio.testing.wait_all_tasks_blocked()
    assert list(front.sessions) == [2, 3]


@pytest.mark.parametrize(
    ("fate", "trace"),
    [
        (KeyError("a bug of ours"), True),
        (ExceptionGroup("of a nursery", [KeyError("a bug of ours")]), True),
        (ConnectionLost("as if"), False),
    ],
)
async def test_what_ends_one_session_leaves_the_others(
    nursery: trio.Nursery, log: list[str], fate: Exception, trace: bool
) -> None:
    front = Front(welcome)
    for _ in range(2):
        nursery.start_soon(front.serve, LINK, ANN)
        await trio.testing.wait_all_tasks_blocked()
    front.sessions[2].end(fate)
    await trio.testing.wait_all_tasks_blocked()
    assert list(front.sessions) == [1]
    assert any("KeyError" in line and line.startswith("ERROR") for line in log) is trace


async def test_a_session_that_cannot_be_made_costs_its_connection(log: list[str]) -> None:
    front = Front(welcome)
    with trio.fail_after(30):
        await front.serve(LINK, UNLUCKY)
    assert not front.sessions
    assert any("an unlucky number" in line for line in log)
